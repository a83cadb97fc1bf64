"""`FakeRemote`: a service whose requests fail as a test says, and that counts its effects."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from understudy._base.json_values import shown
from understudy.errors import UsageError
from understudy.testing.effects import Effect, Effects
from understudy.tools import DidNotHappen, Happened


class StatusError(Exception):
    """An HTTP error as the answer of a service.

    Args:
        status_code: 400 to 599.

    """

    def __init__(self, status_code: int) -> None:
        super().__init__(f"the server answered {status_code}")
        self.status_code: int = status_code

    def __reduce__(self) -> tuple[type[StatusError], tuple[int]]:
        return type(self), (self.status_code,)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault: how one request to a service fails.

    Args:
        error: makes the error that the client of the service raises.
        happened: whether the request still had its effect.

    """

    error: Callable[[], BaseException]
    happened: bool

    @classmethod
    def no_answer(cls, *, happened: bool = True) -> Fault:
        """Make a fault: the answer does not come in time. The request may have had its effect."""
        return cls(lambda: TimeoutError("no answer in time"), happened)

    @classmethod
    def reset(cls, *, happened: bool = True) -> Fault:
        """Make a fault: the connection is lost before the answer. The effect may have happened."""
        return cls(lambda: ConnectionResetError("the connection was reset"), happened)

    @classmethod
    def refused(cls) -> Fault:
        """Make a fault: no connection is made, so the request does not arrive."""
        return cls(lambda: ConnectionRefusedError("the connection was refused"), False)

    @classmethod
    def status(cls, code: int, *, happened: bool = False) -> Fault:
        """Make a fault: the answer is an HTTP error.

        After an error such as 503 the client cannot know whether the effect happened. After 400 it
        can.
        """
        return cls(lambda: StatusError(code), happened)


def _checked(fails: Iterable[Fault | None]) -> list[Fault | None]:
    given = list(fails) if isinstance(fails, Iterable) else [object()]
    if not all(each is None or isinstance(each, Fault) for each in given):
        raise UsageError(
            "FakeRemote: `fails` is a list of faults, such as [Fault.no_answer(), None], got "
            f"{shown(fails)}"
        )
    return given


class FakeRemote:
    """A fake service with effects. Its requests fail as you plan it.

    Its methods are plain and quick, so async tools may call them too.

    ```python
    bank = FakeRemote(fails=[Fault.no_answer()])

    @tool
    async def pay(ctx: ToolContext, order: str) -> str:
        return bank.send(order, key=ctx.call_key)
    ```

    Args:
        dedupe: whether a second request with the same key has no second effect.
        lookup: whether the service can say what has happened. If not, `find` and `look_up`
            fail.
        fails: the faults of the requests, in order; None for a request that succeeds. Later
            requests succeed.
        verb: the verb in its answers: "paid 17".
        effects: where its effects are counted. Give `story.effects` in a story, whose hosts are
            killed.

    Raises:
        UsageError: if `fails` is not a list of faults.

    """

    def __init__(
        self,
        *,
        dedupe: bool = False,
        lookup: bool = True,
        fails: Iterable[Fault | None] = (),
        verb: str = "done",
        effects: Effects | None = None,
    ) -> None:
        self.effects: Effects = Effects() if effects is None else effects
        """The effects of the service."""
        self.dedupe: bool = dedupe
        self.lookup: bool = lookup
        self._verb = verb
        self._fails = _checked(fails)
        self._number = self.effects.new_remote()

    @property
    def requests(self) -> list[Effect]:
        """All requests that clients made, also requests that failed or did not arrive."""
        return self.effects.requests_of(self._number)

    def send(self, what: str, *, key: str = "") -> str:
        """Have an effect. It is repeated if it has already happened and no key prevents that.

        Args:
            what: the text of the effect.
            key: the idempotency key, such as `ctx.call_key`.

        Raises:
            BaseException: the error of the next fault.

        """
        fault = self._next_fault(what, key)
        if fault is None or fault.happened:
            if self.dedupe and key:
                self.effects.add_once(what, key)
            else:
                self.effects.add(what, key)
        if fault is not None:
            raise fault.error()
        return f"{self._verb} {what}"

    def look_up(self, what: str, *, key: str = "") -> str:
        """Return whether an effect has happened. It has no effect itself, and fails as `send` does.

        Raises:
            BaseException: the error of the next fault.

        """
        fault = self._next_fault(what, key)
        if fault is not None:
            raise fault.error()
        found = self._find(what, "")
        return f"{what} is {self._verb if found is not None else f'not {self._verb}'}"

    def find(self, what: str = "", *, key: str = "") -> Happened | DidNotHappen:
        """Return, for a `check` of a tool, whether an effect has happened. No fault applies to it.

        Args:
            what: the text of the effect; empty for any.
            key: the key of the request; empty for any.

        Raises:
            StatusError: 501, if the service has no look-up.

        """
        found = self._find(what, key)
        return DidNotHappen() if found is None else Happened(f"{self._verb} {found.what}")

    def _find(self, what: str, key: str) -> Effect | None:
        if not self.lookup:
            raise StatusError(501)
        return self.effects.find(what, key=key)

    def _next_fault(self, what: str, key: str) -> Fault | None:
        before = self.effects.add_request(self._number, Effect(what, key))
        return self._fails[before] if before < len(self._fails) else None

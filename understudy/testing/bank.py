"""`Bank`: a remote service whose requests fail as a test says, and that counts its payments."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from understudy.testing.effects import Effect, Effects
from understudy.tools import DidNotHappen, Happened


class StatusError(Exception):
    """The answer of a service that is an error of HTTP.

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
    """How one request to a service fails.

    Args:
        error: makes what the client of the service raises.
        happened: whether the request has had its effect nevertheless.

    """

    error: Callable[[], BaseException]
    happened: bool

    @classmethod
    def no_answer(cls, *, happened: bool = True) -> Fault:
        """The answer does not come in time. The request may have had its effect."""
        return cls(lambda: TimeoutError("no answer in time"), happened)

    @classmethod
    def reset(cls, *, happened: bool = True) -> Fault:
        """The connection is lost before the answer. The request may have had its effect."""
        return cls(lambda: ConnectionResetError("the connection was reset"), happened)

    @classmethod
    def refused(cls) -> Fault:
        """No connection is made, so the request does not arrive."""
        return cls(lambda: ConnectionRefusedError("the connection was refused"), False)

    @classmethod
    def status(cls, code: int, *, happened: bool = False) -> Fault:
        """The answer is an error of HTTP: 503 leaves open what happened, 400 does not."""
        return cls(lambda: StatusError(code), happened)


class Bank:
    """A fake service that pays, and whose requests fail as they are told.

    Its methods are plain and quick: async tools may call them, too.

    ```python
    bank = Bank(Fault.no_answer())


    @tool
    async def pay(ctx: ToolContext, order: str) -> str:
        return bank.pay(order, key=ctx.call_key)
    ```

    Args:
        faults: how the requests fail, in their order; None for one that succeeds, as all do that
            come after these.
        knows_keys: whether a second request with the same key has no effect of its own.

    """

    def __init__(self, *faults: Fault | None, knows_keys: bool = False) -> None:
        self.effects: Effects = Effects()
        """What it has paid."""
        self.requests: list[Effect] = []
        """Each request that a client has made, also those that failed or did not arrive."""
        self.knows_keys: bool = knows_keys
        self._faults = list(faults)
        self._lock = threading.Lock()

    def pay(self, what: str, *, key: str = "") -> str:
        """Pay for something, once more if it is paid already and no key says so.

        Args:
            what: for what.
            key: the idempotency key, such as `ctx.call_key`.

        Raises:
            BaseException: the error of the next fault.

        """
        fault = self._next_fault(what, key)
        if fault is None or fault.happened:
            if self.knows_keys and key:
                self.effects.add_once(what, key)
            else:
                self.effects.add(what, key)
        if fault is not None:
            raise fault.error()
        return f"paid {what}"

    def look_up(self, what: str, *, key: str = "") -> str:
        """Say whether something is paid. It has no effect, and fails as `pay` does.

        Raises:
            BaseException: the error of the next fault.

        """
        fault = self._next_fault(what, key)
        if fault is not None:
            raise fault.error()
        return f"{what} is {'paid' if self.effects.of(what) else 'not paid'}"

    def find(self, what: str = "", *, key: str = "") -> Happened | DidNotHappen:
        """What a `check` of a tool returns: whether it has paid. It never fails.

        Args:
            what: for what; empty for anything.
            key: by a request with this key; empty for any.

        """
        for effect in self.effects:
            if what in ("", effect.what) and key in ("", effect.key):
                return Happened(f"paid {effect.what}")
        return DidNotHappen()

    def _next_fault(self, what: str, key: str) -> Fault | None:
        with self._lock:
            self.requests.append(Effect(what, key))
            return self._faults.pop(0) if self._faults else None

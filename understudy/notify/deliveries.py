"""`Notify`: notifies people of requests, while a runtime is open."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import Any
from urllib.parse import quote

from understudy._base.json_values import checked_callable, checked_count, checked_seconds, text_of
from understudy._base.log_fields import log_extra
from understudy._base.lookout import Lookout
from understudy._base.request_timing import Seconds, checked_delay
from understudy.actors.notifying import NotifyHost, Notifying
from understudy.errors import JournalFailed, UnknownAgent, UsageError
from understudy.interrupts import Request
from understudy.journal.notices import Outbox, StoredNotice
from understudy.notify.channels import Channel, DeliveryFailed, Hook, checked_url
from understudy.notify.endings import ending_of, request_of
from understudy.notify.notice import (
    Notice,
    What,
    notice_id,
    plain,
    sample_notice,
    shown_by,
    title_of,
)
from understudy.notify.rules import Rule
from understudy.state.agent_state import AgentState

logger: logging.Logger = logging.getLogger(__name__)

LEASE = 120.0
"""Seconds in which a host must have delivered what it has claimed. Then another host does."""
LONGEST = 60.0
"""The maximum seconds of one delivery."""
AT_ONCE = 16
"""The maximum number of concurrent deliveries."""
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 3600.0
"""Seconds until the next attempt, which double."""
LOOK_AGAIN = 5.0
"""Seconds until the next look at a request that is not listed but may still wait."""
CLEAN = 3600.0
"""Seconds between two removals of old notices."""
STOP = 5.0
"""The maximum seconds of open deliveries when the runtime closes."""
_HookOf = Callable[[Notice], Awaitable[None] | None]
_Change = Callable[[Outbox], None]


class Notify(Notifying):
    """Tells people about requests, by rules: `Runtime(notify=Notify(...))`.

    Each notice is written into the store together with its request, by whichever host. Any host
    with `notify` delivers it, at least once, under one id. A failed delivery is tried again after
    growing pauses; at last the notice is listed as failed. A notice is dropped if its request was
    decided meanwhile. No delivery holds up an agent or puts a call in doubt.

    Requests that already waited when the store got its first `notify` are notified at their next
    reminder.

    Args:
        rules: which requests are notified by which channels. Give the same rules to all hosts of a
            store.
        base_url: the URL at which people reach the pages of `ui(...)`, for links.
        on_request: a function, plain or async, that gets the `Notice` of each request. A plain
            function runs in a thread. If it raises, it is called again later.
        on_reminder: the same for each reminder and each escalation.
        on_expiry: the same for each request that expires without an answer.
        every: seconds between two looks at the store.
        attempts: the number of attempts before a notice has failed.
        keep: how long a notice is listed after it is over: seconds or a timedelta.

    Raises:
        UsageError: if an argument is wrong, or two channels have the same name.

    """

    def __init__(
        self,
        *rules: Rule,
        base_url: str = "",
        on_request: _HookOf | None = None,
        on_reminder: _HookOf | None = None,
        on_expiry: _HookOf | None = None,
        every: float = 2.0,
        attempts: int = 12,
        keep: Seconds = timedelta(days=7),
    ) -> None:
        for each in rules:
            if not isinstance(each, Rule):
                name = type(each).__name__
                raise UsageError(f"Notify takes rules: Notify(Rule(...)), got {name}")
        if base_url:
            base_url = checked_url(base_url, what="Notify(base_url=...)").rstrip("/")
        elif rules:
            raise UsageError(
                "Notify(base_url=...) is missing: where people reach the pages of ui(...), such as "
                "'https://ops.example.com/agents'"
            )
        checked_seconds(every, what="Notify(every=...)")
        hooks = _hooks(on_request=on_request, on_reminder=on_reminder, on_expiry=on_expiry)
        self._rules = (*rules, *hooks)
        if not self._rules:
            raise UsageError("Notify tells nobody: give it a Rule, or `on_request`")
        self._channels: dict[str, Channel] = {}
        for channel in (each for rule in self._rules for each in rule.channels):
            if self._channels.setdefault(channel.name, channel) is not channel:
                raise UsageError(
                    f"Notify: two channels have the name {channel.name!r}; give each its own"
                )
        self._base_url = base_url
        self._every = every
        self._attempts = checked_count(attempts, what="Notify(attempts=...)")
        self._keep = checked_delay(keep, what="Notify(keep=...)")
        self._host: NotifyHost | None = None
        self._lookout: Lookout | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._in_hand: set[int] = set()
        """The numbers of the notices that are delivered now."""
        self._cleaned = 0.0

    async def begin(self, host: NotifyHost) -> None:
        if self._host is not None:
            raise UsageError("this Notify is used by another runtime: give each its own")
        await host.store.change_outbox(lambda outbox: outbox.turn(True))
        self._host = host
        self._lookout = Lookout("notices to people", lambda: self._every, self._look, _start_task)
        self._lookout.begin()
        self._lookout.hint()

    async def end(self) -> None:
        lookout, self._lookout, self._host = self._lookout, None, None
        if lookout is not None:
            lookout.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP)
        # A delivery that is cut off is claimed until its lease ends. Then another host delivers it,
        # or this host after its next start.
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def send_test(self, channel: str | None = None) -> dict[str, str]:
        """Send a test notice about a request that does not exist, by all channels or by one.

        Args:
            channel: the name of the channel; None = all channels.

        Returns:
            By channel name, the reason why the notice could not be sent; empty if it was sent.

        Raises:
            UsageError: if there is no such channel.

        """
        if channel is not None and channel not in self._channels:
            known = ", ".join(self._channels)
            raise UsageError(f"Notify has no channel {channel!r}: it has {known}")
        results: dict[str, str] = {}
        for name, each in self._channels.items():
            if channel in (None, name):
                try:
                    async with asyncio.timeout(LONGEST):
                        await each.deliver(sample_notice(self._link("test", "test")))
                    results[name] = ""
                except DeliveryFailed as error:
                    results[name] = error.why
                except Exception as error:  # the application's function may raise anything
                    results[name] = f"{type(error).__name__}: {text_of(error)}"
        return results

    async def _look(self, is_hinted: bool) -> None:
        host, free = self._host, AT_ONCE - len(self._tasks)
        if host is None or free <= 0:
            return
        now = host.clock.now()
        until, name = now + timedelta(seconds=LEASE), host.store.host or ""
        rows = await host.store.change_outbox(lambda outbox: outbox.claim(now, until, name, free))
        for row in rows:
            if row.no in self._in_hand:
                # The lease has ended here first, for instance because the machine was suspended
                # (test_a_host_delivers_once_what_takes_longer_than_its_lease).
                continue
            self._in_hand.add(row.no)
            task = asyncio.create_task(self._settle(host, row), name=f"telling {row.channel}")
            self._tasks.add(task)
            task.add_done_callback(self._settled)
        ticks = asyncio.get_running_loop().time()
        if not rows and (self._cleaned == 0.0 or ticks - self._cleaned > CLEAN):
            self._cleaned = ticks
            before = now - self._keep
            await host.store.change_outbox(lambda outbox: outbox.clean(before))

    def _settled(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # Its lease will end, and then it is tried again.
            logger.warning("what became of a notice is not stored: %s", text_of(error))
        if self._lookout is not None:
            self._lookout.hint()

    async def _settle(self, host: NotifyHost, row: StoredNotice) -> None:
        """Deliver a row, and store the result."""
        try:
            await host.store.change_outbox(await self._outcome_of(host, row))
        finally:
            self._in_hand.discard(row.no)

    async def _outcome_of(self, host: NotifyHost, row: StoredNotice) -> _Change:
        try:
            async with asyncio.timeout(LONGEST):
                return await self._change_of(host, row)
        except JournalFailed:
            raise
        except TimeoutError:
            return self._failed(host, row, DeliveryFailed(f"no end within {LONGEST:g} s"))
        except DeliveryFailed as error:
            return self._failed(host, row, error)
        except Exception as error:  # the application's function may raise anything
            logger.exception(
                "a notice of agent %r is not delivered",
                row.agent_id,
                extra=log_extra(row.agent_id),
            )
            why = f"{type(error).__name__}: {text_of(error)}"
            return self._failed(host, row, DeliveryFailed(why))

    def _failed(self, host: NotifyHost, row: StoredNotice, error: DeliveryFailed) -> _Change:
        now, why = host.clock.now(), plain(error.why)[:500]
        if error.is_final or row.attempts >= self._attempts:
            logger.error(
                "a notice of agent %r by %r has failed: %s",
                row.agent_id,
                row.channel,
                why,
                extra=log_extra(row.agent_id),
            )
            return lambda outbox: outbox.settle(row.no, "failed", at=now, detail=why)
        pause = min(FIRST_PAUSE * 2 ** min(row.attempts - 1, 20), LONGEST_PAUSE)
        due = now + timedelta(seconds=max(pause, error.after))
        return lambda outbox: outbox.settle(row.no, "new", at=now, due=due, detail=why)

    async def _change_of(self, host: NotifyHost, row: StoredNotice) -> _Change:
        if row.what == "ended":
            return await (self._end_message if row.channel else self._ended)(host, row)
        if row.what == "expired":
            state = await _state(host, row)
            request = await request_of(host.store, row.agent_id, state, row.request_id)
        else:
            request = await self._waiting(host, row)
        now = host.clock.now()
        if request is None:
            ending = ending_of(await _state(host, row), row.request_id)
            if not ending.said:
                return _later(host, row)
            why = f"no longer asked: {ending.said}"
            return lambda outbox: outbox.settle(row.no, "dropped", at=now, detail=why)
        if not row.channel:
            what: What = row.what
            names = self._names(request, row, what)
            return lambda outbox: _add(outbox, row, what, names, now)
        channel = self._channels.get(row.channel)
        if channel is None:
            raise DeliveryFailed("this host has no channel of that name")
        receipt = await channel.deliver(self._notice(request, row, channel))
        now = host.clock.now()

        def done(outbox: Outbox) -> None:
            outbox.settle(row.no, "done", at=now, receipt=receipt)
            if receipt:
                # Race: the end of the request did not find this message yet
                # (test_a_message_that_is_posted_while_its_request_is_decided_is_changed_too).
                outbox.look_again(row.no)

        return done

    async def _waiting(self, host: NotifyHost, row: StoredNotice) -> Request | None:
        """The request of a row, while it is listed."""
        id, request_id = row.agent_id, row.request_id
        found = await host.store.ask_index(lambda index: index.ask_of(id, request_id))
        return None if found is None else found.request()

    def _fitting(self, request: Request, row: StoredNotice, what: What) -> list[Rule]:
        audience = _audience(request, row)
        return [rule for rule in self._rules if rule.fits(request, row.agent, what, audience)]

    def _names(self, request: Request, row: StoredNotice, what: What) -> list[str]:
        """The names of the channels that notify of it, each once."""
        rules = self._fitting(request, row, what)
        return list(dict.fromkeys(each.name for rule in rules for each in rule.channels))

    def _notice(self, request: Request, row: StoredNotice, channel: Channel) -> Notice:
        assert row.what != "ended", "that is no notice of its own"
        rules = self._fitting(request, row, row.what)
        rule = next((each for each in rules if channel in each.channels), None)
        shown = {} if rule is None else shown_by(rule.show, request)
        id, request_id = row.agent_id, row.request_id
        return Notice(
            id=notice_id(id, request_id, row.what, row.count, channel.name),
            what=row.what,
            number=row.count,
            audience=_audience(request, row),
            title=title_of(request, shown),
            agent_id=id,
            agent=row.agent,
            url=self._link(id, request_id),
            shown=shown,
            request=request,
        )

    def _link(self, agent_id: str, request_id: str) -> str:
        if not self._base_url:
            return ""
        return f"{self._base_url}/agents/{_segment(agent_id)}/requests/{_segment(request_id)}"

    # ------------------------------------------------------------------- the end of a request

    async def _ended(self, host: NotifyHost, row: StoredNotice) -> _Change:
        """Find out why a request is not listed any more, if somebody was notified of it."""
        now = host.clock.now()
        receipts = await host.store.change_outbox(lambda outbox: outbox.receipts(row.no))

        def unless_new(change: _Change) -> _Change:
            # Race: a message is posted meanwhile: it has looked for the end, and found it under way
            # (test_a_message_that_is_posted_while_its_request_is_decided_is_changed_too).
            def changed(outbox: Outbox) -> None:
                if outbox.receipts(row.no) == receipts:
                    change(outbox)
                else:
                    outbox.settle(row.no, "new", at=now, due=now, counts=False)

            return changed

        if not receipts and not any("expired" in rule.on for rule in self._rules):
            return unless_new(lambda outbox: outbox.settle(row.no, "done", at=now))
        state = await _state(host, row)
        ending = ending_of(state, row.request_id)
        if not ending.said:
            return _later(host, row)
        by_channel: dict[str, list[str]] = {}
        for name, receipt in receipts:
            by_channel.setdefault(name, []).append(receipt)
        expired: list[str] = []
        if ending.is_expired:
            request = await request_of(host.store, row.agent_id, state, row.request_id)
            expired = [] if request is None else self._names(request, row, "expired")

        def added(outbox: Outbox) -> None:
            for name, each in by_channel.items():
                receipt = json.dumps({"said": ending.said, "messages": each})
                outbox.add(row.no, "ended", name, at=now, receipt=receipt)
            _add(outbox, row, "expired", expired, now)

        return unless_new(added)

    async def _end_message(self, host: NotifyHost, row: StoredNotice) -> _Change:
        """Change the messages about a request that has ended."""
        channel = self._channels.get(row.channel)
        if channel is None:
            raise DeliveryFailed("this host has no channel of that name")
        found = json.loads(row.receipt)
        for receipt in found["messages"]:
            await channel.ended(receipt, found["said"])
        now = host.clock.now()
        return lambda outbox: outbox.settle(row.no, "done", at=now)


def _hooks(**functions: _HookOf | None) -> list[Rule]:
    on: dict[str, tuple[What, ...]] = {
        "on_request": ("asked",),
        "on_reminder": ("reminder", "escalation"),
        "on_expiry": ("expired",),
    }
    found = []
    for name, function in functions.items():
        checked_callable(function, what=f"Notify({name}=...)", takes="of a Notice")
        if function is not None:
            found.append(Rule(Hook(name, function), on=on[name], show=True))
    return found


def _start_task(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    return asyncio.create_task(work, name=name)


def _later(host: NotifyHost, row: StoredNotice) -> _Change:
    """Look again later: the run continues with another answer, and asks this again when it
    rests.
    """
    now = host.clock.now()
    due = now + timedelta(seconds=LOOK_AGAIN)
    return lambda outbox: outbox.settle(row.no, "new", at=now, due=due, counts=False)


def _add(outbox: Outbox, row: StoredNotice, what: What, names: list[str], now: Any) -> None:
    """Add a row for each of these channels, and end the row of the event."""
    for name in names:
        outbox.add(row.no, what, name, at=now, receipt="")
    outbox.settle(row.no, "done", at=now)


async def _state(host: NotifyHost, row: StoredNotice) -> AgentState | None:
    """The state of the agent of a row; None if it is deleted."""
    with suppress(UnknownAgent):
        return await host.state(row.agent_id)
    return None


def _audience(request: Request, row: StoredNotice) -> str:
    if row.what != "escalation" or not 0 < row.count <= len(request.escalations):
        return ""
    return request.escalations[row.count - 1].audience


def _segment(id: str) -> str:
    """The id as a segment of a page's path."""
    return quote(f"~{id}" if id[0] in "~." else id, safe="")

"""`slack_actions`: the ASGI application that takes clicks on the buttons of Slack's messages."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import parse_qs

from pydantic_core import from_json

from understudy._base import security_log
from understudy._base.clock import wall_seconds
from understudy._base.json_values import shown, text_of
from understudy.actors import Runtime
from understudy.errors import (
    AlreadyDecided,
    DecisionError,
    NotInterrupted,
    RequestChanged,
    RequestExpired,
    UnderstudyError,
    UnknownAgent,
    UsageError,
    VoteRefused,
)
from understudy.interrupts import approve, reject
from understudy.login.users import User
from understudy.notify.channels import DeliveryFailed
from understudy.notify.notice import needs_page, plain
from understudy.notify.slack import APPROVE, REJECT, Slack

logger: logging.Logger = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Who: TypeAlias = Mapping[str, User] | Callable[[str, str], User | Awaitable[User | None] | None]
"""The users of the application by the ids of Slack's users; or a function of the ids of a user and
of the user's team."""

MAX_BODY = 1024 * 1024
"""The maximum bytes of a click: Slack sends the whole message along."""
TOLERANCE = 300
"""The maximum seconds by which the time of a click may differ from this machine's."""
SECONDS = 2.5
"""The maximum seconds until a click is answered: Slack waits for three."""
GONE = "It is not asked any more: nothing was decided by this click."
CHANGED = "The request is not what this message shows. Look at it, and decide, on its page."
SLOW = "The agent has not answered yet. The message says so once the decision is recorded."


class _Click(NamedTuple):
    """A click on a button of a message."""

    user_id: str
    team_id: str
    channel: str
    action: str
    agent_id: str
    request_id: str
    digest: str


class _Refused(Exception):
    """The error of a request that is answered with this status."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


class _NotDecided(Exception):
    """The error that nothing was decided, with the reason for the person who clicked."""


def slack_actions(
    runtime: Runtime | Callable[[], Runtime],
    slack: Slack,
    *,
    signing_secret: str | Sequence[str],
    users: Who,
) -> Any:
    """An ASGI application for the clicks on messages of a `Slack`. Mount it beside `ui(...)`.

    Its URL is the "Request URL" of the app in Slack, under "Interactivity & Shortcuts". A request
    counts only with Slack's signature, and only for five minutes. Who clicked is a `User` by
    `users`, as by a login of the pages: with the same rights, and votes under the same name. The
    decision holds for what the message shows: if the request is another one by now, nothing is
    decided, and the person is notified.

    Args:
        runtime: a `Runtime`, or a function that gives it.
        slack: the channel that posts the messages.
        signing_secret: the signing secret of the app in Slack; several while it changes.
        users: the users by Slack ids: a mapping of ids to `User`s, or a function, plain or async,
            of the ids of a user and of the user's team. An unknown user may do nothing. A plain
            function is called on the event loop.

    Raises:
        UsageError: for a bad argument.

    """
    if not isinstance(runtime, Runtime) and not callable(runtime):
        raise UsageError(
            f"slack_actions takes a Runtime, or a function that gives it, got {shown(runtime)}"
        )
    if not isinstance(slack, Slack):
        raise UsageError(f"slack_actions(slack) takes the Slack of a rule, got {shown(slack)}")
    if not isinstance(users, Mapping) and not callable(users):
        raise UsageError(
            "slack_actions(users=...) takes a mapping of the ids of Slack's users to Users, or a "
            f"function, got {shown(users)}"
        )
    secrets = [signing_secret] if isinstance(signing_secret, str) else list(signing_secret)
    if not secrets or not all(isinstance(each, str) and len(each) >= 16 for each in secrets):
        raise UsageError("slack_actions(signing_secret=...) must be the signing secret of the app")
    runtime_of = (lambda: runtime) if isinstance(runtime, Runtime) else runtime
    return _SlackActions(runtime_of, slack, [each.encode() for each in secrets], users)


class _SlackActions:
    def __init__(
        self, runtime_of: Callable[[], Runtime], slack: Slack, secrets: Sequence[bytes], users: Who
    ) -> None:
        self._runtime_of = runtime_of
        self._slack = slack
        self._secrets = secrets
        self._users = users

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, by ASGI 3."""
        if scope["type"] != "http":
            raise UsageError(f"slack_actions serves http alone, not {shown(scope['type'])}")
        click, reason = None, ""
        try:
            click = await self._click(scope, receive)
            if click is not None:
                await self._decide(click)
        except _Refused as refused:
            await _respond(send, refused.status, refused.why)
            return
        except _NotDecided as error:
            reason = str(error)
        await _respond(send, 200, "")
        if reason and click is not None:
            try:
                await self._slack.tell(click.channel, click.user_id, reason)
            except DeliveryFailed as error:  # the click is answered: nobody waits for this
                logger.warning("a person in Slack did not get %r: %s", reason, error.why)

    # ------------------------------------------------------------------- is it Slack?

    async def _click(self, scope: Scope, receive: Receive) -> _Click | None:
        """The click in a request; None if the request is about something else."""
        if scope["method"] != "POST":
            raise _Refused(405, "use POST")
        headers = {name.lower(): value for name, value in scope["headers"]}
        body = await _body(headers, receive)
        self._check_signature(headers, body)
        try:
            (payload,) = parse_qs(body.decode(), strict_parsing=True, max_num_fields=20)["payload"]
            return _click_of(from_json(payload.encode()))
        except (KeyError, ValueError):  # Slack itself sent it, so it is no attack
            raise _Refused(400, "not a click of Slack") from None

    def _check_signature(self, headers: Mapping[bytes, bytes], body: bytes) -> None:
        at = headers.get(b"x-slack-request-timestamp", b"")
        given = headers.get(b"x-slack-signature", b"")
        # The check takes constant time and comes before the time check, so an answer reveals
        # nothing about the key.
        signed = b"v0:" + at + b":" + body
        wanted = [
            b"v0=" + hmac.new(secret, signed, hashlib.sha256).hexdigest().encode()
            for secret in self._secrets
        ]
        is_signed = [hmac.compare_digest(each, given) for each in wanted]
        is_now = at.isdigit() and len(at) <= 12 and abs(wall_seconds() - int(at)) <= TOLERANCE
        if not any(is_signed) or not is_now:
            security_log.note("refused", "slack", who=None)
            raise _Refused(401, "not signed by Slack, or sent at another time")

    # ------------------------------------------------------------------- who, and what?

    async def _decide(self, click: _Click) -> None:
        try:
            async with asyncio.timeout(SECONDS):
                await self._decided(click)
        except TimeoutError:
            raise _NotDecided(SLOW) from None
        except (VoteRefused, RequestExpired) as error:
            raise _NotDecided(plain(text_of(error))) from error
        except RequestChanged:
            raise _NotDecided(CHANGED) from None
        except AlreadyDecided:
            raise _NotDecided("Another person has decided it differently.") from None
        except (DecisionError, NotInterrupted, UnknownAgent):
            raise _NotDecided(GONE) from None
        except UnderstudyError as error:
            logger.error("a click in Slack is not recorded: %s", text_of(error))
            raise _NotDecided("It could not be recorded. Try again, or use its page.") from error

    async def _decided(self, click: _Click) -> None:
        user = await self._user(click)
        runtime = self._runtime_of()
        state = await runtime.get(click.agent_id).state()
        request = next((each for each in state.requests if each.id == click.request_id), None)
        if request is not None:
            if request.digest != click.digest:
                raise _NotDecided(CHANGED)
            # Since the message was sent, a call of the tool may have come into doubt.
            in_doubt = any(
                doubt.tool_name == request.tool_name for doubt in state.doubts_in_tree.values()
            )
            if in_doubt or needs_page(request):
                raise _NotDecided(CHANGED)
        decision = (
            approve(by=user.by)
            if click.action == APPROVE
            else reject("Rejected in Slack.", by=user.by)
        )
        ref = user.calling(runtime.get(click.agent_id))
        await ref.decide({click.request_id: decision}, expect={click.request_id: click.digest})

    async def _user(self, click: _Click) -> User:
        """The user who clicked, with the right to decide."""
        if isinstance(self._users, Mapping):
            user = self._users.get(click.user_id)
        else:
            found = self._users(click.user_id, click.team_id)
            user = await found if inspect.isawaitable(found) else found
        if user is not None and not isinstance(user, User):
            raise TypeError(f"slack_actions(users=...) gave {type(user).__name__}, not a User")
        if user is None or "decide" not in user.may:
            who = f"slack:{plain(click.user_id)}" if user is None else user.name
            security_log.note("refused", "decide", who=who, agent=click.agent_id)
            raise _NotDecided(
                "You are not known to this application: nothing was decided."
                if user is None
                else "You may not decide: it needs the right 'decide'."
            )
        if user.verified is None:
            return user
        # Slack names the person, not the identity provider: decisions that need the provider are
        # made on the page.
        return replace(
            user, verified=replace(user.verified, assurance="login", auth_at=None, claims={})
        )


def _click_of(payload: Any) -> _Click | None:
    """The click that a payload is about.

    Raises:
        KeyError, ValueError: if the payload lacks a value.

    """
    if not isinstance(payload, dict) or payload.get("type") != "block_actions":
        return None
    try:
        actions = [each for each in payload["actions"] if each["action_id"] in (APPROVE, REJECT)]
        if not actions:
            return None  # the button is a link
        value = from_json(actions[0]["value"].encode())
        user = payload["user"]
        found = _Click(
            user_id=user["id"],
            team_id=user.get("team_id") or "",
            channel=payload["container"]["channel_id"],
            action=actions[0]["action_id"],
            agent_id=value["agent"],
            request_id=value["request"],
            digest=value["digest"],
        )
    except (TypeError, AttributeError) as error:
        raise ValueError("not a click") from error
    if not all(isinstance(each, str) for each in found) or not found.agent_id:
        raise ValueError("not a click")
    return found


async def _body(headers: Mapping[bytes, bytes], receive: Receive) -> bytes:
    length = headers.get(b"content-length", b"0")
    if not length.isdigit() or int(length[:20]) > MAX_BODY:
        raise _Refused(413, "too large")
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise _Refused(400, "incomplete")
        body += message.get("body", b"")
        if len(body) > MAX_BODY:
            raise _Refused(413, "too large")
        if not message.get("more_body", False):
            return bytes(body)


async def _respond(send: Send, status: int, text: str) -> None:
    body = text.encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    if status == 405:
        headers.append((b"allow", b"POST"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})

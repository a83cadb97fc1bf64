"""`Slack`: notices as messages with buttons, which are changed when the request is decided."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from pydantic_core import from_json

from understudy._base.json_values import checked_callable, checked_text
from understudy.errors import UsageError
from understudy.interrupts import Request
from understudy.notify.channels import Channel, DeliveryFailed, checked_url, post, retry_after
from understudy.notify.notice import TITLES, Notice, lines_of, needs_page, plain, when_text

API = "https://slack.com/api"
APPROVE, REJECT, OPEN = "understudy.approve", "understudy.reject", "understudy.open"
"""The ids of the buttons."""
LONGEST = 2900
"""The maximum characters of a text of a message. Slack cuts none off: it refuses a longer one."""
_LONGEST_VALUE = 2000
_LONGEST_URL = 3000
_FINAL = frozenset(
    {
        "account_inactive",
        "channel_not_found",
        "invalid_auth",
        "invalid_blocks",
        "is_archived",
        "missing_scope",
        "not_authed",
        "not_in_channel",
        "token_revoked",
    }
)
"""Errors of Slack that stay until a person changes a setting there, or here."""
To: TypeAlias = str | Callable[[Notice], str]


class Slack(Channel):
    """A channel that posts notices to Slack, by `chat.postMessage`.

    A message has the buttons Approve and Reject only if it shows everything that a person decides
    on: every argument, in full. Every message has a link to the page of the request. When the
    request is decided anywhere, the message says so and loses its buttons.

    `slack_actions` receives the clicks.

    Args:
        name: the name of the channel.
        channel: the id of a Slack channel or of a person, such as `"C0123456789"`; or a
            function that takes a `Notice` and returns the id, for example by its `audience`.
        token: the token of the app's bot, `"xoxb-..."`. It needs the scope `chat:write`, and
            the app must be in the channel.
        buttons: whether messages have buttons. False = only the link.
        api: the URL of Slack's API.

    Raises:
        UsageError: if an argument is wrong.

    """

    def __init__(
        self, name: str, channel: To, *, token: str, buttons: bool = True, api: str = API
    ) -> None:
        super().__init__(name)
        if callable(channel):
            checked_callable(channel, what="Slack(channel=...)", takes="of a Notice")
        else:
            checked_text(channel, what="Slack(channel=...)")
        checked_text(token, what="Slack(token=...)")
        if not token.isascii() or not token.isprintable() or " " in token:
            raise UsageError("Slack(token=...) must be the token of a bot, 'xoxb-...'")
        self._channel = channel
        self._token = token
        self._buttons = buttons
        self._api = checked_url(api, what="Slack(api=...)").rstrip("/")

    async def deliver(self, notice: Notice) -> str:
        channel = self._channel(notice) if callable(self._channel) else self._channel
        title = _cut(f"{TITLES[notice.what]}{notice.title}")
        found = await self.call(
            "chat.postMessage",
            {
                "channel": channel,
                "text": _escaped(title),
                "blocks": self._blocks(notice, title),
                "unfurl_links": False,
                "unfurl_media": False,
                "metadata": {
                    "event_type": "understudy_request",
                    "event_payload": {"notice_id": notice.id},
                },
            },
        )
        message = {"channel": found.get("channel"), "ts": found.get("ts"), "title": title}
        return json.dumps({**message, "url": notice.url})

    async def ended(self, receipt: str, said: str) -> None:
        message = json.loads(receipt)
        blocks = [
            _plain_section(message["title"]),
            _context(said),
            *([_buttons([_open_button(message["url"])])] if message["url"] else []),
        ]
        text = _escaped(f"{message['title']} - {said}")
        try:
            await self.call(
                "chat.update",
                {
                    "channel": message["channel"],
                    "ts": message["ts"],
                    "text": text,
                    "blocks": blocks,
                },
            )
        except DeliveryFailed as error:
            if error.why not in ("Slack: message_not_found", "Slack: cant_update_message"):
                raise  # otherwise somebody has deleted the message

    async def tell(self, channel: str, user: str, text: str) -> None:
        """Send a message that only one person in the channel sees.

        Raises:
            DeliveryFailed: if Slack does not accept it.

        """
        body = {"channel": channel, "user": user, "text": _escaped(text)}
        await self.call("chat.postEphemeral", body)

    async def call(self, method: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Call a method of Slack's API.

        Raises:
            DeliveryFailed: if the call fails.

        """
        headers = {
            "Authorization": f"Bearer {self._token}",
            "Content-Type": "application/json; charset=utf-8",
        }
        answer = await post(f"{self._api}/{method}", json.dumps(body).encode(), headers)
        if answer.status != 200:
            raise DeliveryFailed(f"Slack answered {answer.status}", after=retry_after(answer))
        try:
            found = from_json(answer.body)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise DeliveryFailed("Slack has answered with no JSON object")
        if found.get("ok") is not True:
            error = plain(str(found.get("error", "unknown error")))[:100]
            raise DeliveryFailed(f"Slack: {error}", is_final=error in _FINAL)
        return found

    def _blocks(self, notice: Notice, title: str) -> list[dict[str, Any]]:
        request = notice.request
        blocks = [_plain_section(title)]
        values = lines_of(dict(notice.shown)) if notice.shown else ""
        display = _display(request) if notice.shows_all else ""
        is_whole = len(values) <= LONGEST and len(display) <= LONGEST
        if is_whole and display:
            blocks.append(_code(display))
        if is_whole and values:
            blocks.append(_code(values))
        facts = [f"agent {plain(notice.agent_id)} ({' / '.join(map(plain, request.agent_path))})"]
        if request.tool_name:
            facts.insert(0, f"tool {plain(request.tool_name)}")
        if request.source:
            facts.append(f"asked by {plain(request.source)}")
        if request.expires_at is not None:
            facts.append(f"expires {when_text(request.expires_at)}")
        blocks.append(_context(" · ".join(facts)))
        decides = notice.what != "expired" and self._buttons
        value = button_value(notice.agent_id, request)
        buttons: list[dict[str, Any]] = []
        why = needs_page(request)
        if not why and not (is_whole and notice.shows_all):
            why = "The message does not show all of it: look at it, and decide, on its page."
        if decides and not why and len(value) <= _LONGEST_VALUE:
            if "approve" in request.allowed:
                buttons.append(_button(APPROVE, "Approve", value, "primary"))
            if "reject" in request.allowed:
                buttons.append(_button(REJECT, "Reject", value, "danger"))
        elif decides and why:
            blocks.append(_context(why))
        if notice.url and len(notice.url) <= _LONGEST_URL:
            buttons.append(_open_button(notice.url))
        return [*blocks, *([_buttons(buttons)] if buttons else [])]


def button_value(agent_id: str, request: Request) -> str:
    """The value of a button: the request, and the digest of what the message shows."""
    of = {"agent": agent_id, "request": request.id, "digest": request.digest}
    return json.dumps(of, separators=(",", ":"))


def _display(request: Request) -> str:
    shown = request.display
    if isinstance(shown, str):
        return "\n".join(plain(line) for line in shown.splitlines())
    return "" if shown is None else lines_of(shown)


def _escaped(text: str) -> str:
    """The text, escaped for places where Slack reads marks: it has no link, mention or command."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


# In these blocks Slack reads no marks, so an agent's text stays unchanged.


def _plain_section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "plain_text", "text": _cut(text), "emoji": False}}


def _context(text: str) -> dict[str, Any]:
    shown = {"type": "plain_text", "text": _cut(text), "emoji": False}
    return {"type": "context", "elements": [shown]}


def _code(text: str) -> dict[str, Any]:
    lines = {"type": "rich_text_preformatted", "elements": [{"type": "text", "text": text}]}
    return {"type": "rich_text", "elements": [lines]}


def _buttons(buttons: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "actions", "elements": buttons}


def _button(action: str, text: str, value: str, style: str) -> dict[str, Any]:
    return {
        "type": "button",
        "action_id": action,
        "text": {"type": "plain_text", "text": text},
        "value": value,
        "style": style,
    }


def _open_button(url: str) -> dict[str, Any]:
    return {
        "type": "button",
        "action_id": OPEN,
        "text": {"type": "plain_text", "text": "Open"},
        "url": url,
    }

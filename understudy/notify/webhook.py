"""`Webhook`: notices as signed JSON, in the manner of Standard Webhooks."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from understudy._base.clock import wall_seconds
from understudy._base.json_values import shown
from understudy.errors import UsageError
from understudy.notify.channels import Channel, DeliveryFailed, checked_url, post, retry_after
from understudy.notify.notice import Notice

TOLERANCE = 300.0
"""The maximum seconds by which the timestamp of a message may differ from the verifier's time."""
_PREFIX = "whsec_"
_SHORTEST = 16


class Webhook(Channel):
    """A channel that posts notices as JSON, signed by [Standard
    Webhooks](https://www.standardwebhooks.com).

    The headers are `webhook-id`, `webhook-timestamp` and `webhook-signature`. `verify_webhook` and
    any library of Standard Webhooks verify them. The id is the same at each attempt. An answer from
    200 to 299 means that the notice is delivered. Redirects are not followed.

    Args:
        name: the name of the channel.
        url: the URL to post to.
        secrets: the keys of the signature: `"whsec_"` with base64, or any text of at least 16
            characters. With several keys each signs the message, so the receiver can change
            from one key to the next.
        headers: more headers to send.

    Raises:
        UsageError: if an argument is wrong.

    """

    def __init__(
        self,
        name: str,
        url: str,
        *,
        secrets: str | Sequence[str],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(name)
        self._url = checked_url(url, what="Webhook(url=...)")
        self._keys = _keys(secrets, what="Webhook(secrets=...)")
        self._headers = dict(headers or {})
        for key, value in self._headers.items():
            if not (key + value).isprintable() or not (key + value).isascii():
                raise UsageError(f"Webhook(headers=...) must be printable ASCII, got {shown(key)}")

    async def deliver(self, notice: Notice) -> str:
        message = {
            "type": f"request.{notice.what}",
            "timestamp": datetime.now(timezone.utc).isoformat(),
            "data": notice.to_dict(),
        }
        body = json.dumps(message, ensure_ascii=False).encode()
        at = str(int(wall_seconds()))
        headers = {
            **self._headers,
            "Content-Type": "application/json",
            "webhook-id": notice.id,
            "webhook-timestamp": at,
            "webhook-signature": " ".join(
                f"v1,{_signature(key, notice.id, at, body)}" for key in self._keys
            ),
        }
        answer = await post(self._url, body, headers)
        if not 200 <= answer.status < 300:
            raise DeliveryFailed(
                f"the server answered {answer.status}",
                is_final=answer.status == 410,
                after=retry_after(answer),
            )
        return ""


def verify_webhook(
    headers: Mapping[str, str],
    body: bytes,
    *,
    secrets: str | Sequence[str],
    now: float | None = None,
) -> dict[str, Any]:
    """Return the message of a webhook, if its signature fits one of the keys and it was sent
    recently.

    Args:
        headers: the headers of the request; case does not matter.
        body: the body of the request, byte for byte.
        secrets: the keys, as in `Webhook`.
        now: the time, in seconds since 1970; by default the time of this machine.

    Raises:
        UsageError: if the signature or the time does not fit, or a key is wrong.

    """
    keys = _keys(secrets, what="verify_webhook(secrets=...)")
    given = {name.lower(): value for name, value in headers.items()}
    id, at = given.get("webhook-id", ""), given.get("webhook-timestamp", "")
    if not at.isascii() or not at.isdecimal() or len(at) > 12:
        raise UsageError("the webhook has no timestamp: refuse it")
    if abs((wall_seconds() if now is None else now) - int(at)) > TOLERANCE:
        raise UsageError("the webhook was sent at another time: refuse it")
    wanted = [f"v1,{_signature(key, id, at, body)}".encode() for key in keys]
    sent = given.get("webhook-signature", "").split(" ")
    if not any(hmac.compare_digest(one.encode(), each) for one in sent for each in wanted):
        raise UsageError("the webhook is not signed by a key that is known here: refuse it")
    found: dict[str, Any] = json.loads(body)
    return found


def _signature(key: bytes, id: str, at: str, body: bytes) -> str:
    signed = hmac.digest(key, f"{id}.{at}.".encode() + body, hashlib.sha256)
    return base64.b64encode(signed).decode()


def _keys(secrets: str | Sequence[str], *, what: str) -> list[bytes]:
    given = [secrets] if isinstance(secrets, str) else secrets
    if not isinstance(given, Sequence) or not given:
        raise UsageError(f"{what} must be a secret, or several, got {type(secrets).__name__}")
    return [_key(each, what=what) for each in given]


def _key(secret: object, *, what: str) -> bytes:
    """The key in a secret. No error shows it."""
    if not isinstance(secret, str) or len(secret) < _SHORTEST:
        raise UsageError(f"{what}: a secret must be a text of at least {_SHORTEST} characters")
    if not secret.startswith(_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except ValueError:
        raise UsageError(f"{what}: what follows {_PREFIX!r} must be base64") from None

"""`Email`: notices as mail, by SMTP."""

from __future__ import annotations

import re
import smtplib
import ssl
from collections.abc import Callable, Sequence
from email.message import EmailMessage
from email.utils import formatdate
from typing import Literal, TypeAlias

from understudy._base.json_values import checked_callable, checked_text, shown
from understudy.errors import UsageError
from understudy.notify.channels import SECONDS, Channel, DeliveryFailed, threads
from understudy.notify.notice import TITLES, Notice, lines_of, plain, when_text

Recipients: TypeAlias = str | Sequence[str] | Callable[[Notice], str | Sequence[str]]
Tls = Literal["starttls", "implicit", "none"]
_ADDRESS = re.compile(
    r"[^\s@<>,;:\"\\()\[\]\x00-\x20\x7f-\xff]{1,64}@[A-Za-z0-9.-]{1,255}", re.ASCII
)


class Email(Channel):
    """A channel that mails notices as plain text, with a link to the page of the request.

    The link itself decides nothing. The `Message-ID` is the same at each attempt, so most mail
    programs show a mail once.

    Args:
        name: the name of the channel.
        to: an address, or several; or a function that takes a `Notice` and returns them, for
            example by its `audience`.
        sender: the address of the sender.
        host, port: the SMTP server.
        user, password: the login at the SMTP server.
        tls: `"starttls"`; `"implicit"`, mostly at port 465; or `"none"`, for a server on this
            machine.
        context: the TLS context; by default the certificates of this machine are trusted.

    Raises:
        UsageError: if an argument is wrong.

    """

    def __init__(
        self,
        name: str,
        to: Recipients,
        *,
        sender: str,
        host: str,
        port: int = 587,
        user: str = "",
        password: str = "",
        tls: Tls = "starttls",
        context: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(name)
        if callable(to):
            checked_callable(to, what="Email(to=...)", takes="of a Notice")
        else:
            _addresses(to, what="Email(to=...)")
        (self._sender,) = _addresses(sender, what="Email(sender=...)")
        if tls not in ("starttls", "implicit", "none"):
            raise UsageError(
                f"Email(tls=...) is 'starttls', 'implicit' or 'none', got {shown(tls)}"
            )
        if user and tls == "none":
            raise UsageError("Email(tls='none') would send the password in the clear")
        self._to = to
        self._host = checked_text(host, what="Email(host=...)")
        self._port = port
        self._login = (user, password) if user else None
        self._tls = tls
        self._context = context

    async def deliver(self, notice: Notice) -> str:
        given = self._to(notice) if callable(self._to) else self._to
        to = _addresses(given, what="Email(to=...): the function")
        message = self._message(notice, to)
        try:
            refused = await threads.run(self._send, message, to)
        except smtplib.SMTPResponseException as error:
            said = plain(_text(error.smtp_error))
            is_final = 500 <= error.smtp_code < 600
            raise DeliveryFailed(f"{error.smtp_code} {said}"[:300], is_final=is_final) from error
        except smtplib.SMTPRecipientsRefused as error:
            raise _refused(error.recipients) from error
        except (OSError, smtplib.SMTPException) as error:
            raise DeliveryFailed(f"the mail was not taken: {error}"[:300]) from error
        if refused:  # other recipients have it: another attempt would mail them again
            raise _refused(refused, is_final=True)
        return ""

    def _message(self, notice: Notice, to: Sequence[str]) -> EmailMessage:
        request = notice.request
        message = EmailMessage()
        message["Subject"] = f"{TITLES[notice.what]}{notice.title}"[:200]
        message["From"], message["To"] = self._sender, ", ".join(to)
        message["Date"] = formatdate()
        message["Message-ID"] = f"<{notice.id}@{self._sender.rpartition('@')[2]}>"
        message["Auto-Submitted"] = "auto-generated"
        message["X-Understudy-Notice"] = notice.id
        lines = [f"{TITLES[notice.what]}{notice.title}", ""]
        if notice.shown:
            lines += [lines_of(dict(notice.shown)), ""]
        lines.append(f"Agent: {plain(notice.agent_id)} ({plain(notice.agent)})")
        lines.append(f"Asked: {when_text(request.created_at)}")
        if request.expires_at is not None:
            lines.append(f"Expires: {when_text(request.expires_at)}")
        if notice.url:
            lines += ["", "Look at it, and decide:", notice.url]
        message.set_content("\n".join(lines) + "\n")
        return message

    def _send(self, message: EmailMessage, to: Sequence[str]) -> dict[str, tuple[int, bytes]]:
        """Send the mail. Returns the refused recipients."""
        if self._tls == "implicit":
            context = self._context or ssl.create_default_context()
            server: smtplib.SMTP = smtplib.SMTP_SSL(
                self._host, self._port, timeout=SECONDS, context=context
            )
        else:
            server = smtplib.SMTP(self._host, self._port, timeout=SECONDS)
        with server:
            if self._tls == "starttls":
                server.starttls(context=self._context or ssl.create_default_context())
            if self._login is not None:
                server.login(*self._login)
            return server.send_message(message, self._sender, list(to))


def _refused(recipients: dict[str, tuple[int, bytes]], *, is_final: bool = False) -> DeliveryFailed:
    """The failure of a mail with refused recipients."""
    who, (code, _) = next(iter(recipients.items()))
    is_final = is_final or all(each >= 500 for each, _ in recipients.values())
    why = f"{len(recipients)} refused, first {plain(who)}: {code}"
    return DeliveryFailed(why, is_final=is_final)


def _text(said: bytes | str) -> str:
    return said.decode("utf-8", "replace") if isinstance(said, bytes) else said


def _addresses(given: str | Sequence[str], *, what: str) -> list[str]:
    found = [given] if isinstance(given, str) else list(given)
    for each in found:
        if not isinstance(each, str) or not _ADDRESS.fullmatch(each):
            raise UsageError(
                f"{what} must be mail addresses such as ann@example.com, got {shown(each)}"
            )
    if not found:
        raise UsageError(f"{what} must be at least one mail address")
    return found

"""Codecs: what is captured, what is refused, and what holds in the block (J90)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.tenants import TENANT, tenant
from understudy import ContextCodec, ContextVarCodec, Runtime, UsageError
from understudy._base.context_codecs import MAX_CHARACTERS, ContextCodecs


class Codec:
    """One that captures what it is told, and notes what is applied."""

    def __init__(self, name: Any = "note", captured: Any = None) -> None:
        self.name = name
        self.captured = captured
        self.notes: list[str] = []

    def capture(self) -> Any:
        if isinstance(self.captured, BaseException):
            raise self.captured
        return self.captured

    @contextmanager
    def apply(self, value: str) -> Iterator[None]:
        self.notes.append(f"+{value}")
        yield
        self.notes.append(f"-{value}")


def test_a_variable_is_captured_and_applied() -> None:
    codecs = ContextCodecs([TENANT])
    token = tenant.set("acme")
    captured = codecs.capture()
    tenant.reset(token)
    assert captured == {"tenant": "acme"}
    with codecs.applied(captured):
        assert tenant.get() == "acme"
    assert tenant.get() == "nobody"


def test_the_default_of_a_variable_is_not_carried() -> None:
    assert ContextCodecs([TENANT]).capture() == {}


def test_a_codec_is_told_when_the_block_is_left_whatever_it_raises() -> None:
    codec = Codec(captured="a")
    codecs = ContextCodecs([codec])
    with pytest.raises(KeyboardInterrupt), codecs.applied(codecs.capture()):
        raise KeyboardInterrupt
    assert codec.notes == ["+a", "-a"]


def test_what_no_codec_knows_is_kept_for_the_calls_of_the_block() -> None:
    here = ContextCodecs([Codec("known", "new")])
    with here.applied({"known": "old", "unknown": "kept"}):
        assert here.capture() == {"known": "new", "unknown": "kept"}
        assert ContextCodecs().capture() == {"known": "old", "unknown": "kept"}
    assert here.capture() == {"known": "new"}


def test_a_codec_that_captures_nothing_any_more_takes_its_value_away() -> None:
    here = ContextCodecs([Codec("known", None)])
    with here.applied({"known": "old"}):
        assert here.capture() == {}


@pytest.mark.parametrize(
    ("captured", "why"),
    [
        (5, "must be text, got 5"),
        (b"acme", "must be text"),
        ("x" * (MAX_CHARACTERS + 1), "4,097 characters"),
        ("\ud800", "not valid Unicode"),
        (ValueError("no tenant"), "raised ValueError: no tenant"),
    ],
)
def test_a_value_that_cannot_be_kept_is_refused_at_the_caller(captured: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why) as raised:
        ContextCodecs([Codec(captured=captured)]).capture()
    assert "the context codec 'note'" in str(raised.value)


def test_text_of_any_letters_is_kept() -> None:
    for text in ("", "\0", "ü\n", "x" * MAX_CHARACTERS):
        assert ContextCodecs([Codec(captured=text)]).capture() == {"note": text}


async def _async_apply(_value: str) -> None: ...


def _broken(**fields: Any) -> Any:
    codec = Codec()
    for name, value in fields.items():
        setattr(codec, name, value)
    return codec


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("tenant", "must be a list of codecs"),
        (5, "must be a list of codecs"),
        ([tenant], "takes codecs, with a name"),
        ([object()], "takes codecs, with a name"),
        ([ContextVarCodec], "takes codecs, with a name"),
        ([Codec(name="")], "`name`"),
        ([Codec(name=3)], "`name`"),
        ([Codec("a"), Codec("b"), Codec("a")], "two codecs named 'a'"),
        ([_broken(apply=_async_apply)], "must not be async"),
    ],
)
def test_what_cannot_be_the_codecs_of_a_runtime_is_refused_at_once(given: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        Runtime([], context=given)


@pytest.mark.parametrize(("variable", "name"), [("tenant", None), (tenant, ""), (tenant, 5)])
def test_what_cannot_be_a_codec_of_a_variable_is_refused(variable: Any, name: Any) -> None:
    with pytest.raises(UsageError, match="ContextVarCodec"):
        ContextVarCodec(variable, name=name)


def test_a_codec_that_cannot_be_applied_lets_nothing_run() -> None:
    first, broken = Codec("first"), _broken(name="broken", apply=lambda value: 1 / 0)
    codecs = ContextCodecs([first, broken])
    with (
        pytest.raises(UsageError, match=r"'broken': apply\(\) raised ZeroDivisionError"),
        codecs.applied({"first": "a", "broken": "b"}),
    ):
        pytest.fail("it must not run")
    assert first.notes == ["+a", "-a"]


def test_where_something_must_end_it_runs_without_that_codec(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first, broken = Codec("first"), _broken(name="broken", apply=lambda value: 1 / 0)
    with ContextCodecs([broken, first]).applied({"first": "a", "broken": "b"}, is_strict=False):
        assert first.notes == ["+a"]
    assert "broken" in caplog.text


def test_a_codec_that_fails_when_it_is_left_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Fails(Codec):
        @contextmanager
        def apply(self, value: str) -> Iterator[None]:
            yield
            raise ValueError(value)

    with caplog.at_level(logging.ERROR), ContextCodecs([Fails()]).applied({"note": "a"}):
        pass
    assert "the context codec 'note' raised when it was left" in caplog.text


def test_a_codec_of_your_own_needs_three_members() -> None:
    codec: ContextCodec = Codec(captured="a")
    assert ContextCodecs([codec]).capture() == {"note": "a"}

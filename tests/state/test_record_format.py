"""The fingerprint of what is stored: any other field of a record is another format."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Literal

import pytest
from pydantic_ai.messages import ModelResponse

from understudy.interrupts import Decision
from understudy.state.plans import Occurrence
from understudy.state.record_format import format_of, record_format

Word = Literal["a", "b"]
OtherWord = Literal["a", "b", "c"]


class Colour(Enum):
    RED = "red"


class OtherColour(Enum):
    RED = "red"
    BLUE = "blue"


Decisions = tuple[Decision, ...]


@dataclass(kw_only=True)
class Fact:
    text: str
    at: datetime | None = None
    count: int = 1
    word: Word = "a"
    colour: Colour | None = None
    decisions: Decisions = ()
    answers: dict[str, Decision] = field(default_factory=dict)
    reply: ModelResponse | None = None
    kind: Literal["fact"] = "fact"


@dataclass(kw_only=True)
class SameFactElsewhere:
    """In another order, under another name, and with a field that its base has."""

    kind: Literal["fact"] = "fact"
    reply: ModelResponse | None = None
    answers: dict[str, Decision] = field(default_factory=dict)
    decisions: Decisions = ()
    colour: Colour | None = None
    word: Word = "a"
    count: int = 1
    at: datetime | None = None
    text: str


@dataclass(kw_only=True)
class Renamed(Fact):
    other: str


@dataclass(kw_only=True)
class OtherKind(Fact):
    kind: Literal["other"] = "other"  # type: ignore[assignment]


@dataclass(kw_only=True)
class OtherType(Fact):
    text: bytes  # type: ignore[assignment]


@dataclass(kw_only=True)
class OtherDefault(Fact):
    count: int = 2


@dataclass(kw_only=True)
class NewDefault(Fact):
    text: str = ""


@dataclass(kw_only=True)
class OtherWords(Fact):
    word: OtherWord = "a"  # type: ignore[assignment]


@dataclass(kw_only=True)
class OtherColours(Fact):
    colour: OtherColour | None = None  # type: ignore[assignment]


@dataclass(kw_only=True)
class OtherInside(Fact):
    answers: dict[str, Occurrence] = field(default_factory=dict)  # type: ignore[assignment]


OTHERS = [
    Renamed,
    OtherKind,
    OtherType,
    OtherDefault,
    NewDefault,
    OtherWords,
    OtherColours,
    OtherInside,
]


@pytest.mark.parametrize("other", OTHERS)
def test_another_field_kind_type_default_or_word_is_another_format(other: type) -> None:
    """J96."""
    assert format_of([other]) != format_of([Fact])


def test_names_of_classes_and_the_order_of_fields_do_not_count() -> None:
    """J96: a class may be moved or renamed, and every store is read as before."""
    assert format_of([SameFactElsewhere]) == format_of([Fact])


def test_a_kind_more_or_a_part_more_of_the_state_is_another_format() -> None:
    assert format_of([Fact, OtherKind]) != format_of([Fact])
    assert format_of([OtherKind, Fact]) == format_of([Fact, OtherKind])
    assert format_of([Fact], also=["plans"]) != format_of([Fact])


def test_what_a_class_inside_has_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """J96: `Decision` is no record, and is stored in some."""
    before = format_of([Fact])
    (told,) = (each for each in Decision.__dataclass_fields__.values() if each.name == "message")
    monkeypatch.setattr(told, "default", "none was given")
    assert format_of([Fact]) != before


def test_the_format_of_the_records_is_computed_once() -> None:
    assert record_format() is record_format()

"""Which arguments may differ between two calls that mean the same (T13)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Annotated, Any
from uuid import UUID, uuid4

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from understudy import ToolContext, tool
from understudy.tools import Tool
from understudy.tools.varying import varying_arguments


def new_reference() -> str:
    return uuid4().hex


class Order(BaseModel):
    id: str
    lines: list[str] = Field(default_factory=list)


class Parcel(BaseModel):
    weight: float
    label: str = Field(default_factory=new_reference)
    inside: list[Parcel] = []


@dataclass
class Note:
    text: str
    id: str = field(default_factory=new_reference)


class Slot(TypedDict):
    day: date


class Deps(BaseModel):
    session: str = Field(default_factory=new_reference)


def plain(name: str, count: int = 3, order: Order | None = None) -> None: ...
def at_a_time(at: datetime) -> None: ...
def on_a_day(day: date | None = None) -> None: ...
def inside(slots: list[Slot]) -> None: ...
def for_so_long(length: timedelta) -> None: ...
def with_a_uuid(id: UUID, name: str) -> None: ...
def with_a_factory(reference: Annotated[str, Field(default_factory=new_reference)]) -> None: ...
def with_a_default(reference: str = Field(default_factory=new_reference)) -> None: ...
def with_one_model(parcel: Parcel) -> None: ...
def with_models(parcels: dict[str, Parcel], note: Note) -> None: ...
def with_a_context(ctx: ToolContext[Deps], amount: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (plain, {}),
        (at_a_time, {"at": "a time"}),
        (on_a_day, {"day": "a time"}),
        (inside, {"slots": "a time"}),
        (for_so_long, {}),
        (with_a_uuid, {"id": "a UUID"}),
        (with_a_factory, {"reference": "made by a factory"}),
        (with_a_default, {"reference": "made by a factory"}),
        # Of a function with one model, the fields of that are the arguments.
        (with_one_model, {"label": "made by a factory", "inside": "made by a factory"}),
        (with_models, {"parcels": "made by a factory", "note": "made by a factory"}),
        (with_a_context, {}),  # what the tool gets from the program is no argument
    ],
)
def test_times_uuids_and_what_a_factory_makes_vary(
    function: Callable[..., Any], found: dict[str, str]
) -> None:
    assert varying_arguments(tool(function)) == found


def test_the_formats_of_a_schema_tell_it_too() -> None:
    schema = {
        "type": "object",
        "properties": {
            "at": {"$ref": "#/$defs/At"},
            "id": {"type": "string", "format": "uuid"},
            "mail": {"type": "string", "format": "email", "default": {"format": "date"}},
        },
        "$defs": {"At": {"type": "string", "format": "date-time"}},
    }

    def book(arguments: dict[str, Any]) -> str:
        return "booked"

    found = varying_arguments(Tool.from_schema("book", "Book a room.", schema, book))
    assert found == {"at": "a time", "id": "a UUID"}

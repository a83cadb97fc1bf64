"""`quickly_made`: what it leaves of a frozen dataclass as it was."""

import copy
import dis
import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, fields, replace
from typing import Any

import pydantic
import pytest

from understudy._base.quickly_made import quickly_made


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    at: float | None = None


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Quick(Timed):
    name: str
    size: int = 1


@quickly_made
@dataclass(frozen=True, slots=True)
class Positional:
    name: str
    size: int = 1


class Labelled(Quick):
    def label(self) -> str:
        return f"{self.name} {self.size}"


class Checked(Positional):
    __slots__ = ()

    def __init__(self, name: str) -> None:
        super().__init__(name.strip(), size=len(name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow(Timed):
    name: str
    size: int = 1


def test_an_object_has_the_values_that_it_was_made_with_and_the_defaults() -> None:
    assert Quick(name="a", at=2.0) == Quick(name="a", size=1, at=2.0) != Quick(name="a", size=2)
    assert hash(Quick(name="a")) == hash(Quick(name="a"))
    assert repr(Quick(name="a")) == repr(Slow(name="a")).replace("Slow", "Quick")
    assert Positional("a", 2) == Positional(name="a", size=2)


def test_it_is_of_its_class_and_cannot_be_changed() -> None:
    made = Quick(name="a")
    assert type(made) is Quick
    assert isinstance(made, Timed)
    assert not hasattr(made, "__dict__")
    with pytest.raises(FrozenInstanceError):
        made.name = "b"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del made.at
    with pytest.raises((AttributeError, TypeError)):
        made.other = 1  # type: ignore[attr-defined]


def test_its_signature_and_the_errors_of_a_call_are_those_of_the_dataclass() -> None:
    assert inspect.signature(Quick) == inspect.signature(Slow)
    calls: list[dict[str, Any]] = [{}, {"name": "a", "other": 1}]
    for arguments in calls:
        errors = []
        for kind in (Quick, Slow):
            with pytest.raises(TypeError) as raised:
                kind(**arguments)
            errors.append(str(raised.value).replace("Slow", "Quick"))
        assert errors[0] == errors[1]


def test_a_subclass_makes_objects_of_its_own() -> None:
    labelled = Labelled(name="a", at=2.0)
    assert type(labelled) is Labelled
    assert (labelled.label(), labelled.at) == ("a 1", 2.0)
    checked = Checked(" b ")
    assert type(checked) is Checked
    assert (checked.name, checked.size) == ("b", 3)
    with pytest.raises(FrozenInstanceError):
        checked.name = "c"  # type: ignore[misc]


def test_copies_pickles_and_pydantic_make_it_as_any_other() -> None:
    made = Quick(name="a", size=3)
    assert replace(made, size=4) == Quick(name="a", size=4)
    assert copy.deepcopy(made) == copy.copy(made) == pickle.loads(pickle.dumps(made)) == made
    adapter = pydantic.TypeAdapter(Quick)
    read = adapter.validate_python(adapter.dump_python(made))
    assert read == made
    assert type(read) is Quick


def test_its_fields_are_set_by_the_quickest_instruction() -> None:
    for number in range(100):  # the interpreter chooses it when it has seen some objects
        Quick(name="a", size=number)
    used = [each.opname for each in dis.get_instructions(Quick.__init__, adaptive=True)]
    assert used.count("STORE_ATTR_SLOT") == len(fields(Quick))


def test_what_it_could_not_keep_as_it_is_is_refused() -> None:
    with pytest.raises(AssertionError, match="would not be called"):

        @quickly_made
        @dataclass(frozen=True, slots=True)
        class WithCheck:
            name: str

            def __post_init__(self) -> None:
                raise AssertionError("called")

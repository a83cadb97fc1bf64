"""What may be imported is what `__all__` says, and it says all of it."""

import importlib
import pkgutil
import types

import pytest

import understudy

ROOMS = [
    "understudy",
    "understudy.actors",
    "understudy.loop_actors.supervisor",
    "understudy.journal",
    "understudy.middleware",
    "understudy.modes",
    "understudy.tools",
]
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(understudy.__path__, "understudy.")
    if not module.name.rpartition(".")[2].startswith("_")
)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_exports_all_of_its_public_names_and_no_other(room: str) -> None:
    module = importlib.import_module(room)
    public = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert set(module.__all__) == public


@pytest.mark.parametrize("name", ["understudy", *MODULES])
def test_what_a_module_exports_is_there_sorted_and_named_once(name: str) -> None:
    module = importlib.import_module(name)
    exported = module.__all__
    assert exported == sorted(set(exported))
    assert [missing for missing in exported if not hasattr(module, missing)] == []
    assert [hidden for hidden in exported if hidden.startswith("_")] == []


@pytest.mark.parametrize("name", MODULES)
def test_a_module_exports_only_what_it_defines_itself(name: str) -> None:
    """A name has one home; only rooms hand on what lives in another module."""
    module = importlib.import_module(name)
    if hasattr(module, "__path__"):
        return
    homes = {
        exported: getattr(getattr(module, exported), "__module__", name)
        for exported in module.__all__
    }
    foreign = {
        e: home for e, home in homes.items() if home.startswith("understudy.") and home != name
    }
    assert foreign == {}


def test_a_star_import_brings_exactly_what_is_exported() -> None:
    namespace: dict[str, object] = {}
    exec("from understudy import *", namespace)
    del namespace["__builtins__"]
    assert sorted(namespace) == understudy.__all__

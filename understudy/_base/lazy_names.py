"""Names of a package whose modules are loaded when one of them is first asked for."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def load_lazily(
    package: str, modules: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and the `__dir__` of a package.

    Args:
        package: its name.
        modules: the names that it has from each module.

    """
    module_of = {name: module for module, names in modules.items() for name in names}
    namespace = vars(sys.modules[package])

    def getattribute(name: str) -> Any:
        module = module_of.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
        value = namespace[name] = getattr(importlib.import_module(module), name)
        return value

    return getattribute, lambda: sorted({*namespace, *module_of})

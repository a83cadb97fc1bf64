"""Names of a package whose modules are loaded when one of them is first asked for."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def load_lazily(
    package: str, modules: Mapping[str, Sequence[str]], *, whole: str | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and the `__dir__` of a package.

    Args:
        package: its name.
        modules: the names that it has from each module.
        whole: a module that loads the modules of the package that a plain import of it stands for:
            they are attributes of the package too, as `understudy.errors` is.

    """
    module_of = {name: module for module, names in modules.items() for name in names}
    namespace = vars(sys.modules[package])

    def getattribute(name: str) -> Any:
        module = module_of.get(name)
        if module is not None:
            value = namespace[name] = getattr(importlib.import_module(module), name)
            return value
        if whole is not None and not name.startswith("__"):
            importlib.import_module(whole)
            if name in namespace:
                return namespace[name]
        raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)

    return getattribute, lambda: sorted({*namespace, *module_of})

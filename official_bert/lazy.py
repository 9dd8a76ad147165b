"""Layers, tokenizers and readers that families and formats name: each is imported on first use, as `lazy.pyi` lists.

Editors and type checkers read that list as imports. This is the only place from which an import leads downwards.
"""

import importlib
import re
from importlib.machinery import ModuleSpec
from typing import Any


def listed_names(spec: ModuleSpec) -> dict[str, str]:
    """Return the names in the `.pyi` file of a module, each with the module that defines it."""
    stub = spec.loader.get_data(f"{spec.origin}i").decode()
    return {name: module for module, name in re.findall(r"from (\S+) import (\w+)", stub)}


_MODULES = listed_names(__spec__)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(_MODULES[name])
    value = getattr(module, name, None) or importlib.import_module(f"{module.__name__}.{name}")
    return globals().setdefault(name, value)

"""Shelves: folders in which each file is one plugin and the file's name is its name.

A new engine, structure or source is one new file on its shelf;
nothing central is edited. Names that begin with an underscore are not plugins.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

from draftmill.errors import RecipeError


def names(shelf: str) -> list[str]:
    """The plugins on a shelf, sorted: `names("engines") == ["sglang", "vllm"]`."""
    package = importlib.import_module(f"draftmill.{shelf}")
    return sorted(m.name for m in pkgutil.iter_modules(package.__path__) if not m.name.startswith("_"))


def load(shelf: str, name: str) -> ModuleType:
    """The plugin's module. Raises RecipeError with the list of known names when there is none."""
    known = names(shelf)
    if name not in known:
        raise RecipeError(
            f"no plugin of that name on the shelf {shelf}",
            value=name,
            expected=f"one of: {', '.join(known)}",
            remedy=f"correct the name, or add draftmill/{shelf}/{name}.py",
        )
    return importlib.import_module(f"draftmill.{shelf}.{name}")

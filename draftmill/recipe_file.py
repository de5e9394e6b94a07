"""A recipe's YAML: read, with changes on top, and every fault explained.

A change is one `key=value`: of the command line's `--set`, or of a flow's parameter
`changes`. A message names the key as the author wrote it, the value, what is known or
allowed; never a value that may hold a secret.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from draftmill.errors import RecipeError
from draftmill.recipe import Recipe, anchored


def load_recipe(path: str | Path, assignments: tuple[str, ...] = ()) -> Recipe:
    """The recipe in a YAML file, with `key=value` assignments on top; paths are absolute.

    Raises RecipeError when the file is missing, is not YAML, has an unknown key or a wrong value.
    """
    file = Path(path)
    if not file.is_file():
        raise RecipeError(
            "no such recipe",
            value=file.absolute(),
            expected="a YAML file; a relative path begins where the command, or the worker, was started",
            remedy="correct the path; deployments/recipes/ has complete ones",
        )
    try:
        data = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RecipeError(
            f"{path} is not YAML", value=_yaml_words(error), expected="a mapping of keys", remedy="correct the file"
        ) from None
    if not isinstance(data, dict):
        raise RecipeError(
            f"{path} is not a recipe",
            value=type(data).__name__,
            expected="a mapping of keys",
            remedy="see docs/recipe.md",
        )
    return changed_recipe(data, assignments, origin=str(path))


def changed_recipe(data: dict[str, Any], assignments: Iterable[str], *, origin: str) -> Recipe:
    """A mapping with `key=value` assignments on top, as a Recipe with absolute paths. Raises RecipeError.

    The mapping stays as it is.
    """
    data = copy.deepcopy(data)
    for assignment in assignments:
        assign(data, assignment)
    return anchored(parse_recipe(data, origin=origin))


def parse_recipe(data: dict[str, Any], *, origin: str) -> Recipe:
    """A mapping as a Recipe. Raises RecipeError naming the first wrong key, its value and what is known."""
    try:
        return Recipe.model_validate(data)
    except ValidationError as error:
        raise _explain(error, origin) from None


def _explain(error: ValidationError, origin: str) -> RecipeError:
    errors = error.errors(include_url=False)
    # An unknown key first: it is usually the cause of a missing one.
    first = next((e for e in errors if e["type"] == "extra_forbidden"), errors[0])
    parts = [str(part) for part in first["loc"] if not _UNION_TAG.match(str(part))]
    # `model.date.date`: the second is the branch of the union, of the same name as the key.
    location = [part for part, before in zip(parts, [None, *parts], strict=False) if part != before]
    key = ".".join(location) or "the recipe"
    more = "" if len(errors) == 1 else f" (and {len(errors) - 1} more)"
    if first["type"] == "extra_forbidden":
        return RecipeError(
            f"unknown key in {origin}{more}",
            value=key,
            expected=f"one of: {', '.join(_known_keys(location[:-1]))}",
            remedy="remove or correct the key; docs/recipe.md has them all",
        )
    if first["type"] == "missing":
        return RecipeError(
            f"missing key in {origin}{more}",
            value=key,
            expected="a value",
            remedy="add it; docs/recipe.md says what it means",
        )
    same_key = [e for e in errors if e["loc"][: len(location)] == first["loc"][: len(location)]]
    expected = " or ".join(dict.fromkeys(e["msg"].removeprefix("Value error, ") for e in same_key))
    shown = "" if _secret_or_long(location, first["input"]) else f" = {first['input']!r}"
    return RecipeError(
        f"wrong value in {origin}{more}",
        value=f"{key}{shown}",
        expected=expected,
        remedy="correct it; docs/recipe.md has each key's range",
    )


_UNION_TAG = re.compile(r"(function-|literal\[|constrained-|list\[|(str|int|float|Breaker)$)")
"""What pydantic puts into a location for the branch of a union it tried: no key of the recipe."""


def _secret_or_long(location: list[str], value: object) -> bool:
    # A URL may hold a password, a wrong api_key_env is often the key, and a mapping is too long to show.
    return isinstance(value, dict) or "urls" in location or "api_key_env" in location or "://" in repr(value)


def _known_keys(location: list[str]) -> list[str]:
    part: type[BaseModel] = Recipe
    for name in location:
        field = part.model_fields.get(name)
        kinds = [] if field is None else [field.annotation, *getattr(field.annotation, "__args__", ())]
        part = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), part)
    return sorted(part.model_fields)


def _yaml_words(error: Exception) -> str:
    # The message's own excerpt of the file is left out: it may hold a secret.
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return f"{place}{problem or type(error).__name__}"


def assign(data: dict[str, Any], assignment: str) -> None:
    """Put one `key=value` into a recipe's mapping. Raises RecipeError."""
    key, separator, text = assignment.partition("=")
    if not separator or not key:
        raise RecipeError(
            "a change is key=value",
            value=key or "=",
            expected="for example sampling.temperature=0.6",
            remedy="correct it (--set, or the parameter `changes`)",
        )
    *parents, last = key.split(".")
    for parent in parents:
        if data.get(parent) is None:
            data[parent] = {}
        data = data[parent]
        if not isinstance(data, dict):
            raise RecipeError(
                "a change names a key inside a value",
                value=key,
                expected=f"{parent} to be a mapping",
                remedy="correct the key",
            )
    try:
        data[last] = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise RecipeError(
            f"a change has a value that is not YAML: {_yaml_words(error)}",
            value=key,
            expected="a YAML value",
            remedy="quote it",
        ) from None

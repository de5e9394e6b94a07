"""What the forms ask for: the parameters of the flows, and the recipe they come to.

Prefect makes a form of a flow's signature, and refuses what does not fit its schema
before a run exists; what a schema cannot say is refused by the run, in draftmill's
four parts. A parameter is stored and shown, so none can hold a secret.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, GetJsonSchemaHandler
from pydantic_core import CoreSchema

from draftmill.errors import RecipeError
from draftmill.pilot.strata import ROWS_AT_MOST
from draftmill.plugins import names
from draftmill.recipe import Recipe
from draftmill.recipe_fields import SECRET_URL, Location, Schema, in_schema, say_plainly
from draftmill.recipe_file import changed_recipe, load_recipe
from draftmill.records import OF_AN_ANSWER

CHANGE = r"^(?!engine=|(?!engine\.api_key_env=)[\s\S]*api_key_env|engine\.api_key_env=(?![A-Za-z_]\w*$))[^=\s]+="
"""key=value; of a key's variable its name, as in a recipe, by its own key: inside a mapping it is not seen."""

UNTIL = r"^(([01]?[0-9]|2[0-3]):[0-5][0-9]|(?=[0-9])([0-9]{1,4}h)?([0-9]{1,6}m)?([0-9]{1,8}s)?)$"


class _Plain:
    """Says of a union which value is wrong, and what is allowed (`recipe_fields.say_plainly`)."""

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> Schema:
        schema = handler(core_schema)
        say_plainly(schema, handler)
        return schema


def _reason(value: str) -> str:
    if value not in OF_AN_ANSWER:
        raise ValueError(f"no reason code of an answer; known: {', '.join(OF_AN_ANSWER)}")
    return value


_Reason = Annotated[str, AfterValidator(_reason), in_schema(enum=[*OF_AN_ANSWER])]
_Change = Annotated[str, in_schema(pattern=CHANGE, not_=SECRET_URL)]
_Until = Annotated[str, in_schema(pattern=UNTIL)]


def _exporter(value: str) -> str:
    if value not in EXPORTERS:
        raise ValueError(f"no exporter of that name; known: {', '.join(EXPORTERS)}")
    return value


EXPORTERS = names("exporters")

Dataset = Location
Datasets = Annotated[list[Location], Field(min_length=1)]
Exporter = Annotated[str, AfterValidator(_exporter), in_schema(enum=EXPORTERS)]
Length = Annotated[Annotated[int, Field(ge=2)] | None, _Plain()]
Seed = Annotated[int | None, _Plain()]
Weights = Annotated[list[Annotated[float, Field(ge=0.0)]] | None, _Plain()]
RecipeForm = Annotated[Recipe | None, _Plain()]
RecipeFile = Annotated[Location | None, _Plain()]
Changes = Annotated[list[_Change] | None, _Plain()]
Reasons = Annotated[list[_Reason] | None, _Plain()]
Until = Annotated[_Until | None, _Plain()]
PilotRows = Annotated[Annotated[int, Field(ge=1, le=ROWS_AT_MOST)] | None, _Plain()]
Gpus = Annotated[Annotated[float, Field(gt=0, le=100_000)] | None, _Plain()]
Width = Annotated[Annotated[int, Field(ge=1, le=1_000_000)] | None, _Plain()]


async def chosen_recipe(recipe: Recipe | None, recipe_file: str | None, changes: Sequence[str] | None) -> Recipe:
    """The one that is given, with the changes on top and absolute paths. Raises RecipeError for both or none."""
    if (recipe is None) == (recipe_file is None):
        raise RecipeError(
            "a run takes one recipe",
            value="neither recipe nor recipe_file" if recipe is None else "both recipe and recipe_file",
            expected="recipe (the whole of it) or recipe_file (a YAML file the worker can read)",
            remedy="fill in one of the two, and put single values on top with changes: sampling.temperature=0.6",
        )
    if recipe is not None:
        return changed_recipe(recipe.model_dump(), changes or (), origin="the parameters")
    assert recipe_file is not None, "one of the two is given"
    return await asyncio.to_thread(load_recipe, recipe_file, tuple(changes or ()))


def recipe_label(recipe: Recipe | None, recipe_file: str | None) -> str:
    """What a run is called before its recipe is read: the dataset's last segment, or the file's name."""
    return recipe.label if recipe else Path(recipe_file or "").stem

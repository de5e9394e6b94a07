"""The form is the recipe: its schema says all of it, and what does not fit is refused before a run exists.

Nothing here lists the recipe's fields: they are read from draftmill.recipe, so that a
new one without bounds, choices or a description fails.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin
from urllib.parse import urlsplit

import annotated_types as bounds
import pytest
from jsonschema.exceptions import best_match
from jsonschema.validators import Draft202012Validator
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.exceptions import PrefectHTTPStatusError
from prefect.settings import PREFECT_API_DATABASE_CONNECTION_URL
from prefect.utilities.callables import parameter_schema
from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from draftmill import plugins
from draftmill.errors import RecipeError
from draftmill.recipe import Recipe
from draftmill.recipe_file import load_recipe, parse_recipe
from draftmill.records import OF_AN_ANSWER
from flows.fan_out import fan_out
from flows.pilot import pilot
from flows.refresh import refresh
from flows.rerun import rerun
from tests.mill import Mill

FORMS = [refresh, fan_out, pilot]
"""The flows whose form has a recipe."""

RECIPES = sorted((Path(__file__).parents[2] / "deployments" / "recipes").glob("*.yaml"))

WRONG = [None, -3, 0, 0.5, 10**9, "", "no such: thing", [], [{}], [""], {"no": "such"}, True]
"""For each field some of these are wrong: which, the recipe itself says."""

BOUNDS = {
    bounds.Ge: ("minimum", "ge"),
    bounds.Gt: ("exclusiveMinimum", "gt"),
    bounds.Le: ("maximum", "le"),
    bounds.Lt: ("exclusiveMaximum", "lt"),
}


@cache
def schema(flow: Any = refresh) -> dict[str, Any]:
    return parameter_schema(flow).model_dump_for_openapi()


def parts_of(annotation: Any) -> Iterator[type[BaseModel]]:
    """The parts of a recipe that are in a type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from parts_of(inner)


def all_parts(part: type[BaseModel] = Recipe) -> set[type[BaseModel]]:
    inner = {found for field in part.model_fields.values() for found in parts_of(field.annotation)}
    return {part}.union(*(all_parts(each) for each in inner))


def metadata(annotation: Any) -> Iterator[Any]:
    """What stands in the Annotated's of a type."""
    for each in getattr(annotation, "__metadata__", ()):
        yield from each.metadata if isinstance(each, FieldInfo) else [each]
    for inner in get_args(annotation):
        yield from metadata(inner)


def literals(annotation: Any) -> set[Any]:
    if get_origin(annotation) is Literal:
        return set(get_args(annotation))
    return set().union(*(literals(inner) for inner in get_args(annotation)))


def types(annotation: Any) -> set[Any]:
    return {annotation}.union(*(types(inner) for inner in get_args(annotation)))


def said(field: Any) -> Iterator[tuple[str, Any]]:
    """Every keyword in a field's schema with its value, but for a default."""
    for key, value in field.items() if isinstance(field, dict) else ():
        if key != "default":
            yield key, value
            for inner in value if isinstance(value, list) else [value]:
                yield from said(inner)


FIELDS = [(part, name) for part in sorted(all_parts(), key=lambda part: part.__name__) for name in part.model_fields]


@pytest.mark.parametrize(("part", "name"), FIELDS, ids=lambda value: getattr(value, "__name__", value))
def test_the_schema_says_all_of_a_field(part: type[BaseModel], name: str) -> None:
    field = part.model_fields[name]
    in_form = schema()["definitions"][part.__name__]["properties"][name]
    described = {**schema()["definitions"].get(in_form.get("$ref", "").rpartition("/")[2], {}), **in_form}
    assert in_form["title"] == name
    assert len(described["description"]) > 4, f"{name} has no description"
    assert described["description"] != "(identity)"
    assert ("default" in in_form) == (not field.is_required())
    if not field.is_required():
        default = TypeAdapter(Any).dump_python(field.get_default(call_default_factory=True), mode="json")
        assert in_form["default"] == default
    keywords = list(said(in_form))
    inside = [*field.metadata, *metadata(field.annotation)]
    for kind, (keyword, attribute) in BOUNDS.items():
        for bound in (each for each in inside if isinstance(each, kind)):
            assert (keyword, getattr(bound, attribute)) in keywords
    for bound in (each for each in inside if isinstance(each, bounds.MinLen)):
        assert {("minLength", bound.min_length), ("minItems", bound.min_length)} & set(hashable(keywords))
    if {int, float} & types(field.annotation):
        assert {"minimum", "exclusiveMinimum"} & {key for key, _ in keywords}, f"{name} has no bound"
    choices = {str(choice) for key, value in keywords if key == "enum" for choice in value}
    choices |= {str(value) for key, value in keywords if key == "const"}
    assert {str(choice) for choice in literals(field.annotation)} <= choices


def hashable(keywords: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    return [(key, value) for key, value in keywords if isinstance(value, str | int | float)]


@pytest.mark.parametrize("part", sorted(all_parts(), key=lambda part: part.__name__), ids=lambda part: part.__name__)
def test_a_part_has_the_recipes_keys_and_no_others(part: type[BaseModel]) -> None:
    in_form = schema()["definitions"][part.__name__]
    assert [(name, field["position"]) for name, field in in_form["properties"].items()] == [
        (name, position) for position, name in enumerate(part.model_fields)
    ]
    required = [name for name, field in part.model_fields.items() if field.is_required()]
    assert in_form.get("required", []) == required
    assert in_form["additionalProperties"] is False


def test_every_form_has_the_same_recipe_and_help_for_each_parameter() -> None:
    for flow in (*FORMS, rerun):
        properties = schema(flow)["properties"]
        assert all(len(each["description"]) > 4 for each in properties.values()), flow.name
        assert [each["position"] for each in properties.values()] == list(range(len(properties)))
        assert all("\n" not in each["description"] for each in properties.values()), flow.name
    for flow in FORMS:
        assert schema(flow)["definitions"] == schema()["definitions"], flow.name
        for keyword in ("anyOf", "if", "then", "else", "default"):
            assert schema(flow)["properties"]["recipe"][keyword] == schema()["properties"]["recipe"][keyword]
        assert "required" not in schema(flow), "a schedule gives what it likes"


def test_choices_come_from_the_shelves_and_the_reason_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "names", lambda shelf: [f"one of the {shelf}"])
    of = parameter_schema(refresh).model_dump_for_openapi()["definitions"]
    assert of["Engine"]["properties"]["kind"]["enum"] == ["one of the engines"]
    assert of["Prompts"]["properties"]["format"]["enum"] == ["auto", "one of the sources"]
    assert of["Recipe"]["properties"]["structure"]["enum"] == ["auto", "one of the structures"]
    for flow, name in ((refresh, "again"), (rerun, "reasons")):
        assert schema(flow)["properties"][name]["anyOf"][0]["items"]["enum"] == list(OF_AN_ANSWER)


BASE = Mill(Path("/nowhere")).data() | {
    "variants": [{"name": "one", "share": 1, "sampling": {}}],
    "breaker": {},
}


def fields(part: type[BaseModel] = Recipe, above: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The path of each field; in a list of parts, of the first one's."""
    for name, field in part.model_fields.items():
        path = (*above, name)
        yield path
        listed = list in {get_origin(each) for each in types(field.annotation)}
        for inner in parts_of(field.annotation):
            yield from fields(inner, (*path, 0) if listed else path)


def with_value(path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    data: Any = copy.deepcopy(BASE)
    whole = data
    for step in path[:-1]:
        data = data.setdefault(step, {}) if isinstance(data, dict) else data[step]
    data[path[-1]] = value
    return whole


def wrong_values(path: tuple[str | int, ...]) -> list[dict[str, Any]]:
    """Recipes with a value at the path that the recipe refuses there."""
    named = ".".join(str(step) for step in path)
    found = []
    for value in WRONG:
        try:
            parse_recipe(with_value(path, value), origin="the test")
        except RecipeError as error:
            if str(error.value).startswith(named):
                found.append(with_value(path, value))
    return found


def refusal_of(recipe: dict[str, Any]) -> str | None:
    """What Prefect's validation says, with the path it names; without its check of the schema, which takes long."""
    error = best_match(Draft202012Validator(schema()).iter_errors({"recipe": recipe}))
    return error and f"{error.json_path.removeprefix('$.')}: {error.message}"


def shown(path: tuple[str | int, ...]) -> str:
    return "recipe" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)


PATHS = list(fields())


@pytest.mark.parametrize("path", PATHS, ids=shown)
def test_what_the_recipe_refuses_of_a_field_the_schema_refuses_with_its_name(path: tuple[str | int, ...]) -> None:
    wrong = wrong_values(path)
    assert wrong, "some value is wrong for every field"
    for recipe in wrong:
        refusal = refusal_of(recipe)
        assert refusal is not None
        assert refusal.startswith(shown(path))
        assert "any of the given schemas" not in refusal


@pytest.mark.parametrize("path", PATHS, ids=shown)
def test_what_the_recipe_takes_the_schema_takes(path: tuple[str | int, ...]) -> None:
    """But for what pydantic reads as something else: 0 as false, 'yes' as true."""
    for value in WRONG:
        data = with_value(path, value)
        try:
            taken = Recipe.model_validate(data)
        except ValueError:
            continue
        assert refusal_of(taken.model_dump(mode="json")) is None


class Deployed:
    """A deployment of refresh on the tests' server; it has no worker."""

    def __init__(self, client: SyncPrefectClient) -> None:
        self.client = client
        flow = client.create_flow(refresh)
        self.id = client.create_deployment(
            flow_id=flow, name="form", parameter_openapi_schema=schema(), enforce_parameter_schema=True
        )

    def refusal(self, **parameters: Any) -> str:
        """Why a run with these parameters is not made."""
        with pytest.raises(PrefectHTTPStatusError) as refused:
            self.client.create_flow_run_from_deployment(self.id, parameters=parameters)
        assert refused.value.response.status_code == 409
        return str(refused.value.response.json()["detail"])

    def takes(self, **parameters: Any) -> None:
        self.client.delete_flow_run(self.client.create_flow_run_from_deployment(self.id, parameters=parameters).id)


@pytest.fixture(scope="module")
def deployed() -> Iterator[Deployed]:
    with get_client(sync_client=True) as client:
        form = Deployed(client)
        yield form
        client.delete_deployment(form.id)


@pytest.mark.parametrize("path", PATHS, ids=shown)
def test_the_server_makes_no_run_of_a_wrong_value(deployed: Deployed, path: tuple[str | int, ...]) -> None:
    refusal = deployed.refusal(recipe=wrong_values(path)[-1])
    assert f"field '{shown(path)}" in refusal


def test_an_unknown_or_a_missing_key_is_named(deployed: Deployed) -> None:
    refusal = deployed.refusal(recipe=with_value(("sampling", "temprature"), 1))
    assert "'recipe.sampling'" in refusal
    assert "'temprature' was unexpected" in refusal
    assert "'dataset' is a required property" in deployed.refusal(recipe={})


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_the_complete_recipes_are_taken(deployed: Deployed, path: Path) -> None:
    deployed.takes(recipe=load_recipe(path).model_dump(mode="json"))
    deployed.takes(recipe_file=str(path), changes=["sampling.temperature=0.6"], until="06:00", again=["truncated"])


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({"recipe": 3}, "'recipe'"),
        ({"recipe_file": ""}, "'recipe_file'"),
        ({"changes": "sampling.top_p=1"}, "'changes'"),
        ({"changes": ["sampling.top_p"]}, "'changes[0]'"),
        ({"plan_only": "yes"}, "'plan_only'"),
        ({"again": ["ugly"]}, "'again[0]'"),
        ({"until": "soon"}, "'until'"),
        ({"until": ""}, "'until'"),
        ({"until": "25:99"}, "'until'"),
    ],
)
def test_a_wrong_parameter_is_named(deployed: Deployed, parameters: dict[str, Any], field: str) -> None:
    assert f"field {field}" in deployed.refusal(**parameters)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("dataset",), "s3://key:hunter2@bucket/prefix"),
        (("prompts", "path"), "https://user:hunter2@host/prompts.jsonl"),
        (("prompts", "path"), ["https://host/prompts.jsonl?X-Amz-Signature=hunter2"]),
        (("engine", "urls"), ["http://user:hunter2@host:30000"]),
        (("engine", "urls"), ["http://host:30000/?key=hunter2"]),
        (("engine", "api_key_env"), "sk-hunter2"),
    ],
)
def test_a_secret_is_refused_before_it_is_stored(deployed: Deployed, path: tuple[str, ...], value: Any) -> None:
    assert f"field '{shown(path)}" in deployed.refusal(recipe=with_value(path, value))
    change = f"{'.'.join(path)}={value}" if isinstance(value, str) else f"{path[0]}={json.dumps({path[1]: value})}"
    assert "field 'changes" in deployed.refusal(recipe=BASE, changes=[change])
    assert_stored_without_it()


@pytest.mark.parametrize(
    "change",
    [
        'engine={"api_key_env": "hunter2"}',
        "engine={api_key_env: hunter2, retries: 2}",
        'engine.api_key_env={"api_key_env": "hunter2"}',
        "engine.api_key_env=[hunter2]",
        'variants=[{"engine": {"api_key_env": "hunter2"}}]',
    ],
)
def test_a_key_inside_a_value_is_refused_before_it_is_stored(deployed: Deployed, change: str) -> None:
    assert "field 'changes" in deployed.refusal(recipe=BASE, changes=[change])
    assert_stored_without_it()


def assert_stored_without_it() -> None:
    database = Path(urlsplit(PREFECT_API_DATABASE_CONNECTION_URL.value()).path.replace("//", "/"))
    assert database.is_file()
    stored = b"".join(file.read_bytes() for file in database.parent.glob(f"{database.name}*"))
    assert b"form" in stored
    assert b"hunter2" not in stored

"""What a recipe's fields are made of: numbers, places, names of plugins; and how a form says them.

A recipe is filled in as YAML or as the form of Prefect's UI, and Prefect stores the
values of a form. So what a form must not take (a user and a password in a URL, an
unknown name) is refused twice: by pydantic, with words, and by the JSON schema, before
anything is stored. A schema may say less than pydantic does, never something else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, GetJsonSchemaHandler
from pydantic_core import CoreSchema

from draftmill import plugins

Schema = dict[str, Any]

SECRET_URL = {
    "title": "a URL with a user, a password or a query",
    "type": "string",
    "pattern": r"://[^/?#]*@|[hH][tT][tT][pP][sS]?://[^?#]*\?[^#]",
}
"""What no place may be; a query may be a signature. In s3:// a question mark is a glob. A refusal shows the title."""

ENGINE_URL = r"^https?://[^/@?#\s]+(/[^@?#\s]*)?$"

DATE_OR_TODAY = r"^(today|\d{4}-\d{2}-\d{2})$"


def _yaml_off(value: Any) -> Any:
    # YAML 1.1 reads a bare `off` as false.
    return "off" if value is False else value


def _no_boolean(value: Any) -> Any:
    # Python's True is 1, and YAML 1.1 reads a bare `on` or `yes` as true.
    if isinstance(value, bool):
        raise ValueError("Input should be a number, not true or false")
    return value


def _no_credentials(value: str) -> str:
    if "://" in value and "@" in urlsplit(value).netloc:
        raise ValueError("a URL must not carry credentials: it is stored with the dataset")
    # In s3:// and in folders a question mark is a glob; in http it begins a query, which may be a signature.
    if "://" in value and urlsplit(value).scheme in ("http", "https") and urlsplit(value).query:
        raise ValueError("a URL must not carry a query, which may be a signature: it is stored with the dataset")
    return value


def _engine_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"an engine's URL begins with http:// or https://, got {parts.scheme or 'no scheme'!r}")
    if parts.username or parts.password:
        raise ValueError("an engine's URL must not carry credentials; use api_key_env")
    if parts.query or parts.fragment:
        raise ValueError("an engine's URL must not carry a query: it is stored with the dataset")
    return url.rstrip("/")


def _top_k(value: int) -> int:
    if value == 0:
        raise ValueError("top_k is -1 (off) or at least 1; servers refuse 0")
    return value


def in_schema(**keywords: Any) -> Any:
    """Keywords that only a form's schema has, since pydantic's own check says the same in words. `not_` is `not`."""
    return Field(json_schema_extra={name.rstrip("_"): value for name, value in keywords.items()})


NUMBER = BeforeValidator(_no_boolean)
"""Stands last in an `Annotated`, behind the bounds: before them, they would not reach the JSON schema."""

Off = Annotated[Literal["off"], BeforeValidator(_yaml_off)]
AutoOrOff = Annotated[Literal["auto", "off"], BeforeValidator(_yaml_off)]
Int = Annotated[int, NUMBER]
Float = Annotated[float, NUMBER]
Count = Annotated[int, Field(ge=1), NUMBER]
TokenId = Annotated[int, Field(ge=0), NUMBER]
Share = Annotated[float, Field(gt=0, le=1), NUMBER]
Temperature = Annotated[float, Field(ge=0, le=10), NUMBER]
TopK = Annotated[
    int, Field(ge=-1), in_schema(not_={"title": "neither off nor a count", "const": 0}), NUMBER, AfterValidator(_top_k)
]
MinP = Annotated[float, Field(ge=0, le=1), NUMBER]
RepetitionPenalty = Annotated[float, Field(gt=0, le=2), NUMBER]
Penalty = Annotated[float, Field(ge=-2, le=2), NUMBER]
Location = Annotated[str, Field(min_length=1), AfterValidator(_no_credentials), in_schema(not_=SECRET_URL)]
EngineUrl = Annotated[str, AfterValidator(_engine_url), in_schema(pattern=ENGINE_URL)]


def plugin_name(shelf: str, name: str) -> str:
    """The name, if the shelf has it. Raises ValueError with the known names."""
    known = plugins.names(shelf)
    if name not in known:
        raise ValueError(f"{name!r} is not on the shelf {shelf}; known: {', '.join(known)}")
    return name


def choices(shelf: str, *more: str) -> Callable[[Schema], None]:
    """A field's `json_schema_extra`: the shelf's names as choices, as they are when the schema is made."""

    def add(schema: Schema) -> None:
        schema["enum"] = [*more, *(name for name in plugins.names(shelf) if name not in more)]

    return add


class Part(BaseModel):
    """A frozen part of a recipe; unknown keys are refused. In a form its fields are called as in YAML."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> Schema:
        schema = handler(core_schema)
        for position, (name, field) in enumerate(handler.resolve_ref_schema(schema)["properties"].items()):
            # PostgreSQL keeps no order of keys.
            field |= {"title": name, "position": position}
            say_plainly(field, handler)
        return schema


_OF_ONE_TYPE = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    *("minLength", "maxLength", "items", "minItems", "maxItems", "not"),
)
"""What a schema says about one type only, so that it can be said of a union as well."""


def say_plainly(field: Schema, handler: GetJsonSchemaHandler) -> None:
    """Beside a union's `anyOf`, which forms are made of, the same once more with `if`.

    Of a value that fits no branch of an `anyOf`, Prefect often says no more than that, and not where it is wrong. Where
    a part of the recipe is in the union, `anyOf` therefore takes anything (in a form: JSON), and `if` decides.
    """
    if "anyOf" not in field:
        return
    branches = [(branch, handler.resolve_ref_schema(branch)) for branch in field["anyOf"]]
    plain: Schema = {"type": list(dict.fromkeys(resolved["type"] for _, resolved in branches))}
    for branch, _ in branches:
        plain |= {key: value for key, value in branch.items() if key in _OF_ONE_TYPE}
    strings = [branch for branch, resolved in branches if resolved["type"] == "string"]
    if len(strings) == 1 and "pattern" in strings[0]:
        plain["pattern"] = strings[0]["pattern"]
    model = next((branch for branch, _ in branches if "$ref" in branch), None)
    if model:
        # Behind `else` there is no object any more.
        if words := [branch["const"] for branch, _ in branches if "const" in branch]:
            plain["enum"] = words
        field |= {"if": {"type": "object"}, "then": model, "else": plain}
    else:
        field |= {"if": {}, "then": plain}
    if model or "$ref" in plain.get("items", {}):
        field["anyOf"].append({"title": "JSON"})

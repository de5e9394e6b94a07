"""What the code knows is in the docs, and the docs name nothing else."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from draftmill import identity, recipe
from draftmill.dataset.manifest import Manifest
from draftmill.dataset.schema import QUARANTINE, SHARD
from draftmill.prompts.load import load_prompts
from draftmill.prompts.messages import ROLES
from draftmill.prompts.shapes import FIELDS
from draftmill.recipe_file import load_recipe
from draftmill.records import Reason

ROOT = Path(__file__).parents[2]
PARTS = {"prompts": recipe.Prompts, "model": recipe.Model, "sampling": recipe.Sampling, "engine": recipe.Engine}
SECTIONS: dict[str, type[BaseModel]] = {
    "Top level": recipe.Recipe,
    "`breaker`": recipe.Breaker,
    "`variants`": recipe.Variant,
    **{f"`{name}`": part for name, part in PARTS.items()},
}
RECIPES = sorted((ROOT / "deployments" / "recipes").glob("*.yaml"))


def doc(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def section(text: str, title: str) -> str:
    return text.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def first_cells(text: str) -> list[str]:
    """The code words that begin a table's rows."""
    return [
        name
        for cell in re.findall(r"^\| (`[^|]+`) \|", text, flags=re.MULTILINE)
        for name in re.findall(r"`(\w[\w-]*)`", cell)
    ]


@pytest.mark.parametrize("title", SECTIONS)
def test_every_recipe_key_has_its_row_and_no_row_is_without_key(title):
    table = section(doc("recipe.md"), title).split("\n### ")[0]
    assert first_cells(table) == list(SECTIONS[title].model_fields)


@pytest.mark.parametrize("title", SECTIONS)
def test_the_docs_say_identity_as_the_code_does(title):
    table = section(doc("recipe.md"), title).split("\n### ")[0]
    marked = set(re.findall(r"^\| `(\w+)` \|[^|]*\| \*\*yes\*\* \|", table, flags=re.MULTILINE))
    described = {
        name for name, field in SECTIONS[title].model_fields.items() if "(identity)" in (field.description or "")
    }
    assert marked == described


def test_what_is_marked_as_identity_is_what_the_key_is_made_of():
    shared = identity.row_identity(
        recipe.Model(name="m", context_length=16), recipe.Sampling(temperature=1, top_p=1, max_new_tokens=1)
    )
    for name, keys in shared.items():
        fields = PARTS[name].model_fields
        assert set(keys) == {key for key, field in fields.items() if "(identity)" in (field.description or "")}


def test_defaults_in_the_docs_are_the_codes():
    for title, part in SECTIONS.items():
        table = section(doc("recipe.md"), title).split("\n### ")[0]
        for name, written in re.findall(r"^\| `(\w+)` \| (?:`([^`]*)`|required)", table, flags=re.MULTILINE):
            field = part.model_fields[name]
            if field.is_required():
                assert written == "", name
            elif written:
                assert yaml.safe_load(written) == field.get_default(call_default_factory=True), name


def test_every_reason_is_explained_in_order_of_precedence():
    assert first_cells(doc("reason-codes.md")) == [str(reason) for reason in Reason]


def test_every_column_is_explained():
    columns = section(doc("dataset.md"), "Columns")
    assert first_cells(columns) == SHARD.names
    for name in QUARANTINE.names[len(SHARD) :]:
        assert f"`{name}`" in columns


def test_every_manifest_field_is_explained():
    assert set(first_cells(section(doc("dataset.md"), "Manifest"))) == set(Manifest.model_fields)


def test_every_dependency_has_its_reason():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(name for extra in project["optional-dependencies"].values() for name in extra),
    ]
    names = {re.match(r"[\w-]+", requirement)[0] for requirement in wanted}
    assert set(first_cells(doc("dependencies.md"))) == names


def test_every_shape_and_role_is_named():
    shapes = doc("prompts.md")
    assert not [name for name in FIELDS if f"`{name}`" not in shapes]
    assert not [name for name in ROLES if not re.search(rf"\b{name}\b", shapes)]


def test_links_between_documents_hold():
    code = [path for folder in ("draftmill", "tasks", "flows") for path in (ROOT / folder).rglob("*.py")]
    pages = [*(ROOT / "docs").glob("*.md"), ROOT / "CONTRIBUTING.md", *code]
    folders = [ROOT, ROOT / "docs", ROOT / "benchmarks" / "results"]
    for page in pages:
        for name in re.findall(r"\b[\w-]+\.md\b", page.read_text(encoding="utf-8")):
            assert any((folder / name).exists() for folder in folders), f"{page.name} names {name}"


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.name)
def test_written_recipes_load(path):
    assert load_recipe(path).dataset


def test_the_demo_recipe_is_complete():
    written = yaml.safe_load((ROOT / "deployments" / "recipes" / "demo.yaml").read_text(encoding="utf-8"))
    assert set(recipe.Recipe.model_fields) - {"variants"} == set(written)
    for name, part in PARTS.items():
        assert set(written[name]) == set(part.model_fields)


def test_the_demos_prompts_are_all_good_and_all_different():
    loaded = load_prompts(recipe.Prompts(path=str(ROOT / "examples" / "prompts.jsonl")))
    assert not loaded.rejected.num_rows
    assert loaded.table.num_rows == 48
    assert {"messages", "prompt", "conversations", "instruction"} == set(loaded.files[0].shapes)
    for column in ("messages", "prompt_id"):
        assert len(set(loaded.table[column].to_pylist())) == 48

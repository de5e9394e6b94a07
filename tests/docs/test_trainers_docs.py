"""docs/trainers.md names every exporter, the packages it was tried with, and code that compiles."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from draftmill import plugins
from draftmill.exporters import huggingface

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "trainers.md").read_text(encoding="utf-8")
LAST_RUN = json.loads((ROOT / "tests" / "trainers" / "last_run.json").read_text(encoding="utf-8"))


def first_cells(text: str) -> list[str]:
    return re.findall(r"^\| (`.*?`) \|", text, re.MULTILINE)


def test_every_exporter_is_there() -> None:
    table = PAGE.partition("## SpecForge")[0]
    assert sorted(first_cells(table)[1:]) == [f"`{name}`" for name in plugins.names("exporters")]


def test_every_column_is_explained() -> None:
    table = PAGE.partition("## A trainer of your own")[2].partition("## ")[0]
    assert set(re.findall(r"`(\w+)`", " ".join(first_cells(table)))) == set(huggingface.SCHEMA.names)


def test_the_versions_are_those_of_the_last_run() -> None:
    table = PAGE.partition("## Tried with")[2]
    assert dict(re.findall(r"^\| `(\w+)` \| (\d\S+) \|$", table, re.MULTILINE)) == LAST_RUN["versions"]


@pytest.mark.parametrize("package", ["specforge", "speculators"])
def test_they_are_those_that_are_installed(package: str) -> None:
    script = (ROOT / "infra" / "trainers.sh").read_text(encoding="utf-8")
    assert re.findall(rf'"{package}==(\S+)"', script) == [LAST_RUN["versions"][package]]


def test_every_mask_of_both_datasets_was_compared() -> None:
    assert {name: sorted(masks) for name, masks in LAST_RUN["compared"].items()} == {
        "demo": ["completion", "content"],
        "kimi": ["completion", "content", "reasoning"],
    }


@pytest.mark.parametrize("code", re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
def test_its_code_compiles(code: str) -> None:
    compile(code, "docs/trainers.md", "exec")

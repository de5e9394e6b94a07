"""README and docs cannot rot: commands parse, every command is named, the tree is the disk, links lead somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from draftmill.cli import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMANDS = typer.main.get_command(app)


def fenced(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def command_lines() -> list[str]:
    lines = [line for page in PAGES for block in fenced(page, "sh") for line in block.splitlines()]
    return [line for line in lines if line.startswith("draftmill ")]


@pytest.mark.parametrize("line", command_lines())
def test_documented_commands_parse(line: str) -> None:
    _, name, *arguments = shlex.split(line, comments=True)
    command = COMMANDS.commands[name]
    command.make_context(name, arguments)


def test_there_are_commands_to_check() -> None:
    assert len(command_lines()) >= 7


@pytest.mark.parametrize("name", sorted(COMMANDS.commands))
def test_every_command_is_documented_and_has_an_example(name: str) -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert f"draftmill {name}" in text
    assert f"Example: draftmill {name}" in (COMMANDS.commands[name].help or "")


def test_the_tree_is_the_disk() -> None:
    (tree,) = (block for block in fenced(ROOT / "README.md", "text") if block.startswith("flows/"))
    named: set[str] = set()
    parent = ""
    for line in tree.splitlines():
        name = line.split()[0].rstrip("/")
        parent = "" if not line.startswith(" ") else parent
        named.add(f"{parent}{name}")
        parent = f"{name}/" if not line.startswith(" ") else parent
    top = {"flows", "tasks", "draftmill", "deployments", "infra", "examples", "tests", "benchmarks", "docs"}
    shelves = {f"draftmill/{p.name}" for p in (ROOT / "draftmill").iterdir() if (p / "__init__.py").exists()}
    assert named == top | shelves


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (page.parent / link).exists()] == []


def test_make_targets_named_in_the_readme_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"make ([a-z-]+)", "".join(fenced(ROOT / "README.md", "sh"))))
    assert named <= targets
    assert {"demo", "test"} <= named

"""Shelves: a file is a plugin, its name is the plugin's name."""

from __future__ import annotations

import sys

import pytest

from draftmill import plugins, sources
from draftmill.errors import RecipeError


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """The sources shelf with one more folder of files on it."""
    monkeypatch.setattr(sources, "__path__", [*sources.__path__, str(tmp_path)])
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("draftmill.sources.zz")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("shelf_name", "known"),
    [("sources", "jsonl"), ("engines", "sglang"), ("structures", "plain"), ("structures", "think")],
)
def test_what_ships_is_on_its_shelf(shelf_name, known):
    assert known in plugins.names(shelf_name)
    assert plugins.load(shelf_name, known).__name__ == f"draftmill.{shelf_name}.{known}"


def test_one_new_file_is_a_new_plugin_and_an_underscore_is_none(shelf):
    (shelf / "zz_new.py").write_text("ANSWER = 42\n")
    (shelf / "_helper.py").write_text("")
    assert "zz_new" in plugins.names("sources")
    assert "_helper" not in plugins.names("sources")
    assert plugins.load("sources", "zz_new").ANSWER == 42


@pytest.mark.parametrize("name", ["nope", "", "_helper", "jsonl.x", "../jsonl"])
def test_an_unknown_name_fails_with_the_known_ones(name):
    with pytest.raises(RecipeError) as caught:
        plugins.load("sources", name)
    assert caught.value.value == name
    assert "jsonl" in caught.value.expected


def test_names_are_sorted(shelf):
    for name in ("zz_b", "zz_a"):
        (shelf / f"{name}.py").write_text("")
    names = plugins.names("sources")
    assert names == sorted(names)

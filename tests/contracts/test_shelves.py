"""Every plugin on every shelf keeps its door's promise; a new file is found by itself. Engines: test_engines.py."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from draftmill import plugins
from draftmill.errors import RecipeError


def shelf(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", plugins.names(name))


@shelf("sources")
def test_a_source_sniffs_and_reads(name: str, tmp_path: Path) -> None:
    plugin = plugins.load("sources", name)
    assert plugin.sniff("notes.txt", b"just some words\n") is False
    assert inspect.isgeneratorfunction(plugin.read) or callable(plugin.read)


@shelf("structures")
def test_a_structure_derives_from_a_probe(name: str) -> None:
    plugin = plugins.load("structures", name)
    assert isinstance(plugin.ORDER, int)
    assert next(iter(inspect.signature(plugin.derive).parameters)) == "probe"


@pytest.mark.parametrize("name", ["engines", "sources", "structures"])
def test_an_unknown_name_lists_the_known_ones(name: str) -> None:
    with pytest.raises(RecipeError) as raised:
        plugins.load(name, "nonesuch")
    assert all(known in raised.value.expected for known in plugins.names(name))

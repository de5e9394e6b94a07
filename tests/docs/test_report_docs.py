"""docs/report.md's keys and parts are those of the page."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from draftmill.reporting.row_parts import Part

DOC = (Path(__file__).parents[2] / "docs/report.md").read_text(encoding="utf-8")
JS = files("draftmill.reporting.page").joinpath("js")

ARROWS = {"ArrowUp": "\u2191", "ArrowDown": "\u2193", "ArrowLeft": "\u2190", "ArrowRight": "\u2192", "Escape": "Esc"}


def test_every_key_is_documented() -> None:
    script = JS.joinpath("keys.js").read_text(encoding="utf-8")
    tables = re.findall(r"const (?:LETTERS|IN_LIST|IN_FLOW) = \{(.*?)\n\};", script, re.S)
    keys = set(re.findall(r'(?:^  |, )"?(\w+|[/?])"?: \(\)', "\n".join(tables), re.M))
    assert {"ArrowLeft", "End", "N", "?"} <= keys
    assert [key for key in keys if f"`{ARROWS.get(key, key)}`" not in DOC] == []


def test_every_part_is_explained() -> None:
    rows = re.findall(r"^\| `(\w+)` \| .*\.", DOC, re.M)
    assert [row for row in rows if row in set(Part)] == list(Part)


def test_masks_are_told_in_the_order_of_the_key() -> None:
    masks = re.search(r"const MASKS = \[(.*?)\];", JS.joinpath("tokens.js").read_text(encoding="utf-8"))
    assert masks
    assert f"Next loss mask: {masks[1].replace(chr(34), '')}." in DOC

"""docs/dependencies.md names the versions of the plot libraries that are in the page."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

DOC = Path(__file__).parents[2] / "docs/dependencies.md"


def test_vendored_versions_are_named() -> None:
    table = files("draftmill.reporting.page").joinpath("vendor/README.md").read_text()
    versions = re.findall(r"^\| `[\w.]+` .*?\| ([\d.]+) \|", table, re.M)
    assert len(versions) == 2
    text = DOC.read_text()
    assert all(version in text for version in versions)

"""`draftmill report` as people call it, and what `verify`, `gc` and `diff` make of what it leaves."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from typer.testing import CliRunner

from draftmill.cli import app
from draftmill.dataset.gc import garbage
from draftmill.dataset.verify import verify
from draftmill.reporting.diff_lines import difference
from tests.reporting.report_dataset import CLOSE, END, OPEN, Made, sealed

ROWS = [Made(name, [1, OPEN], [50, CLOSE, 60, END], 2) for name in "abc"]


def report(*arguments: str) -> tuple[str, dict[str, object]]:
    result = CliRunner().invoke(app, ["report", *arguments, "--json"])
    assert result.exit_code == 0, result.output
    place, last = result.stdout.splitlines()
    return place, json.loads(last)


def test_it_says_where_the_page_is(tmp_path: Path) -> None:
    storage, _ = sealed(tmp_path, ROWS)
    place, last = report(storage.url)
    assert place == last["page"] == f"{storage.url}/reports/00000001.html"
    assert (last["manifest"], last["rows"]) == (1, {"total": 3, "embedded": 3})
    assert last["bytes"] == Path(place).stat().st_size


def test_elsewhere_nothing_is_left_in_the_dataset(tmp_path: Path) -> None:
    storage, _ = sealed(tmp_path, ROWS)
    place, _ = report(storage.url, "1", "--out", str(tmp_path / "page.html"))
    assert Path(place).read_text().startswith("<!doctype html>")
    assert storage.list("reports") == []


def test_verify_knows_it_and_gc_leaves_it(tmp_path: Path) -> None:
    storage, _ = sealed(tmp_path, ROWS)
    report(storage.url)
    found = verify(storage)
    assert found.ok
    assert "reports/: 1 reports, made of what is verified" in found.not_verified
    later = datetime.now(UTC) + timedelta(days=30)
    assert garbage(storage, now=later, keep=1).entries == []


def test_how_fast_a_run_was_is_no_difference_between_versions(tmp_path: Path) -> None:
    made = {"draftmill": "0.1.0", "servers": []}
    storage, _ = sealed(tmp_path, ROWS, provenance=made | {"course": {"step_s": 1.0, "points": [[1, 2, 3, 4, 5]]}})
    more = [Made("d", [1, OPEN], [50, CLOSE, 60, END], 2)]
    sealed(tmp_path, more, provenance=made | {"course": {"step_s": 1.0, "points": [[9, 9, 9, 9, 9]]}})
    assert difference(storage.url).made_with == []

"""A page's numbers beside a dataset small enough to count by hand; and one of thousands of rows within its bytes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from draftmill.dataset.manifest import Manifest
from draftmill.dataset.storage import Storage
from draftmill.errors import DatasetError, RecipeError
from draftmill.reporting.page import choice, make
from draftmill.reporting.page.make import make_page, report_dataset, write_report
from draftmill.reporting.page.packing import unpack
from tests.mill import Mill
from tests.reporting.report_dataset import CLOSE, END, HOSTILE, OPEN, Made, realistic, sealed

PROMPT = [1, 40, OPEN]

THINKS = [50, 51, CLOSE, 60, END]
"""Reasoning of 3, content of 1, output of 5."""

SECRET = "sk-planted-4711"


def rows() -> list[Made]:
    return [
        Made("a", PROMPT, THINKS, 3),
        Made("b", PROMPT, [50, CLOSE, 60, 61, END], 2, changes={"attempt": 1}),
        Made("c", [1, OPEN], [50, 50, 50, 50], finish="length"),  # cut inside its reasoning, and kept
        Made("d", PROMPT, [50] * 9, finish="length", reason="truncated"),
        Made("e", PROMPT, [50, 50, END], reason="reasoning_not_closed"),  # no length counts
        Made(HOSTILE, PROMPT, [CLOSE, 99_999, END], 1, reason="id_out_of_range"),
    ]


@pytest.fixture
def made(tmp_path: Path) -> tuple[Storage, Manifest]:
    return sealed(tmp_path, rows())


def parts(html: str) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]:
    """(data, rows, pieces) out of a page."""
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)
    (pieces,) = re.findall(r'<script type="text/plain" id="pieces">(.*?)</script>', html, re.S)
    blocks = re.findall(r'<script type="text/plain" class="block">(.*?)</script>', html, re.S)
    shown: list[Any] = [row for block in map(unpack, blocks) for row in block]  # type: ignore[attr-defined]
    known: Any = unpack(pieces)
    return json.loads(data), shown, known


def test_the_numbers_by_hand(made: tuple[Storage, Manifest]) -> None:
    data, _, _ = parts(make_page(*made).html)
    counts = {name: data["counts"][name] for name in ("good_rows", "quarantined_rows", "rejected")}
    assert counts == {"good_rows": 3, "quarantined_rows": 3, "rejected": 0}
    assert data["counts"]["run"]["rows"] == {"planned": 6}
    assert {line["reason"]: line["rows"] for line in data["reasons"]} == {
        "truncated": 1,
        "reasoning_not_closed": 1,
        "id_out_of_range": 1,
    }
    assert {line["finish_reason"]: line["rows"] for line in data["finish"]} == {"stop": 4, "length": 2}
    assert data["attempts"] == {"0": 2, "1": 1}
    assert data["cut_in_reasoning"] == {"rows": 2, "share": 0.5}  # of a, b, c, d
    lengths = {name: (found["n"], found["mean"]) for name, found in data["lengths"].items()}
    assert lengths == {
        "prompt": (4, (3 + 3 + 2 + 3) / 4),
        "reasoning": (4, (3 + 2 + 4 + 9) / 4),
        "content": (2, (1 + 2) / 2),
        "output": (4, (5 + 5 + 4 + 9) / 4),
    }
    assert data["lengths"]["output"]["bins"] == [[4, 5, 1], [5, 6, 2], [6, 7, 0], [7, 8, 0], [8, 9, 0], [9, 10, 1]]
    assert [line[1:] for line in data["arrivals"]] == [[1, 5], [1, 5], [1, 4], [1, 9], [1, 3], [1, 3]]
    # Supervised: a has 50 51 CLOSE 60 END, b 50 CLOSE 60 61 END, c four times 50.
    coverage = data["coverage"]
    assert (coverage["mask"], coverage["supervised"], coverage["distinct"]) == ("completion", 14, 6)
    assert coverage["curve"][0] == [1, 6 / 14]
    assert coverage["at"] == [[8192, 1.0], [16384, 1.0], [32768, 1.0], [65536, 1.0]]
    assert data["round_trip"]["rows"] == 3
    assert (data["drift"], data["course"], data["parent"]) == (None, None, None)
    assert {name: data["rows"][name] for name in ("total", "embedded")} == {"total": 6, "embedded": 6}


def test_every_row_is_there_bad_ones_first_with_an_example_of_each_reason(made: tuple[Storage, Manifest]) -> None:
    data, shown, pieces = parts(make_page(*made).html)
    assert {row["prompt_id"] for row in shown[:3]} == {"d", "e", HOSTILE}
    assert [row["key"] for row in shown[3:]] == sorted(row["key"] for row in shown[3:])
    by_name = {row["prompt_id"]: row for row in shown}
    assert by_name["a"]["ids"] == [*PROMPT, *THINKS]
    assert by_name["a"]["masks"]["content"] == [[6, 8]]
    assert by_name["c"]["masks"]["content"] == []
    examples = {line["reason"]: line["example"] for line in data["reasons"]}
    assert examples == {row["reason"]: row["key"] for row in shown[:3]}
    assert set(map(int, pieces)) == {token_id for row in shown for token_id in row["ids"]}
    assert pieces["99999"] == ["", "", 0]


def test_a_secret_of_the_environment_is_not_in_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_API_KEY", SECRET)
    servers = [{"url": "http://10.0.0.1", "facts": {"args": ["--api-key", SECRET]}}]
    storage, manifest = sealed(tmp_path, rows(), provenance={"draftmill": SECRET, "servers": servers})
    html = make_page(storage, manifest).html
    assert SECRET not in html
    assert parts(html)[0]["servers"][0]["facts"]["args"] == ["--api-key", "[ENGINE_API_KEY]"]


def test_the_course_is_shown_in_its_place(tmp_path: Path) -> None:
    course = {"step_s": 1.0, "points": [[1.0, 300.0, 2.0, 6.0, 8.0]]}
    storage, manifest = sealed(tmp_path, rows(), provenance={"draftmill": "0.1.0", "servers": [], "course": course})
    data, _, _ = parts(make_page(storage, manifest).html)
    assert data["course"] == course
    assert data["provenance"] == {"draftmill": "0.1.0"}


def test_without_its_tokenizer_there_are_ids_and_a_reason(tmp_path: Path) -> None:
    recipe = Mill(tmp_path).data() | {
        "model": {"name": "away", "tokenizer": str(tmp_path / "away"), "context_length": 64}
    }
    storage, manifest = sealed(tmp_path, rows(), recipe=recipe)
    data, shown, pieces = parts(make_page(storage, manifest).html)
    assert "tokenizer is not at hand" in data["round_trip"]["unavailable"]
    assert (len(shown), pieces) == (6, {})


def test_thousands_of_rows_fit_into_what_the_page_may_weigh(tmp_path: Path) -> None:
    storage, manifest = sealed(tmp_path, realistic(1200))
    whole, small = make_page(storage, manifest), make_page(storage, manifest, max_bytes=760_000)
    assert (whole.rows, len(whole.html) < 8_000_000) == (1200, True)
    assert 0 < small.rows < 1200
    assert len(small.html.encode()) <= 760_000
    data, shown, _ = parts(small.html)
    assert data["rows"]["embedded"] == len(shown) == small.rows
    assert {row["reason"] for row in shown[:72]} == {"truncated", "degenerate", "id_out_of_range"}
    assert shown[72:]
    assert {row["reason"] for row in shown[72:]} == {None}
    assert 0 < parts(whole.html)[0]["round_trip"]["changed"] < 1128


def test_of_a_huge_dataset_some_objects_are_read_and_the_page_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [Made(f"row {n}", PROMPT, THINKS, 3) for n in range(40)]
    storage, manifest = sealed(tmp_path, many, shard_rows=4)
    monkeypatch.setattr(make, "READ_BYTES", 5 * manifest.shards[0].bytes)
    data, shown, _ = parts(make_page(storage, manifest).html)
    read = len(choice.spread(manifest.shards, make.READ_BYTES))
    assert 1 < read < 10
    assert len(shown) == 4 * read
    assert data["coverage"]["supervised"] == 5 * 4 * read
    assert data["lengths"]["output"]["n"] == 40
    assert f"{read} of 10 shards" in data["rows"]["how"]


def test_a_page_lies_beside_the_rows_and_is_the_same_every_time(made: tuple[Storage, Manifest], tmp_path: Path) -> None:
    storage, _ = made
    written = write_report(storage)
    assert written.place == f"{storage.url}/reports/00000001.html"
    assert (written.manifest, written.rows, written.total) == (1, 6, 6)
    first = storage.read("reports/00000001.html")
    assert len(first) == written.bytes
    elsewhere = report_dataset(storage.url, 1, out=tmp_path / "page.html")
    assert elsewhere.place == str(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_bytes() == first


def test_what_cannot_be_made_is_said(made: tuple[Storage, Manifest], tmp_path: Path) -> None:
    storage, manifest = made
    with pytest.raises(RecipeError, match="cannot be written"):
        report_dataset(storage.url, out=tmp_path / "no such folder" / "page.html")
    with pytest.raises(DatasetError, match="there is no such manifest"):
        report_dataset(storage.url, 7)
    storage.remove(manifest.shards[0].path)
    with pytest.raises(DatasetError, match="gone"):
        report_dataset(storage.url)


def test_new_rows_are_put_beside_the_last_ones(made: tuple[Storage, Manifest], tmp_path: Path) -> None:
    storage, second = sealed(tmp_path, [Made("z", PROMPT, THINKS, 3)])
    assert second.version == 2
    data, _, _ = parts(make_page(storage, second).html)
    (table,) = data["drift"]["tables"]
    assert (data["parent"], data["drift"]["compared_with"], table["lines"][0]) == (1, 1, ["rows", "1", "6", ""])

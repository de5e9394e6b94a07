"""Recordings of a real SGLang 0.5.23 server, one `/generate` exchange each, and the row that was asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from draftmill.arrays import ids_array
from draftmill.engines import sglang
from draftmill.records import Answer, Fault, Row

RECORDINGS = Path(__file__).parents[1] / "golden" / "sglang"
CAPITAL = json.loads((RECORDINGS / "gen_basic.json").read_text())["request"]["json"]["input_ids"]
"""The prompt of the recordings that do not say theirs."""


@dataclass(frozen=True)
class Exchange:
    """One answer of `/generate`: what was asked, what came. `body` is None where it was no JSON."""

    name: str
    prompt_ids: list[int]
    rid: str
    status: int
    raw: bytes
    body: Any

    @property
    def row(self) -> Row:
        return row_of(self.prompt_ids)

    def read(self, body: Any = None, **changes: Any) -> Answer | Fault:
        """As the client reads it; `body` in place of the recorded one."""
        raw = self.raw if body is None else json.dumps(body).encode()
        asked = {"row": self.row, "rid": self.rid, "engine": "sglang 0.5.23"} | changes
        return sglang.read(self.status, {}, raw, **asked)


def row_of(prompt_ids: list[int]) -> Row:
    return Row("k", 0, "p", "id", "default", 0, ids_array("prompt_ids", prompt_ids), 1000, None, "prompts.jsonl")


def exchange(name: str, status: int, body: Any, text: str | None, request: dict[str, Any]) -> Exchange:
    raw = (json.dumps(body) if text is None else text).encode()
    ids = request.get("input_ids")
    flat = isinstance(ids, list) and bool(ids) and all(type(item) is int for item in ids)
    rid = body["meta_info"]["id"] if isinstance(body, dict) and "meta_info" in body else str(request.get("rid"))
    return Exchange(name, ids if flat else CAPITAL, rid, status, raw, body)


def exchanges() -> Iterator[Exchange]:
    """Every recorded answer of `POST /generate`, by file; several of a file are numbered."""
    for path in sorted(RECORDINGS.glob("*.json")):
        found = json.loads(path.read_text())
        if path.stem == "queue_full":  # the good answers are cut short in it
            found = [[item["status"], item["body"]] for item in found if item["status"] != 200]
        if isinstance(found, list) and isinstance(found[0][0], int):
            for number, (status, body) in enumerate(found):
                yield exchange(f"{path.stem}-{number}", status, body, None, {})
        elif "request" in found:
            request, answer = found["request"], found["response"]
            if request["path"] == "/generate" and answer.get("status") is not None:
                asked = request.get("json")
                asked = asked if isinstance(asked, dict) else {}
                yield exchange(path.stem, answer["status"], answer.get("body"), answer.get("body_text"), asked)
        elif isinstance(found, dict):
            for part in ("waiting_client", "first", "second"):
                if part in found:
                    yield exchange(f"{path.stem}-{part}", found[part]["status"], found[part]["body"], None, {})


EXCHANGES = {found.name: found for found in exchanges()}


WHICH: dict[str, Callable[[Exchange], bool]] = {
    "exchange": lambda exchange: True,
    "answered": lambda exchange: exchange.status == 200 and isinstance(exchange.body, dict),
    "refused": lambda exchange: exchange.status == 400,
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `exchange` runs on every recording; `answered` and `refused` are those with 200 and 400."""
    for name in WHICH.keys() & set(metafunc.fixturenames):
        found = [exchange for exchange in EXCHANGES.values() if WHICH[name](exchange)]
        metafunc.parametrize(name, found, ids=[exchange.name for exchange in found])


@pytest.fixture(scope="session")
def recorded() -> Callable[[str], Exchange]:
    return EXCHANGES.__getitem__


@pytest.fixture(scope="session")
def page() -> Callable[[str], dict[str, Any]]:
    """A recorded page of another path, as JSON."""
    return lambda name: dict(json.loads((RECORDINGS / f"{name}.json").read_text())["response"]["body"])

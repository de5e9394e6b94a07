"""The shelf's engines, each with the kit by which one suite holds them all.

A new engine needs a `Kit`: where in its recorded good answer
(`tests/golden/NAME/gen_basic.json`) the things stand that every answer has.
"""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import aiohttp
import numpy as np
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from draftmill import plugins
from draftmill.judging.judge import judge_one
from draftmill.judging.structure import Structure
from draftmill.records import Answer, Completion, Fault, Reason, Row, Thinking

GOLDEN = Path(__file__).parents[1] / "golden"
SMOLLM2 = Structure("plain", Thinking.NONE, (), (), (2,), (1,), (198,), (198, 216), 49151, ())
RID = "0123456789abcdef" * 2
SECRET = "sekret"
Path_ = tuple[str | int, ...]


@dataclass(frozen=True)
class Kit:
    """Where in an engine's answer the things are that every engine has."""

    rid: Path_
    rid_form: str
    ids: Path_
    echo: Path_
    prompt_tokens: Path_
    completion_tokens: Path_
    finish: Path_
    sent_ids: str
    sent_budget: str
    pages: dict[str, str]
    """Path -> the golden of that page, for the report."""


KITS = {
    "sglang": Kit(
        rid=("meta_info", "id"),
        rid_form="{}",
        ids=("output_ids",),
        echo=("prompt_token_ids",),
        prompt_tokens=("meta_info", "prompt_tokens"),
        completion_tokens=("meta_info", "completion_tokens"),
        finish=("meta_info", "finish_reason", "type"),
        sent_ids="input_ids",
        sent_budget="max_new_tokens",
        pages={
            "/server_info": "key_right_server_info",
            "/model_info": "info_model_info",
            "/v1/models": "key_right_v1_models",
        },
    ),
    "vllm": Kit(
        rid=("id",),
        rid_form="cmpl-{}",
        ids=("choices", 0, "token_ids"),
        echo=("choices", 0, "prompt_token_ids"),
        prompt_tokens=("usage", "prompt_tokens"),
        completion_tokens=("usage", "completion_tokens"),
        finish=("choices", 0, "finish_reason"),
        sent_ids="prompt",
        sent_budget="max_tokens",
        pages={"/version": "info_version", "/v1/models": "info_v1_models"},
    ),
}


def at(body: Any, path: Path_) -> Any:
    for key in path:
        body = body[key]
    return body


def changed(body: Any, path: Path_, value: Any) -> Any:
    """A copy of a body with one value in it replaced."""
    spoiled = copy.deepcopy(body)
    at(spoiled, path[:-1])[path[-1]] = value
    return spoiled


@dataclass(frozen=True)
class Engine:
    """An engine with its kit and its recorded good answer to `row`."""

    name: str
    door: ModuleType
    kit: Kit
    row: Row
    good: Any

    def read(self, body: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Answer | Fault:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        result = self.door.read(status, headers or {}, raw, row=self.row, rid=RID, engine="engine 1")
        assert isinstance(result, Answer | Fault)
        return result

    @property
    def pages(self) -> dict[str, Any]:
        """Its recorded pages of information, by path."""
        return {
            path: json.loads((GOLDEN / self.name / f"{name}.json").read_text())["response"]["body"]
            for path, name in self.kit.pages.items()
        }

    @property
    def ids(self) -> list[int]:
        """The good answer's output ids."""
        return list(at(self.good, self.kit.ids))

    def changed(self, changes: dict[Path_, Any]) -> Any:
        """A copy of the good answer with other values in it."""
        body = self.good
        for path, value in changes.items():
            body = changed(body, path, value)
        return body

    def spoiled(self, path: Path_, value: Any) -> Answer | Fault:
        return self.read(self.changed({path: value}))

    def verdict(self, answer: Answer | Fault) -> Reason | None:
        assert isinstance(answer, Answer)
        return judge_one(Completion(self.row, answer), SMOLLM2, on_truncated="keep", degenerate="off").reason


def engine_of(name: str) -> Engine:
    assert name in KITS, f"draftmill/engines/{name}.py needs a Kit here and recordings in tests/golden/{name}"
    kit = KITS[name]
    found = json.loads((GOLDEN / name / "gen_basic.json").read_text())
    good = changed(found["response"]["body"], kit.rid, kit.rid_form.format(RID))
    prompt_ids = np.array(found["request"]["json"][kit.sent_ids], np.int32)
    row = Row("k", 0, "p", "id", "default", 0, prompt_ids, 32, None, "file")
    return Engine(name, plugins.load("engines", name), kit, row, good)


@pytest.fixture(params=plugins.names("engines"), scope="session")
def engine(request: pytest.FixtureRequest) -> Engine:
    return engine_of(request.param)


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {SECRET}"}) as session:
        yield session


Handler = Callable[[web.Request], Any]


@contextlib.asynccontextmanager
async def _serving(routes: dict[str, Handler]) -> AsyncIterator[str]:
    app = web.Application()
    app.add_routes([web.route("*", path, handler) for path, handler in routes.items()])
    async with TestServer(app) as server:
        yield str(server.make_url("")).rstrip("/")


def _answering(status: int = 200, body: Any = None, **options: Any) -> Handler:
    async def handle(_: web.Request) -> web.Response:
        if isinstance(body, str | None):
            return web.Response(status=status, text=body, **options)
        return web.json_response(body, status=status, **options)

    return handle


@pytest.fixture(scope="session")
def serving() -> Callable[[dict[str, Handler]], AbstractAsyncContextManager[str]]:
    """serving({path: handler}) is a loopback server with these pages, any method; its URL."""
    return _serving


@pytest.fixture(scope="session")
def answering() -> Callable[..., Handler]:
    """answering(status, body) is a handler: a text, or anything else as JSON."""
    return _answering

"""Recordings of a real SGLang 0.5.23 server, and a client without any cleverness."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

RECORDINGS = Path(__file__).parents[1] / "golden" / "sglang"


@pytest.fixture(scope="session")
def recordings() -> dict[str, dict[str, Any]]:
    """By name, each `{"request": ..., "response": ...}` or what the name says."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in RECORDINGS.glob("*.json")}


class Client:
    """Asks and returns (status, body): JSON where it is JSON, else text."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session

    async def ask(self, method: str, url: str, **options: Any) -> tuple[int, Any]:
        async with self.session.request(method, url, **options) as response:
            text = await response.text()
            return response.status, json.loads(text) if response.content_type == "application/json" else text

    async def generate(self, url: str, ids: list[int], *, rid: str | None = None, **sampling: Any) -> tuple[int, Any]:
        body = {"input_ids": ids, "sampling_params": sampling, "rid": rid, "return_prompt_token_ids": True}
        return await self.ask("POST", f"{url}/generate", json=body)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    timeout = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
        yield Client(session)

"""The yardstick: the loop a good engineer writes in an afternoon. Nothing of draftmill's is in it.

As many workers as requests in flight take the next prompt, send it, read the
ids. Connections are kept, their number is not limited to aiohttp's 100, bodies
are made and read by orjson. It has no retries, no checks and no memory of a
crash: that is what draftmill's share of the time is for.

    python benchmarks/plain_loop.py http://127.0.0.1:30000 ids.json 64
"""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import orjson

JSON = {"Content-Type": "application/json"}
SAMPLING = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": -1,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "min_new_tokens": 0,
    "stop": [],
    "stop_token_ids": [],
    "ignore_eos": False,
}

Prompts = Iterator[tuple[int, tuple[list[int], int]]]


async def worker(http: aiohttp.ClientSession, url: str, prompts: Prompts, answers: dict[int, list[int]]) -> None:
    for number, (prompt_ids, max_new_tokens) in prompts:
        body = {
            "input_ids": prompt_ids,
            "rid": uuid.uuid4().hex,
            "stream": False,
            "return_prompt_token_ids": True,
            "sampling_params": {**SAMPLING, "max_new_tokens": max_new_tokens},
        }
        async with http.post(f"{url}/generate", data=orjson.dumps(body), headers=JSON) as answer:
            answer.raise_for_status()
            answers[number] = orjson.loads(await answer.read())["output_ids"]


async def main(url: str, prompts: Prompts, in_flight: int) -> None:
    answers: dict[int, list[int]] = {}
    connector = aiohttp.TCPConnector(limit=in_flight, keepalive_timeout=4)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as http:
        await asyncio.gather(*(worker(http, url, prompts, answers) for _ in range(in_flight)))
    print(len(answers), "answers")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], enumerate(orjson.loads(Path(sys.argv[2]).read_bytes())), int(sys.argv[3])))

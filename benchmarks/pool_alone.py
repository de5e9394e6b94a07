"""draftmill's generation alone: the pool and the engine's protocol. No Prefect, no journal, no judgement.

python benchmarks/pool_alone.py RECIPE.yaml ids.json
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import aiohttp
import orjson

from draftmill import plugins
from draftmill.arrays import ids_array
from draftmill.generation.http import open_http
from draftmill.generation.pool import Pool
from draftmill.generation.ways import ways_of
from draftmill.recipe import Recipe
from draftmill.recipe_file import load_recipe
from draftmill.records import Completion, Return, Returned, Row, ServerReport, Verdict

GOOD = Verdict(reason=None, detail="", position=None, reasoning_end=None, stop_id=None)


class Listing:
    """A keeper that only lists."""

    def __init__(self) -> None:
        self.completions: list[Completion] = []

    def put(self, completion: Completion) -> None:
        self.completions.append(completion)


def rows_of(path: str) -> list[Row]:
    prompts = orjson.loads(Path(path).read_bytes())
    return [
        Row(f"{n:064x}", 0, f"{n:064x}", str(n), "default", 0, ids_array("prompt_ids", ids), budget, None, "")
        for n, (ids, budget) in enumerate(prompts)
    ]


async def open_pool(recipe: Recipe, http: aiohttp.ClientSession, keeper: Listing, num_rows: int) -> Pool:
    protocol = plugins.load("engines", recipe.engine.kind)
    return Pool(
        recipe,
        protocol=protocol,
        http=http,
        reports=[await protocol.report(http, url, model=recipe.model.name) for url in recipe.engine.urls],
        keeper=keeper,
        judge=lambda completions: [GOOD] * len(completions),
        look_again=still_the_same,
        num_rows=num_rows,
        ways=ways_of(recipe, {}),
    )


async def still_the_same(report: ServerReport) -> Returned:
    """Never asked: the fake server of a benchmark is not taken out."""
    return Returned(Return.SAME, "", report)


async def main(recipe: Recipe, rows: list[Row]) -> None:
    keeper = Listing()
    async with open_http(recipe.engine) as http, await open_pool(recipe, http, keeper, len(rows)) as pool:
        await pool.ask(rows, chunk=1)
    print(len(keeper.completions), "answers")


if __name__ == "__main__":
    asyncio.run(main(load_recipe(sys.argv[1]), rows_of(sys.argv[2])))

"""The founding case's question, really asked: client, retries and judge are those of a run.

Only the server at the other end is a fake, and nothing is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import aiohttp

from draftmill import plugins
from draftmill.generation.http import open_http
from draftmill.generation.pool import Pool
from draftmill.generation.ways import ways_of
from draftmill.judging.judge import judge_one
from draftmill.recipe import Recipe
from draftmill.records import Completion, Return, Returned, ServerReport, Verdict
from draftmill.serving.corruptions import Corruption
from draftmill.serving.fake import FakeServer
from draftmill.serving.kimi_case import FoundingCase


@dataclass(frozen=True, slots=True)
class Exchange:
    """What came of asking: the completion kept, its verdict, and how many requests it took."""

    case: FoundingCase
    completion: Completion
    verdict: Verdict
    requests: int

    @property
    def output_ids(self) -> list[int]:
        return list(self.completion.answer.output_ids.tolist())

    @property
    def ids(self) -> list[int]:
        """Prompt and output, as the row's `input_ids` would hold them."""
        return [*self.case.prompt_ids, *self.output_ids]


async def ask(case: FoundingCase, corruption: Corruption | None = None) -> Exchange:
    """The row sent by the real client to a fake server, and judged."""
    on_truncated = case.recipe.on_truncated if corruption is None else corruption.on_truncated

    def judged(completion: Completion) -> Verdict:
        return judge_one(completion, case.structure, on_truncated=on_truncated, degenerate=case.recipe.degenerate)

    async with case.server({case.prompt_ids: corruption}) as fake:
        recipe = _pointed_at(case.recipe, fake.url)
        async with open_http(recipe.engine) as http, await _pool(recipe, fake, http, judged) as pool:
            asked = await pool.ask([case.row], chunk=0)
    completion = asked.completions[0]
    return Exchange(case, completion, judged(completion), len(fake.log))


async def _pool(
    recipe: Recipe, fake: FakeServer, http: aiohttp.ClientSession, judged: Callable[[Completion], Verdict]
) -> Pool:
    protocol = plugins.load("engines", recipe.engine.kind)
    return Pool(
        recipe,
        protocol=protocol,
        http=http,
        reports=[await protocol.report(http, fake.url, model=recipe.model.name)],
        keeper=_NoJournal(),
        judge=lambda completions: [judged(completion) for completion in completions],
        look_again=_no_second_look,
        num_rows=1,
        ways=ways_of(recipe, {}),
    )


async def _no_second_look(_: ServerReport) -> Returned:
    """One row on a server that never goes away."""
    return Returned(Return.NOT_YET, "not looked at")


class _NoJournal:
    """Nothing is stored here; the pool's answer is all there is to see."""

    def put(self, completion: Completion) -> None:
        """Lets it go."""


def _pointed_at(recipe: Recipe, url: str) -> Recipe:
    return recipe.model_copy(update={"engine": recipe.engine.model_copy(update={"urls": [url]})})

"""Two nights of a reasoning model; in the second it thinks half as long. The run says so, and its artifact has it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey
from prefect.client.schemas.objects import Artifact
from prefect.client.schemas.sorting import ArtifactSort

from draftmill.dataset.status import dataset_status
from draftmill.reporting.drift_report import status_report
from draftmill.serving.answers import Card
from draftmill.serving.fake import FakeServer
from draftmill.serving.fake_answers import FakeAnswer, LogNormal, prompt_number
from draftmill.serving.kimi_case import kimi_case
from draftmill.serving.protocol import GenerateRequest, Limits

BUDGET = 400
HUNDRED = [f"prompt {n}" for n in range(100)]
NEXT_HUNDRED = [f"another {n}" for n in range(100)]
CONTENT = 12


@pytest.fixture(scope="module")
def kimi(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return kimi_case(tmp_path_factory.mktemp("kimi"))


@pytest.fixture
def thinking(kimi: Any, mill: Any) -> Callable[[int], Any]:
    """`async with thinking(100)`: the mill's server is a Kimi that thinks about 100 ids, a few times far longer."""
    mill.changes = {
        "model": kimi.recipe.model.model_dump(),
        "sampling__max_new_tokens": BUDGET,
        "chunk_rows": 50,
        "engine__in_flight": 16,
    }

    @asynccontextmanager
    async def serve(median: int) -> AsyncIterator[FakeServer]:
        def answer(request: GenerateRequest) -> FakeAnswer:
            number = prompt_number(median, request.prompt_ids)
            length = LogNormal(median, 0.5).length(number / 2**64)
            drawn = np.random.default_rng(number).integers(1000, 40000, length + CONTENT).tolist()
            markers = kimi.markers
            return FakeAnswer([*drawn[:length], markers.close_id, *drawn[length:], markers.end_id])

        card = Card(kimi.recipe.model.name, "0.5.23", slots=16)
        limits = Limits(4096, kimi.structure.highest_id + 1)
        async with FakeServer(answer, card=card, limits=limits, markers=kimi.markers) as fake:
            mill.url = fake.url
            yield fake

    return serve


async def drift_page() -> Artifact:
    """The newest page of the drift report."""
    of_key = ArtifactFilter(key=ArtifactFilterKey(any_=["dataset-drift"]))
    async with get_client() as client:
        return (await client.read_artifacts(artifact_filter=of_key, sort=ArtifactSort.CREATED_DESC, limit=1))[0]


async def test_half_as_long_a_reasoning_is_a_warning_everywhere(mill: Any, thinking: Any, start_run: Any) -> None:
    mill.prompts(HUNDRED)
    async with thinking(100):
        data = await mill.refresh()
    assert data["drift"][0] == "rows new in manifest 1"
    assert not [line for line in data["drift"] if line.startswith("warning")]

    mill.prompts(HUNDRED + NEXT_HUNDRED)
    async with thinking(50):
        recipe_file = mill.recipe_file()
        process = await start_run(recipe_file)
        assert await process.wait() == 0
    report, now = status_report(dataset_status(mill.dataset)), mill.manifest.statistics
    assert report is not None
    assert (now.manifest, now.total.rows, now.total.prompts) == (2, 100, 100)
    assert now.total.lengths["content"].mean == CONTENT
    (warning,) = report.warnings
    assert warning.startswith("mean reasoning length ")
    assert "manifests 1 and 2" in warning
    stderr = Path(recipe_file).with_suffix(".err").read_text().splitlines()
    assert [line for line in stderr if warning in line] == [f"warning: {warning}"]
    page = await drift_page()
    assert page.data.splitlines()[2] == f"- **warning**: {warning}"


async def test_a_few_new_prompts_raise_no_alarm(mill: Any, thinking: Any) -> None:
    mill.prompts(HUNDRED)
    async with thinking(100):
        await mill.refresh()
    mill.prompts(HUNDRED + NEXT_HUNDRED[:8])
    async with thinking(50):
        data = await mill.refresh()
    assert data["drift"][0] == "rows new in manifest 2 (in brackets: manifest 1)"
    assert not [line for line in data["drift"] if line.startswith("warning")]


async def test_rejudging_carries_the_numbers_on_and_says_what_quarantine_does(mill: Any, thinking: Any) -> None:
    mill.prompts(HUNDRED)
    async with thinking(250):
        await mill.refresh()
    first = mill.manifest
    cut = first.statistics.total.cut
    assert first.statistics.total.cut_in_reasoning > 0
    data = await mill.rerun(on_truncated="quarantine")
    assert (mill.manifest.version, mill.manifest.statistics) == (2, first.statistics)
    (note,) = data["drift"]
    assert f"favours short answers: {cut} rows" in note
    assert f"{BUDGET} ids where they were cut" in note
    data = await mill.rerun(on_truncated="quarantine")
    assert data["drift"] == []  # nothing changed, nothing is told twice


async def test_rows_asked_again_are_no_night_to_compare(mill: Any, thinking: Any) -> None:
    """A larger budget asks the cut rows again: all of them long, which is no drift."""
    mill.prompts(HUNDRED)
    async with thinking(250):
        await mill.refresh()
        first = mill.manifest.statistics
        data = await mill.refresh(sampling__max_new_tokens=3000)
    assert data["summary"]["rows"]["ok"] == first.total.cut
    assert (mill.manifest.version, mill.manifest.statistics, data["drift"]) == (2, first, [])

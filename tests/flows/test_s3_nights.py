"""A dataset in a bucket: nights on top of each other, prompts from a bucket, no secret in what a failed run says."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import fsspec
import pandas as pd
from prefect.client.orchestration import get_client

from draftmill.dataset.storage import open_storage
from draftmill.dataset.verify import verify
from draftmill.serving.fake import FakeServer
from draftmill.serving.seaweed import SeaweedFS

FOUR = [f"prompt {n}" for n in range(4)]
SIX = [*FOUR, "prompt 4", "prompt 5"]


async def test_two_nights_the_second_with_prompts_in_the_bucket(
    s3_mill: Any, bucket: str, fake_server: Callable[..., FakeServer]
) -> None:
    s3_mill.prompts(FOUR)
    async with fake_server() as fake:
        s3_mill.url = fake.url
        first = await s3_mill.refresh()
        before = len(fake.log)
        s3_mill.prompts(SIX)
        fsspec.filesystem("s3").pipe_file(
            f"{bucket}/prompts/monday.jsonl", (s3_mill.folder / "prompts.jsonl").read_bytes()
        )
        second = await s3_mill.refresh(prompts__path=f"{bucket}/prompts/*.jsonl")
        asked = len(fake.log) - before - 1
    assert (first["summary"]["rows"]["ok"], second["summary"]["rows"]["ok"]) == (4, 2)
    assert (second["summary"]["rows"]["kept"], asked, second["summary"]["manifest"]) == (4, 2, 2)
    found = verify(open_storage(s3_mill.dataset))
    assert (found.ok, found.rows) == (True, 6), found.faults
    assert second["page"] == f"{s3_mill.dataset}/reports/00000002.html"
    assert fsspec.filesystem("s3").cat_file(second["page"]).startswith(b"<!doctype html>")
    shards = [f"{s3_mill.dataset}/{ref.path}" for ref in s3_mill.manifest.shards]
    as_pandas_reads_it = pd.concat([pd.read_parquet(shard) for shard in shards])
    assert sorted(as_pandas_reads_it["prompt_id"]) == SIX


async def test_no_secret_in_the_logs_and_results_of_a_run_that_fails(
    s3_mill: Any, seaweed: SeaweedFS, fake_server: Callable[..., FakeServer], start_run: Callable[..., Any]
) -> None:
    s3_mill.prompts(FOUR)
    secret = "a-secret-that-is-wrong-4711"
    environment = os.environ | {"AWS_SECRET_ACCESS_KEY": secret}
    async with get_client() as client, fake_server() as fake:
        environment["PREFECT_API_URL"] = str(client.api_url)
        s3_mill.url = fake.url
        process = await start_run(s3_mill.recipe_file(), environment=environment)
        assert await process.wait() == 1
        lines = [line.message for line in await client.read_logs()]
        runs = [run.model_dump_json() for run in await client.read_flow_runs()]
        runs += [run.model_dump_json() for run in await client.read_task_runs()]
        assert len(fake.log) == 0
    told = json.dumps(lines) + "".join(runs) + (s3_mill.folder / "recipe.err").read_text()
    assert "nights/kimi" in told
    assert not any(word in told for word in (secret, seaweed.key.access_key, seaweed.key.secret_key))

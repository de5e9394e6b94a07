"""The main job on a real language model: what is stored is what llama.cpp itself says, id by id."""

from __future__ import annotations

import shutil
from pathlib import Path

from draftmill.dataset.storage import open_storage
from draftmill.rendering.gguf import smollm2_gguf
from draftmill.reporting.verification import verify_dataset
from draftmill.serving.embedded import EmbeddedEngine
from draftmill.serving.llama import Llama, LlamaSettings

PROMPTS = Path(__file__).parents[2] / "examples" / "prompts.jsonl"
BUDGET = 24


async def test_stored_ids_equal_the_raw_servers(mill) -> None:
    """One slot, greedy, no prompt cache: anything else may change the last bit of a logit and then an id."""
    shutil.copy(PROMPTS, mill.folder / "prompts.jsonl")
    async with Llama(LlamaSettings(smollm2_gguf(), 1, context_length=2048, cache_prompt=False)) as llama:
        engine = EmbeddedEngine(llama)
        await engine.open()
        try:
            mill.url = engine.url
            data = await mill.refresh(
                prompts__limit=8, sampling__temperature=0, sampling__max_new_tokens=BUDGET, engine__in_flight=4
            )
            assert data["summary"]["rows"]["ok"] == 8
            for row in mill.rows():
                prompt, output = row["input_ids"][: row["prompt_len"]], row["input_ids"][row["prompt_len"] :]
                body = {"prompt": prompt, "n_predict": BUDGET, "temperature": 0}
                reply = await llama.ask("POST", "/completion", body | {"cache_prompt": False, "return_tokens": True})
                assert output == reply["tokens"]
        finally:
            await engine.close()
    assert verify_dataset(mill.dataset).faults == []
    assert open_storage(mill.dataset).list("manifests") == ["manifests/00000001.json"]

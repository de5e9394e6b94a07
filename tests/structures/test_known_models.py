"""Well-known reasoning models: every row of the table recomputed, and compared with `renderers` where it says so."""

from __future__ import annotations

from typing import Any

import pytest
import renderers
from renderers import configs
from renderers.base import MODEL_RENDERER_MAP

from draftmill.judging.structure import Structure
from draftmill.records import Thinking
from tests.judging import families
from tests.structures.known_models import TABLE_FILE, Row, checked, decide, load_rows, structure_of, table

ROWS = load_rows()
NUM_MODELS = 40
LONGEST_QUOTE = 25
"""Words."""

CONFIGS: dict[str, Any] = {
    config.model_fields["name"].default: config
    for config in vars(configs).values()
    if "name" in getattr(config, "model_fields", {})
}

# Ids that end a turn to `renderers` and are not in the template or the tokenizer's roles: a real model's
# generation_config.json has them.
OF_GENERATION_CONFIG = {
    "qwen3": {"<|endoftext|>"},
    "qwen3.5": {"<|endoftext|>"},
    "qwen3.6": {"<|endoftext|>"},
    "gemma4": {"<eos>"},
}
# Ids that end a turn to us and not to `renderers`: the tokenizer's eos.
OF_THE_TOKENIZER = {"kimi-k2.5": {"[EOS]"}}


def name_of(row: Row) -> str:
    kwargs = ",".join(f"{key}={value}" for key, value in row.get("kwargs", {}).items())
    return f"{row['model']} {kwargs}".strip()


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_the_decision_is_the_recorded_one(row: Row) -> None:
    recorded = {key: row[key] for key in row if key in ("decided", "named", "open", "close", "ends")}
    assert decide(row) == recorded


@pytest.mark.parametrize("row", [row for row in ROWS if "renderers" in row], ids=name_of)
def test_the_decision_is_that_of_renderers(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    config = dict(row["renderers"])
    name = config.pop("name")
    assert row.get("sibling") or MODEL_RENDERER_MAP[row["model"]] == name
    # gpt-oss: its own vocabulary is fetched from the network, and used for rendering only.
    monkeypatch.setattr("renderers.gpt_oss.load_harmony_encoding", lambda _: None)
    tokenizer = families.tokenizer(row["shape"], row["template"])
    renderer: Any = renderers.create_renderer(tokenizer, CONFIGS[name](**config))
    structure = structure_of(row, "auto")
    stops, ends = (
        {tokenizer.decode([index]) for index in ids} for ids in (renderer.get_stop_token_ids(), structure.end_ids)
    )
    assert stops - ends == OF_GENERATION_CONFIG.get(name, set())
    assert ends - stops == OF_THE_TOKENIZER.get(name, set())
    if structure.channels is not None:
        assert_channels(renderer, structure)
        return
    assert structure.close_ids == (closing_id(renderer, tokenizer),)
    prompt = renderer.render([{"role": "user", "content": "a"}], add_generation_prompt=True).token_ids
    assert tuple(prompt[-len(structure.tail_ids) :]) == structure.tail_ids


def closing_id(renderer: Any, tokenizer: Any) -> int:
    """The id that closes the reasoning for this renderer, under the name it has there."""
    for name in ("_think_end", "_channel_end"):
        if hasattr(renderer, name):
            return int(getattr(renderer, name))
    return int(tokenizer.convert_tokens_to_ids("</think>"))


def assert_channels(renderer: Any, structure: Structure) -> None:
    channels = structure.channels
    assert channels is not None
    assert structure.thinking is Thinking.OPENED_BY_MODEL
    assert (channels.channel_id, channels.message_id) == (renderer._channel, renderer._message)
    assert (structure.close_ids, channels.next_ids[0]) == ((renderer._end,), renderer._start)


def test_every_row_says_what_it_was_checked_against() -> None:
    assert len({row["model"] for row in ROWS if row["decided"] != "refused"}) >= NUM_MODELS
    for row in ROWS:
        assert ("renderers" in row) + ("source" in row) <= 1, name_of(row)
        assert ("source" in row) == ("quote" in row), name_of(row)
        if checked(row) == "source":
            assert row["source"].startswith("https://"), name_of(row)
            assert 0 < len(row["quote"].split()) <= LONGEST_QUOTE, name_of(row)
    assert len({name_of(row) for row in ROWS}) == len(ROWS)


def test_the_document_is_written_from_the_rows() -> None:
    assert TABLE_FILE.read_text(encoding="utf-8") == table(ROWS), "python -m tests.structures.known_models"

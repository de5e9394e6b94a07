"""What hidden states weigh: the width out of the model's config.json, or as told."""

from __future__ import annotations

import json

import pytest

from draftmill.pilot.hidden import hidden_of
from draftmill.recipe import Model


@pytest.mark.parametrize("config", [{"hidden_size": 7168}, {"text_config": {"hidden_size": 7168}}])
def test_the_width_is_read_where_the_config_lies(tmp_path, config) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = hidden_of(Model(name="served/elsewhere", revision="0" * 40, tokenizer=str(tmp_path), context_length=64))
    assert found is not None
    assert (found.width, found.layers, found.bytes_an_id) == (7168, 4, 7168 * 4 * 2)


@pytest.mark.parametrize("text", ["{}", "[]", "no JSON", '{"hidden_size": "wide"}'])
def test_what_does_not_tell_is_not_guessed(tmp_path, text) -> None:
    (tmp_path / "config.json").write_text(text)
    model = Model(name=str(tmp_path), context_length=64)
    assert hidden_of(model) is None
    told = hidden_of(model, width=576, layers=1)
    assert told is not None
    assert told.bytes_an_id == 1152

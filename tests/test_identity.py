"""Keys that must be the same tomorrow. A golden that changes asks every row of every dataset again."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill import identity
from draftmill.arrays import ids_array
from draftmill.recipe import Model, Sampling

MESSAGES = [{"role": "user", "content": "Grüße, 世界 👋\u2028"}]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {}}}]


def model(**values: object) -> Model:
    return Model.model_validate({"name": "m", "revision": "r", "context_length": 2048, **values})


def sampling(**values: object) -> Sampling:
    return Sampling.model_validate({"temperature": 0.7, "top_p": 0.95, "max_new_tokens": 96, **values})


def key(model: Model, sampling: Sampling, ids: list[int] | None = None, sample: int = 0) -> str:
    return identity.row_key(
        ids_array("ids", [1, 2, 163606] if ids is None else ids), identity.row_identity(model, sampling), sample
    )


def test_goldens():
    assert identity.sha256("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert identity.sha256(b"") == identity.sha256("")
    assert identity.canonical_json({"b": [1, 2.5, None, True], "a": "ü\n"}) == '{"a":"ü\\n","b":[1,2.5,null,true]}'
    assert (
        identity.prompt_key(MESSAGES, None, "default")
        == "ec097f372d4a47c160f161430a46064a04b68f5be3794003323bd86152cdb696"
    )
    assert (
        identity.prompt_key(MESSAGES, TOOLS, "default")
        == "7e5f030a1a0b3f5db6dd6155583f4b0d6675176efe0ba523492b5fe6647f2acf"
    )
    assert key(model(), sampling()) == "98e37e6794378361c92ee92af743f64e50cd845e680266edb9e02c0084560179"


@pytest.mark.parametrize(
    "values",
    [
        {"max_new_tokens": 97},
        {"samples": 4},
        {"presence_penalty": -0.0},
        {"repetition_penalty": 1.0},
        {"min_p": 0.0},
    ],
)
def test_what_is_no_identity_does_not_change_a_key(values):
    assert key(model(), sampling(**values)) == key(model(), sampling())


def test_whole_numbers_and_floats_are_one_setting():
    assert key(model(), sampling(temperature=1, top_p=1)) == key(model(), sampling(temperature=1.0, top_p=1.0))


def test_stop_ids_are_a_set():
    assert key(model(), sampling(stop_token_ids=[5, 3, 5])) == key(model(), sampling(stop_token_ids=[3, 5]))


@pytest.mark.parametrize(
    "values",
    [
        {"temperature": 0.8},
        {"top_p": 1},
        {"top_k": 20},
        {"min_p": 0.1},
        {"repetition_penalty": 1.1},
        {"presence_penalty": 1},
        {"frequency_penalty": 1},
        {"stop_token_ids": [3]},
    ],
)
def test_every_sampling_key_of_the_identity_changes_it(values):
    assert key(model(), sampling(**values)) != key(model(), sampling())


@pytest.mark.parametrize("values", [{"name": "n"}, {"revision": "s"}, {"revision": None}, {"quantization": "fp8"}])
def test_the_models_identity_changes_it(values):
    assert key(model(**values), sampling()) != key(model(), sampling())


@pytest.mark.parametrize(
    "values",
    [
        {"context_length": 4096},
        {"tokenizer": "t"},
        {"tokenizer_revision": "t"},
        {"chat_template": "t"},
        {"template_kwargs": {"thinking": True}},
        {"date": "2026-01-31"},
        {"trust_remote_code": True},
    ],
)
def test_what_shows_in_the_ids_is_not_counted_twice(values):
    assert key(model(**values), sampling()) == key(model(), sampling())


def test_ids_their_order_and_the_sample_change_it():
    keys = [key(model(), sampling(), ids, sample) for ids in ([1, 2], [2, 1], [12], []) for sample in (0, 1)]
    assert len(set(keys)) == len(keys)


def test_prompt_key_tells_variants_and_tools_apart_and_no_tools_are_none():
    keys = {
        identity.prompt_key(MESSAGES, tools, variant) for tools in (None, TOOLS) for variant in ("default", "think")
    }
    assert len(keys) == 4
    assert identity.prompt_key(MESSAGES, [], "default") == identity.prompt_key(MESSAGES, None, "default")
    assert identity.prompt_key(MESSAGES, None, "default", []) == identity.prompt_key(MESSAGES, None, "default")
    laters = ([], [MESSAGES], [MESSAGES, MESSAGES], [MESSAGES + MESSAGES])
    assert len({identity.prompt_key(MESSAGES, None, "default", later) for later in laters}) == len(laters)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": [float("nan")]}, r"\$\.a\[0\]: nan has no JSON form"),
        (float("inf"), r"\$: inf"),
        ({1: 2}, "a key of type int"),
        ({"a": object()}, r"\$\.a: object has no stable JSON form"),
        ({"a": {1, 2}}, "set has no stable"),
        (b"bytes", "bytes has no stable"),
        ("\ud800", "a lone surrogate"),
        ({"\udc00": 1}, "a lone surrogate"),
    ],
)
def test_what_has_no_stable_form_is_refused_with_its_place(value, words):
    with pytest.raises(ValueError, match=words):
        identity.canonical_json(value)


def test_unlike_values_stay_unlike():
    texts = [identity.canonical_json(value) for value in (1, 1.0, "1", True, [1], None, "null", "e\u0301", "é")]
    assert len(set(texts)) == len(texts)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def shuffled(value: object, rng: random.Random) -> object:
    if isinstance(value, dict):
        items = list(value.items())
        rng.shuffle(items)
        return {name: shuffled(item, rng) for name, item in items}
    return [shuffled(item, rng) for item in value] if isinstance(value, list) else value


@given(JSON, st.integers(0, 2**32))
def test_the_order_of_keys_never_counts_and_the_text_reads_back(value, seed):
    text = identity.canonical_json(value)
    assert identity.canonical_json(shuffled(value, random.Random(seed))) == text
    assert json.loads(text) == value
    assert identity.canonical_json(json.loads(text)) == text

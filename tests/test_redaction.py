"""The key is taken out of texts, lists, names and values, and nothing else is changed."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.records import ServerReport
from draftmill.redaction import PLACEHOLDER, SHORTEST_SECRET, redacted, sent_key, without_key, without_secrets


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a sekret b sekret", f"a {PLACEHOLDER} b {PLACEHOLDER}"),
        ("none", "none"),
        (7, 7),
        (None, None),
        ({"a": ["sekret", 1], "sekret": {"b": ("x", "sekret")}}, None),
    ],
)
def test_only_the_key_goes(value: Any, expected: Any) -> None:
    seen = redacted(value, "sekret")
    assert "sekret" not in repr(seen)
    if expected is not None or value is None:
        assert seen == expected
    else:
        assert seen == {"a": [PLACEHOLDER, 1], PLACEHOLDER: {"b": ("x", PLACEHOLDER)}}


@given(before=st.integers(0, 60), length=st.integers(0, 60))
def test_a_text_that_was_cut_within_the_key_has_not_its_beginning_either(before: int, length: int) -> None:
    key = "sk-sentinel-4711-that-is-long"
    seen = redacted(("." * before + key + " and more")[:length], key)
    assert key[:SHORTEST_SECRET] not in seen
    assert seen.startswith("." * min(before, length))


def test_without_a_key_nothing_changes() -> None:
    assert redacted({"a": "sekret"}, None) == {"a": "sekret"}


@pytest.mark.parametrize(
    ("headers", "key"),
    [({}, None), ({"Authorization": "Bearer sekret"}, "sekret"), ({"Authorization": "Bearer "}, None)],
)
async def test_the_key_a_session_sends(headers: dict[str, str], key: str | None) -> None:
    async with aiohttp.ClientSession(headers=headers) as http:
        assert sent_key(http) == key


@pytest.mark.parametrize(
    ("key", "kept"), [("sekret-4711", False), ("default", True), (None, True)], ids=["key", "word", "none"]
)
def test_a_report_without_the_key_unless_it_is_a_mere_word(key: str | None, kept: bool) -> None:
    said = f"w {key}"
    report = ServerReport("http://h", "sglang", said, said, said, 8192, 8186, None, False, {"model_path": [said]})
    seen = without_key(report, key)
    assert (seen == report) is kept
    assert kept or (str(key) not in repr(seen) and seen.context_length == 8192)


def test_what_the_environment_keeps_secret_is_in_no_text() -> None:
    environment = {"AWS_SECRET_ACCESS_KEY": "abcdefgh12", "HF_TOKEN": "short", "HOME": "/home/somebody"}
    text = "refused: abcdefgh12 of /home/somebody, short"
    assert without_secrets(text, environment) == "refused: [AWS_SECRET_ACCESS_KEY] of /home/somebody, short"

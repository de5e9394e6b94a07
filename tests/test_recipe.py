"""A recipe is right or refused in four parts that name the key; nothing secret is ever shown."""

from __future__ import annotations

import copy
import datetime as dt
from pathlib import Path
from typing import Any

import pytest
import yaml

from draftmill.errors import RecipeError
from draftmill.recipe import Recipe
from draftmill.recipe_file import load_recipe, parse_recipe

MINIMAL: dict[str, Any] = {
    "dataset": "out",
    "prompts": {"path": "in.jsonl"},
    "model": {"name": "m", "context_length": 2048},
    "sampling": {"temperature": 1, "top_p": 0.95, "max_new_tokens": 96},
}


def changed(key: str, value: object) -> dict[str, Any]:
    data = copy.deepcopy(MINIMAL)
    *parents, last = key.split(".")
    if parents[:1] == ["variants"]:
        data["variants"] = [{"name": "only", "share": 1}]
    part: Any = data
    for parent in parents:
        part = part[int(parent)] if parent.isdigit() else part.setdefault(parent, {})
    part[last] = value
    return data


def parse(data: dict[str, Any]) -> Recipe:
    return parse_recipe(data, origin="x.yaml")


def refused(data: dict[str, Any]) -> RecipeError:
    with pytest.raises(RecipeError) as caught:
        parse(data)
    error = caught.value
    assert "x.yaml" in error.what
    assert error.value
    assert error.expected
    assert "docs/recipe.md" in error.remedy
    return error


def test_the_smallest_recipe_has_the_defaults():
    recipe = parse(MINIMAL)
    assert (recipe.engine.kind, recipe.structure, recipe.removed, recipe.prompts.format) == (
        "sglang",
        "auto",
        "keep",
        "auto",
    )
    assert recipe.breaker != "off"
    assert recipe.breaker.share == 0.2


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("dataset", "", "at least 1 character"),
        ("dataset", None, "valid string"),
        ("prompts", "in.jsonl", "valid dictionary"),
        ("prompts.path", [], "at least 1 item"),
        ("prompts.path", "", "at least 1 character"),
        ("prompts.path", 5, "valid string or"),
        ("prompts.fields", ["a"], "valid dictionary"),
        ("prompts.limit", 0, "greater than or equal to 1"),
        ("prompts.limit", True, "a number, not true or false"),
        ("prompts.min_room", 0, "greater than or equal to 1"),
        ("prompts.special_text", "drop", "'keep' or 'reject'"),
        ("model.name", "", "at least 1 character"),
        ("model.context_length", 8, "greater than or equal to 16"),
        ("model.context_length", "long", "valid integer"),
        ("model.date", "2026-13-01", "valid date"),
        ("model.trust_remote_code", "perhaps", "valid boolean"),
        ("model.template_kwargs", [], "valid dictionary"),
        ("sampling.temperature", -0.1, "greater than or equal to 0"),
        ("sampling.temperature", float("nan"), "less than or equal"),
        ("sampling.temperature", True, "a number, not true or false"),
        ("sampling.top_p", 0, "greater than 0"),
        ("sampling.top_p", 1.1, "less than or equal to 1"),
        ("sampling.max_new_tokens", 0, "greater than or equal to 1"),
        ("sampling.max_new_tokens", 1.5, "valid integer"),
        ("sampling.max_new_tokens", None, "valid integer"),
        ("sampling.top_k", 0, "top_k is -1"),
        ("sampling.min_p", 2, "less than or equal to 1"),
        ("sampling.repetition_penalty", 0, "greater than 0"),
        ("sampling.presence_penalty", 3, "less than or equal to 2"),
        ("sampling.frequency_penalty", -3, "greater than or equal to -2"),
        ("sampling.stop_token_ids", 5, "valid list"),
        ("sampling.samples", 0, "greater than or equal to 1"),
        ("engine.kind", "nope", "known: "),
        ("engine.in_flight", 0, "greater than or equal to 1"),
        ("engine.retries", -1, "greater than or equal to 0"),
        ("engine.wait_s", -1, "greater than or equal to 0"),
        ("structure", "nope", "known: "),
        ("degenerate", 3, "'auto' or 'off' or Input should be greater than or equal to 16"),
        ("degenerate", "on", "'auto'"),
        ("breaker", 5, "'off'"),
        ("breaker.share", 0, "greater than 0"),
        ("breaker.window", 0, "greater than or equal to 1"),
        ("chunk_rows", 0, "greater than or equal to 1"),
        ("chunk_rows", True, "'auto'"),
        ("removed", "move", "'keep' or 'drop'"),
        ("on_truncated", "drop", "'keep', 'quarantine' or 'continue'"),
        ("keep_messages", "perhaps", "valid boolean"),
        ("variants", [], "at least 1 item"),
        ("variants.0.share", 0, "greater than 0"),
        ("variants.0.name", "Think!", "match pattern"),
        ("variants.0.sampling.top_p", 0, "greater than 0"),
    ],
)
def test_a_wrong_value_is_named_with_its_key_and_what_was_expected(key, value, expected):
    error = refused(changed(key, value))
    assert error.value.startswith(key)
    assert repr(value) in error.value
    assert expected in error.expected


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("sampling.max_new_tokens", 2048, "less than model.context_length"),
        ("prompts.format", "nope", "known: csv"),
        ("sampling", {"temperature": 0, "top_p": 1, "max_new_tokens": 8, "samples": 2}, "the same answer again"),
    ],
)
def test_values_that_do_not_go_together_are_refused(key, value, words):
    assert words in refused(changed(key, value)).expected


def test_turns_are_not_asked_on():
    both = changed("prompts.turns", "all") | {"on_truncated": "continue"}
    assert "does not go with on_truncated: continue" in refused(both).expected


@pytest.mark.parametrize(
    ("key", "known"),
    [("datasets", "dataset"), ("prompts.paht", "path"), ("breaker.sahre", "share"), ("engine.url", "urls")],
)
def test_an_unknown_key_is_named_with_the_known_ones(key, known):
    error = refused(changed(key, 1))
    assert error.value == key
    assert known in error.expected.removeprefix("one of: ").split(", ")


def test_an_unknown_key_is_told_before_the_missing_one_it_stands_for():
    data = changed("sampling.max_tokens", 5)
    del data["sampling"]["max_new_tokens"]
    assert refused(data).value == "sampling.max_tokens"


@pytest.mark.parametrize(
    "key", ["dataset", "prompts", "model.name", "sampling.temperature", "sampling.top_p", "sampling.max_new_tokens"]
)
def test_a_missing_key_is_named(key):
    data = copy.deepcopy(MINIMAL)
    *parents, last = key.split(".")
    del (data[parents[0]] if parents else data)[last]
    assert refused(data).value == key


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("engine.urls", ["http://user:hunter2@host:30000"]),
        ("engine.urls", "http://user:hunter2@host:30000"),
        ("engine.urls", ["user:hunter2@host"]),
        ("engine", "http://user:hunter2@host:30000"),
        ("engine", ["http://user:hunter2@host:30000"]),
        ("engine.api_key_env", "sk-hunter2"),
        ("dataset", "s3://user:hunter2@bucket/x"),
        ("prompts.path", "https://user:hunter2@host/a.jsonl"),
        ("prompts.path", ["a.jsonl", "https://user:hunter2@host/a.jsonl"]),
    ],
)
def test_secrets_are_refused_and_never_shown(key, value):
    error = refused(changed(key, value))
    assert error.value.startswith(key.split(".")[0])
    assert "hunter2" not in str(error)
    assert "hunter2" not in repr(error)


@pytest.mark.parametrize(
    ("urls", "words"),
    [(["host:30000"], "http://"), (["ftp://host"], "'ftp'"), (["http://"], "http://"), ([], "at least 1 item")],
)
def test_urls_are_http(urls, words):
    assert words in refused(changed("engine.urls", urls)).expected


def test_urls_lose_their_last_slash():
    assert parse(changed("engine.urls", ["http://a:1/", "https://b/x/"])).engine.urls == ["http://a:1", "https://b/x"]


@pytest.mark.parametrize("key", ["breaker", "degenerate"])
def test_off_is_off_with_and_without_quotes(key):
    for text in ("off", '"off"', "false"):
        assert getattr(parse(changed(key, yaml.safe_load(text))), key) == "off"


def test_a_date_is_a_date_and_today_is_today():
    assert parse(changed("model.date", yaml.safe_load("2026-01-31"))).model.date == dt.date(2026, 1, 31)
    assert parse(changed("model.date", "today")).model.date == "today"


def test_what_a_recipe_writes_reads_back_the_same():
    recipe = parse(changed("model.date", "2026-01-31") | {"breaker": "off"})
    assert parse(recipe.model_dump(mode="json")) == recipe


def test_a_recipe_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        parse(MINIMAL).dataset = "other"


@pytest.mark.parametrize(
    ("dataset", "label"),
    [("/data/kimi", "kimi"), ("/data/kimi/", "kimi"), ("s3://bucket/a/b", "b"), ("s3://bucket", "bucket")],
)
def test_the_label_is_the_last_segment(dataset, label):
    assert parse(changed("dataset", dataset)).label == label


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "r.yaml"
    path.write_text(yaml.safe_dump(MINIMAL), encoding="utf-8")
    return path


def test_set_changes_one_value_as_yaml_would(file):
    recipe = load_recipe(
        file,
        (
            "sampling.temperature=0.6",
            "prompts.limit=null",
            "breaker=off",
            "engine.urls=[http://a:1, http://b:2]",
            "model.template_kwargs.thinking=true",
            "model.revision='0123'",
            "dataset=s3://b/x=y",
        ),
    )
    assert (recipe.sampling.temperature, recipe.prompts.limit, recipe.breaker) == (0.6, None, "off")
    assert recipe.engine.urls == ["http://a:1", "http://b:2"]
    assert recipe.model.template_kwargs == {"thinking": True}
    assert (recipe.model.revision, recipe.dataset) == ("0123", "s3://b/x=y")


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("sampling.temperature", "key=value"),
        ("=1", "key=value"),
        ("dataset.x=http://u:hunter2@h", "inside a value"),
        ("engine.urls=[http://u:hunter2@h", "not YAML"),
        ("engine.urls=http://u:hunter2@h", "wrong value"),
        ("samplings.temperature=1", "unknown key"),
    ],
)
def test_a_wrong_set_is_refused_without_showing_its_value(file, assignment, words):
    with pytest.raises(RecipeError) as caught:
        load_recipe(file, (assignment,))
    assert words in caught.value.what + caught.value.expected
    assert caught.value.remedy
    assert "hunter2" not in str(caught.value)


def test_local_paths_become_absolute_and_urls_stay(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = load_recipe(
        file, ("prompts.path=[a.jsonl, s3://b/*.jsonl]", "model.chat_template=t.jinja", "dataset=file:///d")
    )
    assert recipe.prompts.paths == [str(tmp_path / "a.jsonl"), "s3://b/*.jsonl"]
    assert recipe.model.chat_template == str(tmp_path / "t.jinja")
    assert recipe.dataset == "/d"
    assert load_recipe(file).dataset == str(tmp_path / "out")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is not a recipe"),
        (b"- a\n", "is not a recipe"),
        (b"a: [1\nsecret: hunter2\n", "is not YAML"),
        (b"\xff\xfe", "is not YAML"),
        (b"!!python/object:os.system {}", "is not YAML"),
    ],
)
def test_a_file_that_is_no_recipe_is_refused(tmp_path, content, words):
    path = tmp_path / "r.yaml"
    path.write_bytes(content)
    with pytest.raises(RecipeError, match=words) as caught:
        load_recipe(path)
    assert "hunter2" not in str(caught.value)


def test_a_missing_file_says_where_examples_are(tmp_path):
    with pytest.raises(RecipeError, match="deployments/recipes"):
        load_recipe(tmp_path / "none.yaml")

"""Which weights: each check refuses or warns once, and passes once, on recorded pages."""

from __future__ import annotations

from typing import Any

import pytest

from draftmill.engines import vllm
from draftmill.gate.table import NOT_SAID, Check, Level
from draftmill.gate.weights import weight_checks

LAST = [{"url": "http://h", "weight_version": "default"}]


@pytest.fixture
def check_of(recorded_report: Any, recipe_for: Any) -> Any:
    def check(name: str, *, last: Any = None, recipe: Any = None, **pages: Any) -> Check:
        checks = weight_checks(recorded_report(**pages), recipe_for(**(recipe or {})), last, sent=frozenset())
        return {each.name: each for each in checks}[name]

    return check


def test_the_recorded_server_is_the_one(check_of: Any) -> None:
    names = ("model", "revision", "quantization", "weight version")
    assert {check_of(name, last=LAST).level for name in names} == {Level.OK}


def test_another_model_refuses_and_both_its_names_are_shown(check_of: Any) -> None:
    seen = check_of("model", model={"served_model_name": "other"})
    assert seen.level is Level.REFUSE
    assert seen.seen == "other (from models/SmolLM2-135M-Instruct)"
    assert seen.expected == "smol"
    assert "--served-model-name" in seen.remedy


def test_the_path_a_server_was_started_with_is_a_name_too(check_of: Any) -> None:
    recipe = {"model__name": "models/SmolLM2-135M-Instruct"}
    assert check_of("model", recipe=recipe).level is Level.OK


@pytest.mark.parametrize(
    ("served", "path", "by_path", "by_name"),
    [
        ("org/smol", "org/smol", Level.OK, Level.OK),
        ("org/smol", "/models/x", Level.OK, Level.OK),
        ("alias", "org/smol", Level.OK, Level.REFUSE),  # a 404 for every row, where rows name their model
        ("alias", "/models/x", Level.REFUSE, Level.REFUSE),
    ],
)
def test_the_path_counts_only_where_requests_name_no_model(
    recorded_report: Any, recipe_for: Any, served: str, path: str, by_path: Level, by_name: Level
) -> None:
    report = recorded_report(model={"served_model_name": served}, server={"model_path": path})
    recipe = recipe_for(model__name="org/smol")
    for sent, level in ((frozenset[str](), by_path), (frozenset({"model"}), by_name)):
        assert weight_checks(report, recipe, None, sent=sent)[0].level is level


def test_what_vllm_cannot_say_is_no_fault_and_needs_no_remedy(recipe_for: Any) -> None:
    models = {"data": [{"id": "org/smol", "max_model_len": 8192, "root": "org/smol"}]}
    report = vllm.combined("http://h", {"version": "0.32.0"}, models)
    recipe = recipe_for(model__name="org/smol", model__revision="abc", model__quantization="fp8")
    checks = {each.name: each for each in weight_checks(report, recipe, None, sent=frozenset({"model"}))}
    for name in ("revision", "quantization"):
        assert (checks[name].level, checks[name].seen, checks[name].remedy) == (Level.OK, NOT_SAID, "")


@pytest.mark.parametrize(
    ("wanted", "said", "path", "level"),
    [
        (None, None, "x", Level.OK),
        (None, "abc", "x", Level.OK),
        ("abc", "abc", "x", Level.OK),
        ("abc", "def", "x", Level.REFUSE),
        ("abc", None, "/models/folder", Level.OK),
        ("abc", None, "owner/name", Level.WARN),  # the hub's newest, whatever that is
    ],
)
def test_a_revision(check_of: Any, wanted: Any, said: Any, path: str, level: Level) -> None:
    recipe = {"model__revision": wanted, "model__name": "owner/name"}
    server = {"revision": said, "model_path": path}
    assert check_of("revision", server=server, recipe=recipe).level is level


@pytest.mark.parametrize(
    ("wanted", "said", "level"),
    [
        (None, None, Level.OK),
        ("fp8", "fp8", Level.OK),
        ("fp8", None, Level.OK),  # a quantized checkpoint needs no flag
        (None, "fp8", Level.WARN),
        ("fp8", "awq", Level.REFUSE),
    ],
)
def test_a_quantization(check_of: Any, wanted: Any, said: Any, level: Level) -> None:
    seen = check_of("quantization", server={"quantization": said}, recipe={"model__quantization": wanted})
    assert seen.level is level


@pytest.mark.parametrize(
    ("weights", "said", "last", "level"),
    [
        ("stop", "w7", None, Level.OK),
        ("stop", "w7", [], Level.OK),
        ("stop", "w7", [{"weight_version": None}], Level.OK),
        ("stop", "default", LAST, Level.OK),
        ("stop", "w7", [*LAST, {"weight_version": "w7"}], Level.OK),
        ("stop", "w7", LAST, Level.REFUSE),
        ("record", "w7", LAST, Level.WARN),
        ("stop", None, LAST, Level.WARN),  # another engine, which tells none
    ],
)
def test_a_weight_version_against_the_newest_manifest(
    check_of: Any, weights: str, said: Any, last: Any, level: Level
) -> None:
    pages = {"model": {"weight_version": said}, "server": {"weight_version": said}}
    seen = check_of("weight version", last=last, recipe={"engine__weights": weights}, **pages)
    assert seen.level is level
    if level is Level.REFUSE:
        assert "engine.weights: record" in seen.remedy
        assert "another dataset" in seen.remedy
        assert "default" in seen.expected


def test_the_recorded_server_of_other_weights_refuses(check_of: Any) -> None:
    seen = check_of("weight version", last=LAST, model_info="trunc_model_info")
    assert (seen.level, seen.seen) == (Level.REFUSE, "w7")

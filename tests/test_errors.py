"""Errors keep their four parts on every way they can take."""

from __future__ import annotations

import copy
import pickle

import pytest

from draftmill import errors


@pytest.mark.parametrize("kind", errors.kinds())
def test_four_parts_are_in_the_message_and_survive_pickling(kind):
    error = kind("what failed", value={"a": 1}, expected="the known", remedy="do this")
    for again in (error, pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is kind
        assert str(again) == "what failed\n  got:      {'a': 1}\n  expected: the known\n  to do:    do this"
        assert again.exit_code == kind.exit_code


def test_a_value_that_cannot_be_pickled_does_not_stop_the_error():
    error = errors.DatasetError("w", value=lambda: None, expected="e", remedy="r")
    assert "lambda" in pickle.loads(pickle.dumps(error)).value


def test_exit_codes_are_those_that_scripts_rely_on():
    assert {kind.__name__: kind.exit_code for kind in errors.kinds()} == {
        "DraftmillError": 1,
        "RecipeError": 2,
        "SourceError": 1,
        "GateRefused": 4,
        "RunStopped": 5,
        "DatasetError": 1,
        "MissingPart": 1,
    }


def test_the_headline_is_one_line_and_names_the_cause_where_it_is_known():
    error = errors.GateRefused("the gate refuses", value="other weights\nand more", expected="e", remedy="r")
    assert error.headline == "the gate refuses: other weights"
    error = errors.RunStopped("the breaker stopped the run", value="v", expected="e", remedy="r", cause="a parser")
    again = pickle.loads(pickle.dumps(error))
    assert again.headline == "a parser (the breaker stopped the run)"
    assert len(errors.DraftmillError("w", value="v" * 9999, expected="e", remedy="r").headline) == 300

"""Recipes compared leaf by leaf."""

from __future__ import annotations

from draftmill.recipe_diff import Changed, recipe_diff


def test_fields_that_differ_by_their_dotted_names() -> None:
    old = {"a": 1, "sampling": {"top_p": 0.9, "top_k": -1}, "urls": ["x"], "gone": {"deep": "z"}}
    new = {"a": 1.0, "sampling": {"top_p": 0.95, "top_k": -1}, "urls": ["x", "y"], "come": None, "more": False}
    assert recipe_diff(old, new) == [
        Changed("sampling.top_p", 0.9, 0.95),
        Changed("urls", ["x"], ["x", "y"]),
        Changed("more", None, False),
        Changed("gone.deep", "z", None),
    ]


def test_a_mapping_in_place_of_a_value() -> None:
    assert recipe_diff({"variants": None}, {"variants": {"think": {"share": 1}}}) == [
        Changed("variants.think.share", None, 1)
    ]
    assert recipe_diff({"kwargs": {}}, {"kwargs": {"thinking": True}}) == [
        Changed("kwargs.thinking", None, True),
        Changed("kwargs", {}, None),
    ]
    assert recipe_diff({"x": 0}, {"x": False}) == [Changed("x", 0, False)]

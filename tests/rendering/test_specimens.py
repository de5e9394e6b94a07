"""What a server's tokenizer is held to: eight kinds of conversation, rendered as any prompt is."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from draftmill.judging.structure import Structure
from draftmill.records import Thinking
from draftmill.rendering.specimens import SWITCHES_SHOWN, Specimen, specimens
from draftmill.rendering.template import Refused, render_ids

TODAY = dt.date(2026, 5, 7)
STRUCTURE = Structure(
    "think", Thinking.OPENED_BY_PROMPT, (163606,), (163607,), (163586,), (163587,), (), (), 163839, ()
)


def named(tokenizer: Any, **template_kwargs: Any) -> dict[str, Specimen]:
    found = specimens(tokenizer, STRUCTURE, template_kwargs=template_kwargs, today=TODAY)
    return {each.name: each for each in found}


@pytest.fixture
def kimi(shaped: Any) -> Any:
    return shaped("kimi", "moonshotai-Kimi-K2.5")


def test_all_kinds_are_there_with_the_render_paths_ids(kimi: Any) -> None:
    found = named(kimi)
    kinds = {"one turn", "system", "several turns", "tools", "CJK", "numbers and white space", "typed marker"}
    assert kinds < found.keys()
    for each in found.values():
        ids = render_ids(kimi, each.messages, each.tools, template_kwargs=each.template_kwargs, date=TODAY)
        assert not isinstance(ids, Refused)
        assert each.renderings[0].tolist() == ids.tolist()  # type: ignore[union-attr]


def test_the_typed_marker_is_the_models_own(kimi: Any) -> None:
    typed = named(kimi)["typed marker"]
    assert "<think>" in typed.messages[0]["content"]
    assert "<|im_end|>" in typed.messages[0]["content"]
    assert typed.ids.tolist().count(163607) == 1  # type: ignore[union-attr]


def test_the_templates_own_switch_is_found_and_thrown(kimi: Any) -> None:
    switched = [each for each in named(kimi).values() if each.name.startswith("template_kwargs")]
    assert {"thinking": False} in [each.template_kwargs for each in switched]
    assert len(switched) <= SWITCHES_SHOWN
    one = named(kimi)["one turn"].ids.tolist()  # type: ignore[union-attr]
    assert all(each.ids.tolist() != one for each in switched)  # type: ignore[union-attr]


def test_the_recipes_own_kwargs_are_in_every_one(kimi: Any) -> None:
    found = named(kimi, thinking=False)
    assert all("thinking" in each.template_kwargs for each in found.values())
    assert found["one turn"].template_kwargs == {"thinking": False}


def test_a_template_without_a_switch_is_asked_with_one_it_does_not_read(shaped: Any) -> None:
    plain = shaped("bare", "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
    assert named(plain)["template_kwargs"].template_kwargs == {"enable_thinking": False}


def test_a_template_with_the_date_has_three_days_and_others_one(shaped: Any, kimi: Any) -> None:
    dated = shaped("bare", "{{ strftime_now('%d %b') }}{% for m in messages %}{{ m.content }}{% endfor %}")
    days = [ids.tolist() for ids in named(dated)["one turn"].renderings]  # type: ignore[union-attr]
    assert len({tuple(day) for day in days}) == 3
    assert dated.decode(days[0]).startswith("07 May")
    assert {len(each.renderings) for each in named(kimi).values()} == {1}


def test_what_a_template_refuses_is_a_value(shaped: Any) -> None:
    strict = shaped("bare", "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}x")
    assert named(strict)["system"].ids == Refused("no system")


def test_a_template_of_blocks_that_only_transformers_knows_is_asked_without_switches(shaped: Any) -> None:
    marked = shaped("bare", "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}")
    assert "template_kwargs" in named(marked)

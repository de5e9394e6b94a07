"""The page's colours: every text on every ground it stands on can be read, in the light and in the dark."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

STYLE = files("draftmill.reporting.page").joinpath("style.css").read_text()
LIGHT, DARK = (
    dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block)) for block in re.findall(r":root \{(.*?)\}", STYLE, re.S)
)

READABLE = 4.5
"""WCAG 2.2, 1.4.3: contrast of text."""

SEEN = 3.0
"""WCAG 2.2, 1.4.11: contrast of what is no text but has to be seen."""

OWN = ("prompt", "marker", "reasoning", "content", "end", "hit", "chosen", "page")
"""Colours with a ground of their own."""

TEXTS = [(f"{name}-fg", f"{name}-bg") for name in OWN] + [
    (text, ground) for text in ("page-fg", "muted-fg", "link-fg", "bad-fg") for ground in ("page-bg", "panel-bg")
]
MARKS = [(mark, ground) for mark in ("plot", "mask", "ring") for ground in ("page-bg",)]


def luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_computed_as_wcag_says() -> None:
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize(("text", "ground"), TEXTS)
def test_text_can_be_read(scheme: dict[str, str], text: str, ground: str) -> None:
    assert contrast(scheme[text], scheme[ground]) >= READABLE


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize(("mark", "ground"), MARKS)
def test_marks_can_be_seen(scheme: dict[str, str], mark: str, ground: str) -> None:
    assert contrast(scheme[mark], scheme[ground]) >= SEEN


def test_both_schemes_have_every_colour_and_no_other_is_used() -> None:
    assert LIGHT.keys() == DARK.keys()
    rules = re.sub(r":root \{.*?\}", "", STYLE, flags=re.S)
    assert not re.findall(r":[^;{}]*#[0-9a-f]{3,8}\b[^{]*;", rules)
    assert set(re.findall(r"var\(--([\w-]+)\)", STYLE)) <= LIGHT.keys()


def test_the_list_and_the_script_agree_on_an_entrys_height() -> None:
    script = files("draftmill.reporting.page").joinpath("js/list.js").read_text()
    (height,) = re.findall(r"ENTRY_PX = (\d+);", script)
    assert re.search(rf"\.entry {{[^}}]*height: {height}px", STYLE)

"""The report of 5,000 rows in Chromium: silent, asks nobody, and is driven by the keyboard alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from draftmill.reporting.page.build import page_html
from tests.e2e.report_tab import LARGEST_BYTES, opened
from tests.reporting import page_sample
from tests.reporting.page_sample import HOSTILE, WANTED

ROWS, BAD, LONG = 5000, 60, 70
"""Rows; how many of them, the first, are quarantined; which one is long."""

LONG_IDS = 30_000


def sample() -> list[dict[str, Any]]:
    rows = [page_sample.row(n, reason="truncated" if n < BAD else None) for n in range(ROWS)]
    rows[0] |= {"prompt_id": HOSTILE, "detail": HOSTILE}
    rows[LONG] = page_sample.row(LONG, length=LONG_IDS)
    return rows


SAMPLE = sample()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "00000007.html"
    data = page_sample.data(first_bad=SAMPLE[5]["key"], label=HOSTILE)
    path.write_text(page_html(data, page_sample.blocks(SAMPLE), page_sample.pieces()), encoding="utf-8")
    return path


def key(number: int) -> str:
    found: str = SAMPLE[number]["key"]
    return found


def test_the_file_is_small_enough_to_be_sent_around(file: Path) -> None:
    assert file.stat().st_size < LARGEST_BYTES


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("light", {"color_scheme": "light"}),
        ("dark", {"color_scheme": "dark"}),
        ("phone", {"color_scheme": "light", "viewport": {"width": 360, "height": 780}, "device_scale_factor": 2}),
    ],
)
async def test_all_of_it_is_drawn_within_the_width(file: Path, tmp_path: Path, name: str, settings: Any) -> None:
    async with opened(file.as_uri(), **settings) as report:
        await report.shows(key(0))
        await report.all_there()
        plots = report.find("figure svg")
        await expect(plots).to_have_count(8)
        for plot in await plots.all():
            assert await plot.get_attribute("aria-label")
        wide, width = await report.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide <= width
        titles = await report.find("main h2").all_text_contents()
        assert titles[0] == "What came out"
        assert titles[-1] == "Rows, id by id"
        await report.page.screenshot(path=tmp_path / f"{name}.png", full_page=True)


async def test_rows_are_looked_at_while_the_others_are_still_packed(file: Path) -> None:
    async with opened(file.as_uri()) as report:
        # The browser is never idle here, so nothing is unpacked but what is asked for.
        await report.page.add_init_script("window.requestIdleCallback = () => 0;")
        await report.page.reload()
        await report.shows(key(0))
        await expect(report.find("#found")).to_have_text(
            re.compile(rf"^{ROWS:,} rows of {ROWS:,}\. Still unpacking: 2 %")
        )
        await report.find("#list").focus()
        await report.press("End")
        await report.shows(key(ROWS - 1))
        await expect(report.find("#found")).to_contain_text("Still unpacking: 4 %")


async def test_from_row_to_row_and_id_to_id_by_keys(file: Path) -> None:
    async with opened(file.as_uri()) as report:
        await report.shows(key(0))
        await report.press("j", "j", "k")
        await report.shows(key(1))
        await report.find("#list").focus()
        await report.press("ArrowDown")
        await report.shows(key(2))
        active = await report.find("#list").get_attribute("aria-activedescendant")
        await expect(report.find(f"#{active}")).to_have_attribute("aria-selected", "true")
        await report.press("Enter", "ArrowRight", "ArrowRight", "ArrowLeft")
        await expect(report.focused).to_have_attribute("data-at", "1")
        await expect(report.find("#token")).to_contain_text(f"id {SAMPLE[2]['ids'][1]} position 1 of 300, prompt")
        await report.press("End")
        await expect(report.find("#token")).to_contain_text("position 299 of 300, end, raw piece <|end|>")
        await report.press("j")
        await report.shows(key(3))
        await expect(report.focused).to_have_attribute("data-at", "0")  # still among the ids


async def test_the_mask_is_switched_by_key_and_told(file: Path) -> None:
    async with opened(file.as_uri()) as report:
        await expect(report.find("#flow .t")).to_have_count(300)
        for name, intervals in (("completion", [(37, 300)]), ("content", [(151, 300)]), ("reasoning", [(37, 151)])):
            await report.press("m")
            await expect(report.find(f"#mask-{name}")).to_be_checked()
            on = await report.find("#flow .t.on").evaluate_all("cells => cells.map((cell) => Number(cell.dataset.at))")
            assert on == [at for start, end in intervals for at in range(start, end)]
        await expect(report.find("#token")).to_have_text("Mask reasoning: 114 of 300 ids supervised, underlined.")
        await report.press("m")
        await expect(report.find("#flow .t.on")).to_have_count(0)


async def test_a_mask_switched_while_a_long_row_is_drawn_holds_to_its_end(file: Path) -> None:
    async with opened(f"{file.as_uri()}#row={SAMPLE[LONG]['key']}") as report:
        await report.shows(key(LONG))
        await report.press("m")
        await expect(report.find("#flow .t")).to_have_count(LONG_IDS)
        await expect(report.find("#flow .t.on")).to_have_count(LONG_IDS - LONG_IDS // 8)


async def test_an_id_is_found_in_all_rows_and_place_after_place(file: Path) -> None:
    having = [number for number, row in enumerate(SAMPLE) if WANTED in row["ids"]]
    async with opened(file.as_uri()) as report:
        await report.all_there()
        await report.find("#by").select_option("id")
        await report.press("Escape", "/")
        await report.page.keyboard.type(str(WANTED))
        await expect(report.find("#found")).to_contain_text(f"{len(having)} rows of")
        await report.press("Enter")
        await report.shows(key(having[0]))
        places = [at for at, found in enumerate(SAMPLE[having[0]]["ids"]) if found == WANTED]
        for place in places:
            await expect(report.focused).to_have_attribute("data-at", str(place))
            await report.press("n")
        await report.shows(key(having[1]))
        await report.press("N")
        await report.shows(key(having[0]))
        await expect(report.focused).to_have_attribute("data-at", str(places[-1]))


async def test_rows_are_found_by_key_prompt_and_reason(file: Path) -> None:
    async with opened(file.as_uri()) as report:
        await report.shows(key(0))
        await report.press("/")
        await report.page.keyboard.type(SAMPLE[17]["key"][:8])
        await expect(report.find("#found")).to_contain_text("1 row of")
        await report.press("Enter")
        await report.shows(key(17))
        await report.find("#query").fill("prompt-4999")
        await expect(report.find("#found")).to_contain_text("1 row of")
        await report.find("#query").fill("")
        await report.find("#reason").select_option(label="truncated")
        await expect(report.find("#found")).to_contain_text(f"{BAD} rows of")


async def test_a_link_leads_to_its_row(file: Path) -> None:
    async with opened(f"{file.as_uri()}#row={SAMPLE[4321]['key']}") as report:
        await report.shows(key(4321))
        await report.find("#reasons a").first.click()
        await report.shows(key(5))
        assert report.page.url.endswith(f"#row={SAMPLE[5]['key']}")


async def test_a_link_to_a_row_that_is_not_there_says_so(file: Path) -> None:
    async with opened(f"{file.as_uri()}#row=feed") as report:
        await expect(report.find("#missing")).to_contain_text("Row feed is not among the rows in this page")
        await report.shows(key(0))


async def test_on_paper_everything_is_unfolded_but_the_plots_numbers(file: Path) -> None:
    async with opened(file.as_uri()) as report:
        await report.shows(key(0))
        await report.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        await report.page.emulate_media(media="print")
        assert await report.find("#origins details[open]").count() > 0
        await expect(report.find("#origins details:not([open])")).to_have_count(0)
        await expect(report.find(".numbers details[open]")).to_have_count(0)
        await expect(report.find("#list")).to_be_hidden()
        await expect(report.find("#flow .t").first).to_be_visible()


async def test_a_long_row_is_there_at_once_and_to_its_end(file: Path) -> None:
    async with opened(f"{file.as_uri()}#row={SAMPLE[LONG]['key']}") as report:
        await report.shows(key(LONG))
        await report.find("#flow .t").first.focus()
        await report.press("End")
        await expect(report.focused).to_have_attribute("data-at", str(LONG_IDS - 1))
        await expect(report.find("#flow .t")).to_have_count(LONG_IDS)


async def test_hostile_text_is_shown_and_does_nothing(file: Path) -> None:
    async with opened(file.as_uri()) as report:
        await report.shows(key(0))
        for selector in ("h1", "#facts", "#flow", "#list"):
            text = await report.find(selector).inner_text()
            assert "</script><script>window.broken=1" in text
            assert not re.search("[\x00\x1b\u202e\ud800]", text)
        assert await report.find("#report img, #report script").count() == 0
        half = report.find("#flow .t.half").first
        assert await half.inner_text() == "\u27e8E2 96\u27e9"
        await half.hover()
        await expect(report.find("#token")).to_contain_text("half a character: bytes \u27e8E2 96\u27e9")


async def test_keys_of_one_letter_can_be_switched_off(file: Path) -> None:
    async with opened(file.as_uri()) as report:
        await report.shows(key(0))
        await report.press("?")
        await report.find("#single").uncheck()
        await report.press("j", "m")
        await report.shows(key(0))
        await expect(report.find("#mask-off")).to_be_checked()

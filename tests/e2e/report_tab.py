"""The report in a tab of Chromium. Whoever opens it also holds that it asks nobody and complains about nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.async_api import Locator, Page, async_playwright, expect

CHROMIUM = shutil.which("chromium")

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
ARGUMENTS += ["--disable-sync", "--no-first-run"]
"""A browser that itself asks nobody; as root it has no sandbox."""

LOADS_MS = 20_000
"""Milliseconds for something to be there, on a busy machine."""

LARGEST_BYTES = 8_000_000
"""Of a page, whatever the dataset."""

if CHROMIUM is None and os.environ.get("DRAFTMILL_E2E") != "all":
    pytest.skip("no chromium on this machine (Debian: apt-get install chromium)", allow_module_level=True)

expect.set_options(timeout=LOADS_MS)


@dataclass
class Report:
    """A tab with the report, and all that went out of it or was complained about."""

    page: Page
    asked: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def find(self, selector: str) -> Locator:
        return self.page.locator(selector)

    async def press(self, *keys: str) -> None:
        for key in keys:
            await self.page.keyboard.press(key)

    @property
    def title(self) -> Locator:
        return self.find("#row-title")

    @property
    def focused(self) -> Locator:
        return self.find("#flow .t:focus")

    async def shows(self, key: str) -> None:
        """The row of this key is the one shown, down to its ids."""
        await expect(self.title).to_contain_text(key)
        await expect(self.find("#flow .t").first).to_be_attached()

    async def all_there(self) -> None:
        await expect(self.find("#found")).not_to_contain_text("unpacking")


@asynccontextmanager
async def opened(url: str, **settings: Any) -> AsyncIterator[Report]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        context = await browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **settings})
        report = Report(await context.new_page())
        report.page.set_default_timeout(LOADS_MS)
        context.on("request", lambda request: report.asked.append(request.url))
        report.page.on("console", lambda message: report.said.append(message.text))
        report.page.on("pageerror", lambda error: report.said.append(str(error)))
        await report.page.goto(url)
        yield report
        broken = await report.page.evaluate("window.broken")
        await browser.close()
    assert report.said == []
    assert {found for found in report.asked if not found.startswith("data:")} == {url.partition("#")[0]}
    assert broken is None

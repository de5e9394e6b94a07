"""Prefect's UI as a person uses it: a password, a deployment's form, a run's page with its button, its artifacts.

Whatever the pages ask for and complain about is noted: a test says at its end what it puts up with.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

from playwright.async_api import ConsoleMessage, Locator, Page, Request, Response, expect

RUN_MS = 120_000
"""Milliseconds for a run to come to an end."""

LOADS_MS = 20_000
"""Milliseconds for a page to show something, on a busy machine."""

BUSY = 503
"""SQLite is locked for a moment on a loaded machine: one clicks again."""

PREFECTS_OWN = re.compile(r"404 .*\.(svg|ico)$")
"""Pictures that Prefect's own pages name and do not have."""


class Pages:
    """One tab of a browser. `shots`: the folder for pictures of what was seen."""

    def __init__(self, page: Page, url: str, shots: Path) -> None:
        self.page, self.url, self._shots = page, url, shots
        self.elsewhere: set[str] = set()
        self.complaints: list[str] = []
        page.set_default_timeout(LOADS_MS)
        page.on("request", self._asked)
        page.on("response", self._answered)
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _asked(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("blob", "data") and parts.hostname != "127.0.0.1":
            self.elsewhere.add(request.url)

    def _answered(self, response: Response) -> None:
        line = f"{response.status} {response.url}"
        if response.status >= 400 and not PREFECTS_OWN.search(line):
            self.complaints.append(line)

    def _said(self, message: ConsoleMessage) -> None:
        # What could not be loaded is in `_answered`, with its address: the pages log it as a class's shortened name.
        if message.type == "error" and "Failed to load resource" not in message.text and " " in message.text:
            self.complaints.append(message.text)

    async def shot(self, name: str) -> None:
        await self.page.screenshot(path=self._shots / f"{name}.png", full_page=True)

    async def log_in(self, password: str) -> None:
        await self.page.goto(self.url)
        await self.page.get_by_placeholder("admin:pass").fill(password)
        await self.page.keyboard.press("Enter")
        await expect(self.page.get_by_text("Deployments", exact=True).first).to_be_visible()
        # Without the password the pages could not know whether there is one, and say so.
        self.complaints.clear()

    async def open_form(self, deployment: str) -> None:
        """The form of "Custom run", from the list of deployments."""
        await self.page.get_by_text("Deployments", exact=True).first.click()
        links = self.page.locator('a[href*="/deployments/deployment/"]')
        await links.filter(has_text=re.compile(rf"^\s*{deployment}\s*$")).first.click()
        await self.page.get_by_role("button", name="Run", exact=True).click()
        await self.page.get_by_text("Custom run").click()
        await expect(self.page.get_by_text("Run Name")).to_be_visible()

    def field(self, label: str) -> Locator:
        """The input under a label of the form."""
        named = self.page.locator(".schema-form-property__label", has_text=re.compile(rf"^{label}( \(Optional\))?$"))
        return self.page.locator(".schema-form-property", has=named).last.locator("input, textarea").first

    async def submit(self) -> None:
        """Starts the run of the form, and opens its page."""
        button = self.page.get_by_role("button", name="Submit")
        async with self.page.expect_response("**/create_flow_run") as answer:
            await button.click()
        while (await answer.value).status == BUSY:
            self.complaints.clear()
            async with self.page.expect_response("**/create_flow_run") as answer:
                await button.click()
        run = (await (await answer.value).json())["id"]
        await self.page.locator(f'a[href*="{run}"]').first.click()
        await self.page.wait_for_url("**/flow-run/**")

    async def open_run(self, run: str) -> None:
        await self.page.goto(f"{self.url}/runs/flow-run/{run}")

    async def comes_to(self, state: str) -> None:
        """Waits until the run of this page is in the state of that name."""
        await expect(self.page.locator(".state-badge").first).to_have_text(state, timeout=RUN_MS)

    async def tab(self, name: str) -> None:
        await self.page.locator(".p-tab", has_text=name).click()

    async def text(self) -> str:
        """All that is to be read."""
        return await self.page.locator("body").inner_text()

    async def retry(self) -> None:
        """The run's own button, and yes."""
        await self.page.get_by_role("button", name="Retry", exact=True).click()
        await self.page.locator(".p-modal").get_by_role("button", name="Retry").click()

    async def artifact(self, key: str) -> str:
        """The text of the run's artifact, on a page of its own; the run's page is open again afterwards."""
        run = self.page.url
        await self.tab("Artifacts")
        await self.page.locator('a[href*="/artifacts/artifact/"]', has_text=key).first.click()
        await self.page.wait_for_url("**/artifacts/artifact/**")
        await expect(self.page.get_by_text("Show raw data")).to_be_visible()
        await self.shot(f"artifact-{key}")
        text = await self.text()
        await self.page.goto(run)
        return text

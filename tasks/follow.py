"""Where a run is, while it works: its name and its progress page in Prefect's UI.

One background task shows the last state of things every few seconds; what the
run does is only noted, so nothing waits for Prefect. A Prefect server that is slow,
away or restarted costs the page and nothing else: no fault of it reaches the run.

The follower is a `progress.Listener` that passes on all it hears, so the terminal's
bar and the log stay as they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import AsyncIterator
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Protocol
from uuid import UUID

from prefect.artifacts import ProgressArtifact, aupdate_progress_artifact
from prefect.client.orchestration import PrefectClient, get_client
from prefect.runtime import flow_run

from draftmill.progress import Listener, Rows, ServerStanding, listener, listening
from draftmill.redaction import without_secrets
from draftmill.reporting.progress_page import percent, progress_page
from tasks.receipts import artifact_key

SHOW_EVERY_S = 5.0
"""Seconds between two pages: an update takes the event loop 2 to 3 ms, a watching person waits no longer."""

ASK_S = 10.0
"""Seconds for Prefect's server to take a page; then the next one is tried, twice as long after it, at most ..."""

REST_S = 60.0
"""... this many seconds."""

LAST_S = 3.0
"""Seconds a run that is over waits for its last page."""

WINDOW_S = 60.0
"""Seconds over which a server's pace is taken: answers come whole, so a shorter one would jump."""

log = logging.getLogger("draftmill.follow")


class Followed(Protocol):
    """What is asked how it stands: the pool."""

    def rows(self) -> Rows: ...
    def standing(self) -> list[ServerStanding]: ...


class Follower:
    """What a page is made of. `dataset`: None until it is known; before that there is no page. `title`, `name`: what
    the run is called without and with its manifest; None: as Prefect calls it."""

    def __init__(self, heard: Listener) -> None:
        self.title: str | None = None
        self.name: str | None = None
        self.dataset: str | None = None
        self.pool: Followed | None = None
        self._heard = heard
        self._stage = "starting"
        self._wait: str | None = None
        self._complete = False
        self._rows: Rows | None = None
        self._tokens: deque[tuple[float, dict[str, int]]] = deque()

    def stage(self, text: str) -> None:
        self._stage, self._wait, self._rows = text, None, None
        self._heard.stage(text)

    def wait(self, text: str) -> None:
        self._wait = text
        self._heard.wait(text)

    def rows(self, rows: Rows) -> None:
        self._rows, self._wait = rows, None
        self._heard.rows(rows)

    def call(self, version: str) -> None:
        """What comes behind the title."""
        if self.title:
            self.name = f"{self.title} {version}"

    def end(self, words: str, *, complete: bool) -> None:
        """The run is over; the page keeps its last rows and servers. `complete`: also where there was nothing to do."""
        self._stage, self._wait, self._complete = f"ended: {words}", None, complete

    def page(self, now_s: float) -> tuple[float, str]:
        """Percent, and the page."""
        servers = self.pool.standing() if self.pool else []
        self._tokens.append((now_s, {server.url: server.tokens for server in servers}))
        while now_s - self._tokens[0][0] > WINDOW_S:
            self._tokens.popleft()
        rows = self._rows or (self.pool.rows() if self.pool else None)
        as_of = datetime.now(UTC).strftime("%H:%M:%S UTC")
        words = progress_page(
            self._stage, rows=rows, wait=self._wait, servers=servers, tokens_per_s=self._pace(now_s), as_of=as_of
        )
        return 100.0 if self._complete else percent(rows), words

    def _pace(self, now_s: float) -> dict[str, float]:
        then_s, then = self._tokens[0]
        if now_s <= then_s:
            return {}
        return {url: (tokens - then.get(url, 0)) / (now_s - then_s) for url, tokens in self._tokens[-1][1].items()}


_FOLLOWER: ContextVar[Follower | None] = ContextVar("draftmill_follower", default=None)


def about(title: str, dataset: str) -> None:
    """What the run is called ("refresh kimi-eagle3"), and its dataset: with it, where its page is."""
    if follower := _FOLLOWER.get():
        follower.title, follower.dataset = title, dataset


def aims_at(version: int) -> None:
    """The manifest that the run would seal: from now on its name has it."""
    if follower := _FOLLOWER.get():
        follower.call(f"v{version}")


def came_to(version: int, *, sealed: bool) -> None:
    """The manifest there is at the run's end, sealed by it or as it was before; 0: none."""
    if follower := _FOLLOWER.get():
        follower.call(f"v{version}{'' if sealed else ' unchanged'}" if version else "nothing sealed")


def watch(pool: Followed) -> None:
    """From now on the page has these servers."""
    if follower := _FOLLOWER.get():
        follower.pool = pool


@contextlib.asynccontextmanager
async def following() -> AsyncIterator[Follower]:
    """The run inside the block is shown; its last state too, unless it is cancelled: then nobody waits."""
    follower, over = Follower(listener()), asyncio.Event()
    token = _FOLLOWER.set(follower)
    shown = asyncio.create_task(_show(follower, over))
    try:
        with listening(follower):
            yield follower
        over.set()
        await asyncio.wait([shown], timeout=LAST_S)
    finally:
        _FOLLOWER.reset(token)
        shown.cancel()
        await asyncio.gather(shown, return_exceptions=True)


async def _show(follower: Follower, over: asyncio.Event) -> None:
    """Pages until the run is over, and then the last one."""
    screen, rest_s, last = Screen(), SHOW_EVERY_S, False
    while not last:
        last = over.is_set()
        try:
            async with asyncio.timeout(ASK_S):
                await screen.show(follower)
            rest_s = SHOW_EVERY_S
        except Exception as error:  # whatever it was: a page is no part of the data
            log.debug("no page: %r", error)
            rest_s = min(REST_S, 2 * rest_s)
        if not last:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(rest_s):
                    await over.wait()


class Screen:
    """What the UI has of a run: its name, and one artifact that is brought up to date."""

    def __init__(self) -> None:
        self._named: str | None = None
        self._artifact: UUID | None = None

    async def show(self, follower: Follower) -> None:
        """Raises what Prefect's client raises."""
        async with get_client() as client:
            await self._name(follower.name, client)
            if follower.dataset is None:
                return
            share, words = follower.page(time.monotonic())
            words = without_secrets(words)
            if self._artifact is None:
                self._artifact = await _new_artifact(follower.dataset, share, words, client)
            else:
                await aupdate_progress_artifact(self._artifact, share, description=words, client=client)

    async def _name(self, name: str | None, client: PrefectClient) -> None:
        if name and name != self._named and (run := flow_run.id):
            await client.update_flow_run(UUID(str(run)), name=name)
            self._named = name


async def _new_artifact(dataset: str, share: float, words: str, client: PrefectClient) -> UUID:
    artifact = ProgressArtifact(key=artifact_key(dataset, "progress"), progress=share, description=words)
    return (await artifact.acreate(client)).id

"""The contestants: each a command in a process of its own, over the same prompts and the same server."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml

from benchmarks.prompts import recipe_of
from benchmarks.scenario import Scenario

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Match:
    """What a contestant is given: a folder that is its own, the prompts as text and as ids, the server."""

    scenario: Scenario
    folder: Path
    texts: Path
    ids: Path
    url: str

    def recipe(self) -> Path:
        path = self.folder / "recipe.yaml"
        recipe = recipe_of(self.scenario, prompts=self.texts, dataset=self.folder / "dataset", url=self.url)
        path.write_text(yaml.safe_dump(recipe))
        return path


def plain_loop(match: Match) -> list[str]:
    return [sys.executable, str(HERE / "plain_loop.py"), match.url, str(match.ids), str(match.scenario.in_flight)]


def pool_alone(match: Match) -> list[str]:
    return [sys.executable, str(HERE / "pool_alone.py"), str(match.recipe()), str(match.ids)]


def whole_run(match: Match) -> list[str]:
    """The command as a user types it."""
    return [str(Path(sys.executable).with_name("draftmill")), "run", str(match.recipe())]


YARDSTICK = "plain"
CONTESTANTS: dict[str, Callable[[Match], list[str]]] = {
    YARDSTICK: plain_loop,
    "pool": pool_alone,
    "run": whole_run,
}
SAYS = {
    YARDSTICK: "plain aiohttp + orjson loop",
    "pool": "draftmill's generation alone",
    "run": "`draftmill run` as a whole",
}

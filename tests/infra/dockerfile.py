"""A Dockerfile's instructions: what our one uses of the language, and no more."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "infra" / "Dockerfile"


@dataclass(frozen=True, slots=True)
class Step:
    """`name` in capitals; `text` on one line, flags (`--from=build`) taken off; `stage` counts the FROM from 0."""

    stage: int
    name: str
    flags: dict[str, str]
    text: str

    @property
    def words(self) -> list[str]:
        """Of the exec form, or of the plain one."""
        found: list[str] = json.loads(self.text) if self.text.startswith("[") else self.text.split()
        return found


def steps(path: Path = DOCKERFILE) -> list[Step]:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")]
    found: list[Step] = []
    stage = -1
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if not line.strip():
            continue
        name, _, text = line.strip().partition(" ")
        flags, text = _flags(text.strip())
        stage += name == "FROM"
        found.append(Step(stage, name, flags, re.sub(r"\s{2,}", " ", text)))
    return found


def _flags(text: str) -> tuple[dict[str, str], str]:
    flags: dict[str, str] = {}
    while found := re.match(r"--([a-z]+)=(\S+)\s+", text):
        flags[found[1]] = found[2]
        text = text[found.end() :]
    return flags, text


def named(name: str) -> list[Step]:
    return [step for step in steps() if step.name == name]


def environment() -> dict[str, str]:
    """What the image's ENV lines set, of its last stage."""
    last = named("FROM")[-1].stage
    pairs = [word.partition("=") for step in named("ENV") if step.stage == last for word in step.words]
    return {name: value for name, _, value in pairs}

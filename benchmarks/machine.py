"""What a result must say of where it was made: command, commit, machine, versions."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

PACKAGES = ("aiohttp", "orjson", "prefect", "pyarrow", "numpy", "pandas")
_ROOT = Path(__file__).parents[1]


def head(command: list[str], title: str, *, notes: Sequence[str] = (), packages: Sequence[str] = PACKAGES) -> str:
    """The beginning of a result file. `notes`: what else a reader must know, a line each."""
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    lines = [
        f"# {title}",
        "",
        f"    {shlex.join(['python', *command])}",
        "",
        f"- commit {_commit()}",
        f"- {_processor()}, {os.cpu_count()} cores, {_memory_gib():.0f} GiB; {platform.platform()}",
        f"- Python {platform.python_version()}; {versions}",
        *(f"- {note}" for note in notes),
        "- medians, least and greatest in brackets; how to read it: benchmarks/README.md",
        "",
    ]
    return "\n".join(lines)


def command_line() -> list[str]:
    """How this process was started, from the repository's root."""
    return [os.path.relpath(sys.argv[0], _ROOT), *sys.argv[1:]]


def _commit() -> str:
    commit = _git("rev-parse", "--short", "HEAD")
    if commit is None:
        return "unknown"
    return f"{commit} with uncommitted changes" if _git("status", "--porcelain", "--untracked-files=no") else commit


def _git(*arguments: str) -> str | None:
    """What git says; None where this is no clone."""
    result = subprocess.run(["git", *arguments], cwd=_ROOT, capture_output=True, text=True)
    return result.stdout.strip() if result.returncode == 0 else None


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30

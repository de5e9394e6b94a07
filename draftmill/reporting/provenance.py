"""What made a manifest: draftmill and the packages under it, tokenizer and template, the servers' own words, who.

With the manifest's recipe, identity and structures it says of every row that the
version brought how it was made (`origin` finds the version). The servers' words
come redacted from the gate.
"""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import draftmill
from draftmill.dataset.create_only import who

PACKAGES = (
    "aiohttp",
    "fsspec",
    "jinja2",
    "numpy",
    "orjson",
    "pandas",
    "prefect",
    "pyarrow",
    "pydantic",
    "renderers",
    "s3fs",
    "tokenizers",
    "transformers",
)
"""Those whose version can change what a row is, which rows stand, or how they are stored."""

GIT_TIMEOUT_S = 5.0
"""Seconds for one look at the clone's state: more means a broken disk or git, and neither is this run's matter."""


def provenance(prepared: Mapping[str, Any], reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """`prepared`: hashes of tokenizer and template; `reports`: the gate's, empty when nothing was asked. Blocks."""
    return {
        "draftmill": draftmill.__version__,
        "revision": _revision(),
        "python": platform.python_version(),
        "packages": {name: metadata.version(name) for name in PACKAGES},
        **prepared,
        "servers": list(reports),
        "sealed_by": who(),
    }


@cache
def _revision() -> str | None:
    """The commit of the clone that runs, "-dirty" behind it where files were changed; None for an installed package."""
    root = Path(draftmill.__file__).parents[1]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=GIT_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):  # no git, or a clone that is another user's
        return None
    return found.stdout.strip() or None

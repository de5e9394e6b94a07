"""What made a manifest: package versions, tokenizer and template, the servers' own words (redacted)."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

import draftmill

PACKAGES = ("prefect", "transformers", "tokenizers", "jinja2", "pyarrow", "aiohttp", "numpy")
"""Those whose version can change what a row is or how it is stored."""


def provenance(prepared: Mapping[str, Any], reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """`prepared`: hashes of tokenizer and template; `reports`: the gate's, empty when nothing was asked."""
    return {
        "draftmill": draftmill.__version__,
        "python": platform.python_version(),
        "packages": {name: metadata.version(name) for name in PACKAGES},
        **prepared,
        "servers": list(reports),
    }

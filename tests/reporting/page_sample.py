"""A report's data and rows as the page takes them, without a dataset: as large and as hostile as a test wants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from draftmill.reporting.pieces import TokenPiece

HOSTILE = (
    "</script><script>window.broken=1</script><!-- \x1b[2J \u202egnp \x00 \ud800 <img src=x onerror=window.broken=1>"
)
"""Everything a row's text could try on a page or a terminal."""

OPEN, CLOSE, END, HALF, NEWLINE, BAD_ID = 1, 2, 3, 4, 5, 99_999
WORDS = 2000

WANTED = 77_777
"""An id that only some rows have (see `row`)."""


def pieces() -> dict[int, TokenPiece]:
    marks = {OPEN: "<think>", CLOSE: "</think>", END: "<|end|>"}
    return {
        **{token_id: TokenPiece(text, text) for token_id, text in marks.items()},
        HALF: TokenPiece("\u27e8E2 96\u27e9", "\u00e2\u0138", half=True),
        NEWLINE: TokenPiece("\\n", "\u010a"),
        WANTED: TokenPiece(" wanted", "\u0120wanted"),
        6: TokenPiece(HOSTILE, HOSTILE),
        **{7 + n: TokenPiece(f" word{n}", f"\u0120word{n}") for n in range(WORDS)},
    }


def row(number: int, *, length: int = 300, reason: str | None = None, **changes: Any) -> dict[str, Any]:
    """A row: an eighth prompt, then reasoning, its marker, content and the end. Every 50th contains WANTED thrice."""
    dice = np.random.default_rng(number)
    prompt, close = length // 8, length // 2
    ids = (7 + dice.zipf(1.3, length) % WORDS).tolist()
    ids[20::21] = [NEWLINE] * len(ids[20::21])
    ids[prompt - 1], ids[close], ids[close + 2], ids[close + 3], ids[-1] = OPEN, CLOSE, HALF, 6, END
    ids[close + 5] = BAD_ID
    if number % 50 == 3:
        for at in (prompt + 1, close - 2, length - 3):
            ids[at] = WANTED
    made = {
        "key": f"{number * 7919:08x}" + "0" * 56,
        "prompt_id": f"prompt-{number}",
        "variant": "default",
        "sample": 0,
        "attempt": 0,
        "reason": reason,
        "detail": "a loop of 12 ids" if reason else "",
        "finish_reason": "stop",
        "prompt_len": prompt,
        "ids": ids,
        "parts": [
            [prompt, "prompt"],
            [close, "reasoning"],
            [close + 1, "marker"],
            [length - 1, "content"],
            [length, "end"],
        ],
        "masks": {
            "completion": [[prompt, length]],
            "reasoning": [[prompt, close + 1]],
            "content": [[close + 1, length]],
        },
    }
    return made | changes


def blocks(rows: Sequence[dict[str, Any]], size: int = 100) -> list[list[dict[str, Any]]]:
    return [list(rows[start : start + size]) for start in range(0, len(rows), size)]


def lengths(mean: float, seed: int) -> dict[str, Any]:
    found = np.random.default_rng(seed).lognormal(np.log(mean), 0.7, 5000).astype(int) + 1
    counts, edges = np.histogram(found, np.unique(np.geomspace(1, found.max() + 1, 41).round()))
    quantiles = {f"p{q}": int(np.percentile(found, q)) for q in (10, 50, 90, 99)}
    bins = [[float(lo), float(hi), int(n)] for lo, hi, n in zip(edges[:-1], edges[1:], counts, strict=True)]
    return {"n": len(found), "mean": float(found.mean()), "quantiles": quantiles, "bins": bins}


def data(total: int = 5000, embedded: int = 5000, first_bad: str | None = None, **changes: Any) -> dict[str, Any]:
    curve = [[int(k), float(1 - 0.9 * np.exp(-k / 9000))] for k in np.unique(np.geomspace(1, 90_000, 64).round())]
    at = [[k, float(1 - 0.9 * np.exp(-k / 9000))] for k in (8192, 16384, 32768, 65536)]
    course = [[t, 4000 + 800 * np.sin(t / 90), 6.1 + np.sin(t / 50), min(256, 20 + t), 256] for t in range(0, 3600, 15)]
    return {
        "dataset": "s3://draftmill/kimi-k2.5",
        "label": "kimi-k2.5",
        "manifest": 7,
        "created_at": "2026-11-30T22:14:03.120Z",
        "parent": 6,
        "draftmill": "0.1.0",
        "counts": {
            "good_rows": 4874,
            "quarantined_rows": 126,
            "rejected": 12,
            "run": {
                "rows": {"planned": 5000, "generated": 4990, "resumed": 10, "pending": 0},
                "reasons": {"truncated": 101, "degenerate": 25},
                "requests": 5033,
                "retries": 33,
                "tokens": {"prompt": 912_331, "output": 9_823_311},
            },
        },
        "reasons": [
            {
                "reason": "truncated",
                "rows": 101,
                "meaning": "The answer was cut by max_new_tokens, and on_truncated says to set such rows aside.",
                "example": first_bad,
            },
            {"reason": "degenerate", "rows": 25, "meaning": "The end repeats itself.", "example": None},
        ],
        "finish": [{"finish_reason": "stop", "rows": 4899}, {"finish_reason": "length", "rows": 101}],
        "cut_in_reasoning": {"rows": 61, "share": 0.0122},
        "attempts": {"0": 4811, "1": 63},
        "lengths": {
            "prompt": lengths(180, 1),
            "reasoning": lengths(1400, 2),
            "content": lengths(500, 3),
            "output": lengths(2000, 4),
        },
        "drift": {
            "compared_with": 6,
            "warnings": ["reasoning is 1.4 times as long: median 1,390 where it was 990"],
            "notes": ["Shares are compared with Fisher's test."],
            "tables": [{"name": "lengths", "lines": [["reasoning, median", 1390, 990, "+40 %"]]}],
        },
        "course": {"step_s": 15, "points": course},
        "arrivals": [[1_790_000_000 + 60 * n, 80 + n % 7, 160_000 + n] for n in range(60)],
        "servers": [{"url": "http://10.0.0.1:30000", "engine": "sglang 0.5.23", "context_length": 262_144}],
        "coverage": {"mask": "completion", "supervised": 9_823_311, "distinct": 90_000, "at": at, "curve": curve},
        "round_trip": {"rows": 500, "changed": 23, "share": 0.046, "interval": [0.031, 0.068]},
        "recipe": {"dataset": "s3://draftmill/kimi-k2.5", "sampling": {"temperature": 1.0, "top_p": 0.95}},
        "provenance": {"draftmill": "0.1.0", "tokenizer": {"files": {"tokenizer.json": "ab" * 32}}},
        "structures": {"default": {"name": "kimi", "thinking": "opened_by_prompt", "open_ids": [OPEN]}},
        "rows": {"total": total, "embedded": embedded, "how": "Quarantined ones first, then good ones evenly by key."},
    } | changes

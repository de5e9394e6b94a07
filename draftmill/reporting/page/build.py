"""The page itself: data, rows, styles, scripts and plots in one HTML file that asks nobody for anything.

The page must be safe to open although its data is not: rows hold what models and
strangers wrote. So nothing of the data is ever HTML. It lies in the file as JSON
or packed, the scripts set it as text only, and a content security policy allows
exactly the scripts and styles below, by their hash, and no request at all. The
same data gives the same file.

The plots are Observable Plot's on d3, vendored (vendor/README.md).
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any

from draftmill.reporting.page.packing import embedded, pack
from draftmill.reporting.pieces import TokenPiece
from draftmill.reporting.plain_text import plain

Block = Sequence[Mapping[str, Any]]
"""About 100 rows, unpacked together."""

LIBRARIES = ("d3.min.js", "plot.umd.min.js")

SCRIPTS = (
    "dom.js",
    "numbers.js",
    "plots.js",
    "sections.js",
    "record.js",
    "store.js",
    "list.js",
    "tokens.js",
    "search.js",
    "keys.js",
    "main.js",
)
"""In the order they are run; together they are one script."""

PLOT_CLASS = "figure"
"""Of every plot's SVG (js/plots.js)."""

PLOT_STYLE = (
    f":where(.{PLOT_CLASS}) {{\n  --plot-background: white;\n  display: block;\n  height: auto;\n"
    f"  height: intrinsic;\n  max-width: 100%;\n}}\n:where(.{PLOT_CLASS} text),\n:where(.{PLOT_CLASS} tspan) {{\n"
    "  white-space: pre;\n}"
)
"""The style that Observable Plot puts into every SVG; the policy allows it by its hash."""


def page_html(data: Mapping[str, Any], blocks: Sequence[Block], pieces: Mapping[int, TokenPiece]) -> str:
    """One page.

    `data`: PageData as JSON; `blocks`: the rows to look at, in the order they are listed; `pieces`: of every id in
    them, empty where the tokenizer is not at hand. Raises ValueError: a number is not finite.
    """
    style = "\n" + _file("style.css")
    scripts = [_file(f"vendor/{name}") for name in LIBRARIES] + [_script()]
    texts = {str(token_id): [piece.text, piece.raw, int(piece.half)] for token_id, piece in pieces.items()}
    parts = {
        "TITLE": html.escape(plain(f"{data['label']} {data['manifest']} - draftmill")),
        "POLICY": policy(scripts, [style, PLOT_STYLE]),
        "STYLE": style,
        "DATA": embedded(data),
        "INDEX": pack(list(_index(blocks))),
        "PIECES": pack(texts),
        "BLOCKS": "\n".join(
            f'<script type="text/plain" class="block">{pack(list(block))}</script>' for block in blocks
        ),
        "SCRIPTS": "\n".join(f"<script>{script}</script>" for script in scripts),
    }
    # One pass over the template: what is put in is not looked through again, so no data can name a place.
    head, *rest = _file("template.html").split("{{")
    return head + "".join(parts[name] + after for name, _, after in (part.partition("}}") for part in rest))


def policy(scripts: Sequence[str], styles: Sequence[str]) -> str:
    """Nothing but these; an empty picture keeps browsers from asking for an icon."""
    return (
        f"default-src 'none'; script-src {_hashes(scripts)}; style-src {_hashes(styles)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _index(blocks: Sequence[Block]) -> Iterator[list[Any]]:
    """What the list of rows shows, before any block is unpacked; js/store.js reads it by place."""
    for number, block in enumerate(blocks):
        for row in block:
            length = len(row["ids"])
            yield [row["key"], row["prompt_id"], row["variant"], row["reason"], row["finish_reason"], length, number]


def _script() -> str:
    """Ours, in a function of its own: nothing of it is seen outside."""
    return '(() => {\n"use strict";\n' + "\n".join(_file(f"js/{name}") for name in SCRIPTS) + "\n})();"


def _hashes(texts: Sequence[str]) -> str:
    digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts)
    return " ".join(f"'sha256-{digest}'" for digest in digests)


def _file(name: str) -> str:
    return files("draftmill.reporting.page").joinpath(name).read_text(encoding="utf-8")

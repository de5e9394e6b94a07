"""Where a run is, as the page that Prefect's UI shows while it works: a line in plain words, then the servers.

The first line has no markup: other readers (`draftmill up`) show it alone. A
server's own words stand in the table, made safe for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from draftmill.progress import Rows, ServerStanding
from draftmill.reporting.plain_text import plain

WORDS_SHOWN = 160
"""Characters of a server's words: a proxy's error page is longer than the table is wide."""

SERVER_COLUMNS = ("server", "state", "in flight", "limit", "rows answered", "tokens/s")


def progress_page(
    stage: str,
    *,
    rows: Rows | None = None,
    wait: str | None = None,
    servers: Sequence[ServerStanding] = (),
    tokens_per_s: Mapping[str, float] | None = None,
    as_of: str,
) -> str:
    """`stage`: what the run does; `wait`: what it waits for; `tokens_per_s`: by a server's URL, of late; `as_of`: a
    time of day."""
    head = f"{stage}: {rows_line(rows)}" if rows else stage
    parts = [cell(head)]
    if wait:
        parts.append(f"Waiting: {cell(wait)}")
    if servers:
        parts.append(table(SERVER_COLUMNS, [_server(server, tokens_per_s or {}) for server in servers], left=2))
    return "\n\n".join([*parts, f"As of {as_of}."])


def rows_line(rows: Rows) -> str:
    """`120 of 240 rows, 1,234 tokens/s, about 0:04:10 left`."""
    left = "" if rows.left_s is None or rows.done >= rows.total else f", about {clock(rows.left_s)} left"
    return f"{rows.done:,} of {rows.total:,} rows, {rows.tokens_per_s:,.0f} tokens/s{left}"


def percent(rows: Rows | None) -> float:
    """How far it is, 0 to 100."""
    return 100.0 * min(rows.done, rows.total) / rows.total if rows and rows.total else 0.0


def table(columns: Sequence[str], lines: Sequence[Sequence[str]], *, left: int) -> str:
    """A markdown table; its first `left` columns are words, the others numbers. Cells are safe already (`cell`)."""
    rule = ["---" if number < left else "---:" for number in range(len(columns))]
    return "\n".join(f"| {' | '.join(line)} |" for line in (columns, rule, *lines))


def cell(text: str) -> str:
    """Anybody's text on one line of markdown, without markup of its own."""
    safe = plain(" ".join(text.split()))
    for character in "\\`*_[]<>|":
        safe = safe.replace(character, f"\\{character}")
    return safe


def clock(seconds: float) -> str:
    """`1:02:03`."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"


def short(text: str, characters: int = WORDS_SHOWN) -> str:
    """Its beginning."""
    return text if len(text) <= characters else text[:characters] + "..."


def _server(server: ServerStanding, tokens_per_s: Mapping[str, float]) -> list[str]:
    numbers = (server.in_flight, server.limit, server.answers, round(tokens_per_s.get(server.url, 0.0)))
    return [cell(server.url), cell(short(server.state)), *(f"{number:,}" for number in numbers)]

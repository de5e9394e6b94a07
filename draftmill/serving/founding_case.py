"""`make demo-reasoning`: why draftmill keeps ids, told on the terminal.

One question to a Kimi-shaped model: what a chat API would have given, what the
ids are, and what becomes of servers that spoil them, one at least for each
reason code. All of it is computed while you watch, by the client and the judge
that a run uses; only the server is a fake. Nothing outside this machine is
asked, nothing is kept.

Ends with 0 when every spoiled answer was found by its name, else with 1.
"""

from __future__ import annotations

import asyncio
import io
import logging
import sys
import tempfile
from pathlib import Path

from draftmill.errors import DraftmillError
from draftmill.reporting import terminal
from draftmill.serving.corruptions import ABORTED_ONCE, GROUPS
from draftmill.serving.founding_exchange import ask
from draftmill.serving.founding_story import Spoiled, Story, is_named
from draftmill.serving.kimi_case import FoundingCase, hybrid_case, kimi_case
from draftmill.serving.shaped import KIMI

INTERRUPTED = 130
"""Exit status of a command ended by Ctrl-C, as shells have it."""


def main() -> int:
    """Tells the story; the exit status."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without middle dots shows the story all the same
    logging.getLogger("transformers").setLevel(logging.ERROR)
    try:
        with tempfile.TemporaryDirectory(prefix="draftmill-kimi-") as folder:
            kimi, hybrid = kimi_case(Path(folder) / "kimi"), hybrid_case(Path(folder) / "hybrid")
            return asyncio.run(_tell(kimi, hybrid))
    except DraftmillError as error:
        terminal.print_error(error)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED


async def _tell(kimi: FoundingCase, hybrid: FoundingCase) -> int:
    story = Story(kimi)
    story.question()
    story.by_text()
    story.by_ids(await ask(kimi))
    story.spoiling()
    spoiled: list[Spoiled] = []
    for group in GROUPS:
        together = [(one, await ask(kimi if one.shape is KIMI else hybrid, one)) for one in group.corruptions]
        story.spoiled(group.title, together)
        spoiled += together
    story.recovered(await ask(kimi, ABORTED_ONCE))
    story.end(spoiled)
    return 0 if all(is_named(corruption, exchange) for corruption, exchange in spoiled) else 1


if __name__ == "__main__":
    sys.exit(main())

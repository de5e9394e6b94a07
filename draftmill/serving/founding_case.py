"""`make demo-reasoning`: why draftmill keeps ids, told on the terminal.

One question to a Kimi-shaped model: what a chat API would have given, what the
ids are, and what becomes of five servers that spoil them. All of it is computed
while you watch, by the client and the judge that a run uses; only the server is
a fake. Nothing outside this machine is asked, nothing is kept.

Ends with 0 when every spoiled answer was found, 1 when one passed for good.
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
from draftmill.serving.founding_story import Story
from draftmill.serving.kimi_case import ABORTED_ONCE, CORRUPTIONS, Exchange, KimiCase, ask, kimi_case

INTERRUPTED = 130
"""Exit status of a command ended by Ctrl-C, as shells have it."""


def main() -> int:
    """Tells the story; the exit status."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without middle dots shows the story all the same
    logging.getLogger("transformers").setLevel(logging.ERROR)
    try:
        with tempfile.TemporaryDirectory(prefix="draftmill-kimi-") as folder:
            return asyncio.run(_tell(kimi_case(Path(folder))))
    except DraftmillError as error:
        terminal.print_error(error)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED


async def _tell(case: KimiCase) -> int:
    story = Story(case)
    story.question()
    story.through_a_chat_api()
    story.by_ids(await ask(case))
    spoiled: list[Exchange] = []
    for number, corruption in enumerate(CORRUPTIONS, start=1):
        spoiled.append(await ask(case, corruption))
        story.spoiled(number, corruption, spoiled[-1])
    story.recovered(await ask(case, ABORTED_ONCE))
    story.end(spoiled)
    return 0 if all(exchange.verdict.reason for exchange in spoiled) else 1


if __name__ == "__main__":
    sys.exit(main())

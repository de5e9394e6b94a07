"""What runs that died on this machine have left in their journals, brought into the dataset.

A machine may have several journals of one dataset: that of a run, and one for
each partition of a fan-out. Whoever opens the dataset there uploads what nobody
holds, so that a killed process costs only what it had not committed yet. A
partition's journal goes once all of it is in the dataset.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from pathlib import Path

from draftmill.dataset.completions import upload_part
from draftmill.dataset.journal import MAIN, Journal, journals
from draftmill.dataset.storage import Storage
from draftmill.errors import DatasetError

log = logging.getLogger("draftmill.journal")


def upload_tails(storage: Storage, *, held: Path | None = None) -> list[str]:
    """The paths of the parts that came of it. Blocks. Raises DatasetError when the dataset cannot be written.

    `held`: the caller's own journal. One that another process holds is left to it.
    """
    parts = []
    for path in journals(storage.url):
        if path == held:
            continue
        with ExitStack() as opened:
            try:
                journal = opened.enter_context(Journal(path))
            except DatasetError as error:
                log.info("%s is left as it is: %s", path.name, error.what)
                continue
            if part := upload_part(storage, journal):
                parts.append(part.path)
            if path.stem != MAIN:
                journal.discard()
    return parts

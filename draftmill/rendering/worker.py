"""The other side of `processes`: a process that renders pieces of a source until its run ends.

    python -m draftmill.rendering.worker FD

FD is its end of a pipe. In comes the recipe, answered when the tokenizer is
loaded, then LOADED tables, each answered with what `render_prompts` gives or
raises. It ends when the pipe does, however the run ended: no worker outlives
its run, not even one that was killed.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection

import pyarrow as pa

from draftmill.errors import DraftmillError
from draftmill.recipe import Recipe
from draftmill.rendering.render import Rendered, render_prompts
from draftmill.rendering.tokenizer import load_tokenizer

Reply = Rendered | Exception | None


def main() -> None:
    # The pipe ends with the run, in the middle of a message too.
    with contextlib.suppress(EOFError, ConnectionError), Connection(int(sys.argv[1])) as pipe:
        recipe: Recipe = pipe.recv()
        pipe.send(_reply(partial(_load, recipe)))
        while True:
            pipe.send(_reply(partial(render_prompts, table_of(pipe.recv_bytes()), recipe)))


def bytes_of(table: pa.Table) -> pa.Buffer:
    """A table as an Arrow stream: of a slice only the slice, which pickle would send with all that is around it."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue()


def table_of(data: bytes) -> pa.Table:
    """The table of `bytes_of`."""
    return pa.ipc.open_stream(data).read_all()


def _load(recipe: Recipe) -> None:
    load_tokenizer(recipe.model)


def _reply(work: Callable[[], Reply]) -> Reply:
    try:
        return work()
    except DraftmillError as error:
        return error
    except Exception:
        # A fault of ours, of any type: not all of them survive the way, their words do.
        return RuntimeError(f"in a process that renders:\n{traceback.format_exc()}")


if __name__ == "__main__":
    main()

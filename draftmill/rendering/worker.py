"""The other side of `processes`: a process that renders pieces of a source until its run ends.

    python -m draftmill.rendering.worker FD

FD is its end of a pipe. In comes the recipe, answered when the tokenizer is
loaded, then LOADED tables, each answered with what `render_prompts` gives or
raises. Every request comes with a number, which its answer repeats. It ends when
the pipe does, however the run ended: no worker outlives its run, not even one
that was killed.
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
        # Plain tuples: here this module is __main__, and the other side knows no class of that.
        number, recipe = pipe.recv()
        pipe.send((number, _reply(partial(_load, recipe))))
        while True:
            number, data = pipe.recv()
            pipe.send((number, _reply(partial(_render, data, recipe))))


def bytes_of(table: pa.Table) -> bytes:
    """A table as an Arrow stream: of a slice only the slice, which pickle would send with all that is around it."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def table_of(data: bytes) -> pa.Table:
    """The table of `bytes_of`."""
    return pa.ipc.open_stream(data).read_all()


def _load(recipe: Recipe) -> None:
    load_tokenizer(recipe.model)


def _render(data: bytes, recipe: Recipe) -> Rendered:
    return render_prompts(table_of(data), recipe)


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

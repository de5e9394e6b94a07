"""How a flow ends: in a state whose name and first line say why, whatever was raised.

The first line of a failed run's message is its likely cause, since a notification,
the list of runs and `draftmill up` show no more of it; the error's four parts follow.
The state is named after the error, and its data is the error itself, so that the
command line ends as if it had been raised (flows/launch.py). What nobody foresaw
is logged with its traceback and ends the run as `Failed`.

Second lock behind `draftmill.redaction`: no value of an environment variable that
looks like a secret's is in a message.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, ParamSpec

from prefect import State
from prefect.states import Failed

from draftmill.errors import DraftmillError
from draftmill.redaction import without_secrets
from tasks.follow import following
from tasks.run_log import on_the_run_page
from tasks.watched import watched

P = ParamSpec("P")

log = logging.getLogger("draftmill.run")

own_ends: ContextVar[list[State[Any]] | None] = ContextVar("own_ends", default=None)
"""A list, set by who runs a flow, takes the state in which its body ended, which the server may refuse."""


def followed(body: Callable[P, Awaitable[State[Any]]]) -> Callable[P, Awaitable[State[Any]]]:
    """A flow's body, shown while it works (tasks/follow.py), logged on the run's page, ending as a state."""

    @functools.wraps(body)
    async def run(*args: P.args, **kwargs: P.kwargs) -> State[Any]:
        on_the_run_page()
        async with watched(), following() as follower:
            try:
                state = await body(*args, **kwargs)
            except DraftmillError as error:
                state = failed(error)
            except Exception as error:
                log.exception("the run met an error that nobody foresaw")
                state = _unforeseen(error)
            if (ends := own_ends.get()) is not None:
                ends.append(state)
            first = (state.message or "").split("\n")[0]
            follower.end(f"{state.name}: {first}".removesuffix(": "), complete=state.is_completed())
            return state

    # Prefect makes a form of the types, and would look their names up in this module.
    signature = inspect.signature(body, eval_str=True)
    vars(run)["__signature__"] = signature
    run.__annotations__ = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    return run


def failed(error: DraftmillError) -> State[Any]:
    """The state of a run that an error ended."""
    return Failed(
        name=type(error).__name__, message=without_secrets(f"{error.headline}\n\n{error.details}"), data=error
    )


def _unforeseen(error: Exception) -> State[Any]:
    words = f"{type(error).__name__}: {error}".strip()
    remedy = (
        "This is a fault of draftmill, or of what it stands on: the run's log has the traceback; finished rows are kept"
    )
    return Failed(message=without_secrets(f"{words}\n\n{remedy}"), data=error)

"""Why a run ends before all rows were asked, in the four parts of an error."""

from __future__ import annotations

from draftmill.errors import RunStopped
from draftmill.records import Fault, FaultKind


def unknown_error(error: Exception) -> RunStopped:
    """Something went wrong that no table decides about."""
    return RunStopped(
        "the pool met an error it does not know",
        value=f"{type(error).__name__}: {error}",
        expected="an answer or a fault",
        remedy="this is a fault of draftmill: please report it with the log; finished rows are kept",
    )


def stop_error(url: str, fault: Fault, wait_s: float) -> RunStopped:
    """What the table decided: no server can be reached, or one refuses every request."""
    if fault.kind is FaultKind.CONNECT:
        return RunStopped(
            "no server can be reached any more",
            value=fault.words,
            expected=f"an answer within {wait_s:.0f} s",
            remedy="start the server and run the same command again: finished rows are kept",
        )
    return RunStopped(
        f"{url} refuses every request",
        value=fault.words,
        expected="HTTP 200",
        remedy="correct engine.urls or the key (engine.api_key_env) and run again: finished rows are kept",
    )


def not_planned() -> RunStopped:
    """Rows turned up in a run that looked at no server because everything seemed finished."""
    return RunStopped(
        "completions are gone that the plan counted on",
        value="an object in completions/ was removed while the run began",
        expected="it to stay until its rows are sealed",
        remedy="run the same command again: the rows are planned anew",
    )

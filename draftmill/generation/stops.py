"""Why a run ends before all rows were asked, in the four parts of an error."""

from __future__ import annotations

from collections.abc import Sequence

from draftmill.errors import RunStopped
from draftmill.generation.servers import Server
from draftmill.records import Fault, FaultKind


def unknown_error(error: BaseException) -> RunStopped:
    """Something went wrong that no table decides about."""
    return RunStopped(
        "the pool met an error it does not know",
        value=f"{type(error).__name__}: {error}",
        expected="an answer or a fault",
        remedy="this is a fault of draftmill: please report it with the log; finished rows are kept",
    )


def refused(url: str, fault: Fault) -> RunStopped:
    """What the table decided: one server's answer speaks for all rows."""
    if fault.kind is FaultKind.OTHER_WEIGHTS:
        return RunStopped(
            f"{url} answers with other weights than at the start",
            value=fault.words,
            expected="one weight version for a whole run",
            remedy="serve the first weights again and run again: finished rows are kept; or set "
            "engine.weights: record, which goes on and stores each row's version",
            everywhere=True,
        )
    return RunStopped(
        f"{url} refuses every request",
        value=fault.words,
        expected="HTTP 200",
        remedy="correct engine.urls or the key (engine.api_key_env) and run again: finished rows are kept",
    )


def all_gone(servers: Sequence[Server], wait_s: float) -> RunStopped:
    """No server could be used for longer than the recipe waits."""
    return RunStopped(
        "no server can be used any more",
        value="; ".join(f"{server.url}: {server.last_words}" for server in servers),
        expected=f"an answer within {wait_s:.0f} s (engine.wait_s)",
        remedy="start the server and run the same command again: finished rows are kept",
    )


def not_planned() -> RunStopped:
    """Rows turned up in a run that looked at no server because everything seemed finished."""
    return RunStopped(
        "completions are gone that the plan counted on",
        value="an object in completions/ was removed while the run began",
        expected="it to stay until its rows are sealed",
        remedy="run the same command again: the rows are planned anew",
    )

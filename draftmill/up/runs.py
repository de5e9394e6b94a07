"""The runs of one server, as its API knows them: what is new, what goes on, and how they come to an end.

The server is this machine's own and its only worker is ours, so a run of a deployment
that is `Running` while no worker is there has no process: it is said to have crashed,
and can be retried. Runs that people started from a shell (`draftmill run`) have a process
of their own and are let be.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Protocol

GOING = ("PENDING", "RUNNING", "CANCELLING")
"""Types of the states of a run that has, or had, a process."""

SHOWN = 100
"""Runs looked at in one question: the newest."""

LOOK_EVERY_S = 0.5
"""Seconds between two looks whether runs have ended."""

GONE = "its process is gone: `draftmill up` or its worker was killed; finished rows are kept, Retry asks for the rest"


class Api(Protocol):
    """`PrefectServer`, as far as it is needed here."""

    def ask(self, method: str, path: str, body: object = None) -> Any: ...


@dataclass(frozen=True, slots=True)
class Run:
    """`message`: the first line of its state's; `seconds`: since it began; `deployment`: id of its; `percent`: of its
    rows, once known."""

    id: str
    name: str
    state: str
    kind: str
    message: str
    seconds: float
    deployment: str | None
    begun: bool = True
    percent: float | None = None
    words: str = ""


class Watch:
    """What changed since the last look."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._since = datetime.now(UTC).isoformat()
        self._states: dict[str, str] = {}
        self.going: list[Run] = []

    def changes(self) -> list[Run]:
        """Runs that began or ended, in this order. Raises what `ask` raises."""
        going = _runs(self._api, {"state": {"type": {"any_": list(GOING)}}})
        begun = _runs(self._api, {"expected_start_time": {"after_": self._since}})
        found = {run.id: run for run in (*begun, *going)}
        for lost in [known for known, kind in self._states.items() if kind in GOING and known not in found]:
            found[lost] = _run(self._api.ask("GET", f"/flow_runs/{lost}"))
        changed = [run for run in found.values() if run.kind != "SCHEDULED" and self._states.get(run.id) != run.kind]
        self._states.update((run.id, run.kind) for run in changed)
        self.going = [_with_progress(self._api, run) for run in going if run.kind != "PENDING"]
        return [_named(self._api, run) for run in changed if run.kind not in ("PENDING", "CANCELLING")]


def deployed_runs(api: Api) -> list[Run]:
    """The runs of deployments that are not at an end."""
    return [run for run in _runs(api, {"state": {"type": {"any_": list(GOING)}}}) if run.deployment]


def cancel_deployed(api: Api) -> int:
    """Asks for the end of the runs of deployments; how many there were.

    Their rows in flight are aborted on the engine, the finished ones kept.
    """
    runs = deployed_runs(api)
    for run in runs:
        _set(api, run, "CANCELLING", "Cancelling", "`draftmill up` ends")
    return len(runs)


def wait_for_ends(api: Api, *, wait_s: float) -> bool:
    """Whether the runs of deployments have all ended within so many seconds."""
    deadline = time.monotonic() + wait_s
    while deployed_runs(api):
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_EVERY_S)
    return True


def give_up_dead(api: Api) -> list[Run]:
    """Says of every deployed run that goes on that it has crashed. Only while no worker and no run's process is there.

    One that was to be cancelled is cancelled: that is what somebody asked for.
    """
    runs = deployed_runs(api)
    for run in runs:
        if run.kind == "CANCELLING":
            _set(api, run, "CANCELLED", "Cancelled", GONE)
        else:
            _set(api, run, "CRASHED", "Crashed", GONE)
    return runs


def _set(api: Api, run: Run, kind: str, name: str, message: str) -> None:
    state = {"type": kind, "name": name, "message": message}
    api.ask("POST", f"/flow_runs/{run.id}/set_state", {"state": state, "force": kind != "CANCELLING"})


def _runs(api: Api, which: dict[str, Any]) -> list[Run]:
    body = {"flow_runs": which, "limit": SHOWN, "sort": "EXPECTED_START_TIME_DESC"}
    return [_run(found) for found in reversed(api.ask("POST", "/flow_runs/filter", body))]


def _run(found: dict[str, Any]) -> Run:
    state = found["state"] or {"type": "SCHEDULED", "name": "Scheduled", "message": None}
    return Run(
        id=found["id"],
        name=found["name"],
        state=state["name"],
        kind=state["type"],
        message=(state.get("message") or "").split("\n")[0],
        seconds=found.get("estimated_run_time") or 0.0,
        deployment=found["deployment_id"],
        begun=found["start_time"] is not None,
    )


def _with_progress(api: Api, run: Run) -> Run:
    """With the newest of its artifacts of Prefect's type "progress"."""
    which = {"flow_run_id": {"any_": [run.id]}, "type": {"any_": ["progress"]}}
    found = api.ask("POST", "/artifacts/filter", {"artifacts": which, "limit": 1, "sort": "CREATED_DESC"})
    if not found:
        return run
    (artifact,) = found
    return replace(run, percent=float(artifact["data"] or 0), words=(artifact["description"] or "").split("\n")[0])


def _named(api: Api, run: Run) -> Run:
    """One that never began (a second one at a time is refused) has no name but Prefect's dice: its deployment's."""
    if run.begun or run.deployment is None:
        return run
    return replace(run, name=api.ask("GET", f"/deployments/{run.deployment}")["name"])

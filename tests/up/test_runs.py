"""What is said of runs, from the API's answers."""

from __future__ import annotations

from typing import Any

from draftmill.up.runs import GONE, Run, Watch, cancel_deployed, give_up_dead, wait_for_ends


class FakeApi:
    """Prefect's API as far as it is asked: runs by id, in the order in which they were due."""

    def __init__(self) -> None:
        self.runs: dict[str, dict[str, Any]] = {}
        self.progress: dict[str, dict[str, Any]] = {}
        self.set: list[tuple[str, dict[str, Any]]] = []
        self.cancelled_at_once = True

    def put(
        self,
        name: str,
        kind: str,
        *,
        deployment: str | None = "d",
        old: bool = False,
        message: str = "",
        begun: bool = True,
    ) -> None:
        state = {"type": kind, "name": kind.title(), "message": message}
        self.runs[name] = {"id": name, "name": name, "state": state, "deployment_id": deployment}
        self.runs[name] |= {"estimated_run_time": 3.0, "old": old, "start_time": "now" if begun else None}

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        if path == "/flow_runs/filter":
            which = body["flow_runs"]
            if "expected_start_time" in which:
                return [run for run in reversed(self.runs.values()) if not run["old"]]
            kinds = which["state"]["type"]["any_"]
            return [run for run in reversed(self.runs.values()) if run["state"]["type"] in kinds]
        if path == "/artifacts/filter":
            (run,) = body["artifacts"]["flow_run_id"]["any_"]
            return [self.progress[run]] if run in self.progress else []
        if path.endswith("/set_state"):
            name = path.split("/")[2]
            self.set.append((name, body))
            kind = body["state"]["type"]
            self.put(name, "CANCELLED" if kind == "CANCELLING" and self.cancelled_at_once else kind)
            return {"status": "ACCEPT"}
        if path.startswith("/deployments/"):
            return {"name": f"deployment {path.split('/')[2]}"}
        return self.runs[path.split("/")[2]]


def names(runs: list[Run]) -> list[tuple[str, str]]:
    return [(run.name, run.kind) for run in runs]


def test_a_run_is_told_when_it_begins_and_when_it_ends() -> None:
    api = FakeApi()
    watch = Watch(api)
    assert watch.changes() == []
    api.put("a", "SCHEDULED")
    assert watch.changes() == []
    api.put("a", "PENDING")
    assert watch.changes() == []
    api.put("a", "RUNNING")
    assert names(watch.changes()) == [("a", "RUNNING")]
    assert watch.changes() == []
    assert names(watch.going) == [("a", "RUNNING")]
    api.put("a", "COMPLETED", message="6 new rows\nmore")
    (ended,) = watch.changes()
    assert (ended.kind, ended.message) == ("COMPLETED", "6 new rows")
    assert watch.changes() == watch.going == []


def test_a_run_between_two_looks_is_told_too() -> None:
    api = FakeApi()
    watch = Watch(api)
    api.put("short", "FAILED")
    api.put("refused", "CANCELLED")
    assert names(watch.changes()) == [("short", "FAILED"), ("refused", "CANCELLED")]


def test_a_run_that_never_began_is_called_after_its_deployment() -> None:
    api = FakeApi()
    watch = Watch(api)
    api.put("gentle-owl", "CANCELLED", begun=False)
    api.put("by-hand", "CANCELLED", begun=False, deployment=None)
    assert names(watch.changes()) == [("deployment d", "CANCELLED"), ("by-hand", "CANCELLED")]


def test_an_old_run_that_is_retried_is_told() -> None:
    api = FakeApi()
    watch = Watch(api)
    api.put("old", "FAILED", old=True)
    assert watch.changes() == []
    api.put("old", "RUNNING", old=True)
    assert names(watch.changes()) == [("old", "RUNNING")]
    api.put("old", "COMPLETED", old=True)
    assert names(watch.changes()) == [("old", "COMPLETED")]


def test_progress_is_the_runs_own_artifact() -> None:
    api = FakeApi()
    watch = Watch(api)
    api.put("a", "RUNNING")
    api.progress["a"] = {"data": 40.0, "description": "generating: 4 of 10 rows\n\n| table |"}
    watch.changes()
    (run,) = watch.going
    assert (run.percent, run.words) == (40.0, "generating: 4 of 10 rows")


def test_only_deployed_runs_are_cancelled() -> None:
    api = FakeApi()
    api.put("ours", "RUNNING")
    api.put("from a shell", "RUNNING", deployment=None)
    api.put("done", "COMPLETED")
    assert cancel_deployed(api) == 1
    assert wait_for_ends(api, wait_s=60)
    ((name, body),) = api.set
    assert (name, body["state"]["type"], body["force"]) == ("ours", "CANCELLING", False)


def test_a_run_that_does_not_end_is_not_waited_for_for_ever() -> None:
    api = FakeApi()
    api.cancelled_at_once = False
    api.put("stuck", "RUNNING")
    assert cancel_deployed(api) == 1
    assert not wait_for_ends(api, wait_s=0.01)
    assert api.runs["stuck"]["state"]["type"] == "CANCELLING"


def test_runs_without_a_process_have_crashed_and_say_why() -> None:
    api = FakeApi()
    api.put("running", "RUNNING")
    api.put("claimed", "PENDING")
    api.put("to be cancelled", "CANCELLING")
    api.put("from a shell", "RUNNING", deployment=None)
    api.put("later", "SCHEDULED")
    assert [run.name for run in give_up_dead(api)] == ["running", "claimed", "to be cancelled"]
    told = {name: body["state"] for name, body in api.set}
    assert {name: state["type"] for name, state in told.items()} == {
        "running": "CRASHED",
        "claimed": "CRASHED",
        "to be cancelled": "CANCELLED",
    }
    assert {state["message"] for state in told.values()} == {GONE}
    assert all(body["force"] for _, body in api.set)

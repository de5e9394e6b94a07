"""Alarms on a real Prefect server: what is told, to whom, and that setting them twice makes no second."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from aiohttp import web
from prefect import Flow
from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import get_client
from prefect.events import emit_event
from prefect.events.schemas.automations import AutomationCore
from prefect.settings import PREFECT_API_URL, PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
from prefect.states import Completed, Failed, Pending, Running, Scheduled, State

from draftmill.errors import DraftmillError, RecipeError, kinds
from flows import alarms
from flows.alarms import FAILED, SILENT, WAITING, failed_runs, set_alarms, silent_runs, waiting_runs
from flows.launch import FLOWS, TAG

SET = {SILENT: "created", FAILED: "created", WAITING: "created"}

TOLD_S = 60
"""Seconds for a notification on a loaded machine; 2 to 4 are usual."""


class Receiver:
    """An HTTP server that takes what a webhook is sent."""

    def __init__(self) -> None:
        self.url = ""
        self.bodies: asyncio.Queue[str] = asyncio.Queue()

    async def take(self, request: web.Request) -> web.Response:
        self.bodies.put_nowait(await request.text())
        return web.Response()

    async def next(self) -> dict[str, str]:
        body: dict[str, str] = json.loads(await asyncio.wait_for(self.bodies.get(), TOLD_S))
        return body


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    found = Receiver()
    application = web.Application()
    application.router.add_post("/secret-path", found.take)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}/secret-path"
    yield found
    await runner.cleanup()


@pytest.fixture(autouse=True)
async def _no_alarms() -> AsyncIterator[None]:
    yield
    async with get_client() as client:
        for automation in await client.read_automations():
            await client.delete_automation(automation.id)


async def _alarms(**options: Any) -> dict[str, str]:
    return await asyncio.to_thread(set_alarms, **({"silent_after": "10m"} | options))


async def _automations() -> dict[str, Any]:
    async with get_client() as client:
        found = await client.read_automations()
    assert len({each.name for each in found}) == len(found)
    return {each.name: each for each in found}


async def _end(
    state: State[Any], *, flow: str = "refresh", tags: tuple[str, ...] = (TAG,), deployed: bool = True
) -> str:
    """A run that comes to this state; its id."""
    async with get_client() as client:
        made = Flow(lambda: None, name=flow)
        flow_id = await client.create_flow(made)
        if deployed:
            deployment = await client.create_deployment(flow_id, f"for {flow} {','.join(tags)}", tags=list(tags))
            run = await client.create_flow_run_from_deployment(deployment, name=f"{flow} kimi v7")
        else:
            run = await client.create_flow_run(made, name=f"{flow} kimi v7", tags=list(tags))
        for each in (Running(), state):
            await client.set_flow_run_state(run.id, each, force=True)
    return str(run.id)


def _missing(cause: str) -> State[Any]:
    return Failed(name="RowsMissing", message=f"{cause}\n  got:      12 of 48 rows\n  to do:    Retry")


async def test_a_failed_run_is_told_with_its_cause_first(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIGHTLY_WEBHOOK", receiver.url)
    assert await _alarms(webhook_env="NIGHTLY_WEBHOOK") == SET
    cause = 'The server at http://kimi-0:30000 says "out of <memory>"; 36 rows'
    run = await _end(_missing(cause))
    lines = (await receiver.next())["text"].splitlines()
    page = f"{PREFECT_API_URL.value().removesuffix('/api')}/runs/flow-run/{run}"
    assert lines == [cause, "refresh kimi v7: RowsMissing", page]
    for automation in (await _automations()).values():
        assert "secret-path" not in automation.model_dump_json()


async def test_through_a_notification_block(receiver: Receiver) -> None:
    block = CustomWebhookNotificationBlock(
        name="chat", url=receiver.url, json_data={"subject": "{{subject}}", "body": "{{body}}"}
    )
    await block.save("nightly", overwrite=True)
    await _alarms(notify="custom-webhook/nightly")
    await _end(_missing("no server answers"))
    told = await receiver.next()
    assert told["subject"] == "no server answers"
    assert told["body"].startswith("refresh kimi v7: RowsMissing\nhttp")


async def test_what_is_not_told(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIGHTLY_WEBHOOK", receiver.url)
    await _alarms(webhook_env="NIGHTLY_WEBHOOK")
    await _end(_missing("another team's flow"), tags=())
    await _end(_missing("its fan-out tells it"), flow="partition")
    await _end(_missing("somebody sits at the terminal"), deployed=False)
    await _end(Completed(name="PartialSuccess", message="3 rows in quarantine"))
    await _end(Completed())
    await _end(Failed(message="the only one"))
    assert (await receiver.next())["text"].startswith("the only one\n")
    assert receiver.bodies.empty()


async def _set(*wanted: AutomationCore) -> None:
    async with get_client() as client:
        for automation in wanted:
            await client.create_automation(automation)


async def _state(run: str) -> str:
    async with get_client() as client:
        found = await client.read_flow_run(UUID(run))
    assert found.state is not None
    return found.state.name or ""


def _beat(run: str, *tags: str) -> None:
    """As Prefect's engine sends it."""
    related = [{"prefect.resource.id": f"prefect.tag.{tag}", "prefect.resource.role": "tag"} for tag in tags]
    emit_event("prefect.flow-run.heartbeat", {"prefect.resource.id": f"prefect.flow-run.{run}"}, related=related)


async def test_silence(receiver: Receiver) -> None:
    await Webhook(url=receiver.url).save("nightly", overwrite=True)
    async with get_client() as client:
        block = await client.read_block_document_by_name("nightly", "webhook")
    # Prefect bears no shorter span.
    await _set(silent_runs(10), waiting_runs(block, 10))
    late = Scheduled(name="Late", scheduled_time=datetime.now(UTC))
    silent, strange, done = await _end(Running()), await _end(Running(), tags=("other",)), await _end(Running())
    await _end(late, flow="compact")
    taken = await _end(late, flow="rerun")
    for run, tag in ((silent, TAG), (strange, "other"), (done, TAG)):
        _beat(run, tag)
    async with get_client() as client:
        # A name that Prefect does not know, and a heartbeat that comes after the end.
        await client.set_flow_run_state(UUID(done), _missing("12 rows"))
        await client.set_flow_run_state(UUID(taken), Pending())
    _beat(done, TAG)
    told = await receiver.next()
    assert told["text"].startswith("No worker has taken a run that is due")
    assert "compact kimi v7: Late" in told["text"]
    deadline = time.monotonic() + TOLD_S
    while await _state(silent) == "Running" and time.monotonic() < deadline:
        await asyncio.sleep(0.5)
    assert (await _state(silent), await _state(strange), await _state(done)) == ("Crashed", "Running", "RowsMissing")
    assert receiver.bodies.empty()


async def test_quarantined_rows_are_told_on_demand(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIGHTLY_WEBHOOK", receiver.url)
    await _alarms(webhook_env="NIGHTLY_WEBHOOK", partial=True)
    await _end(Completed(name="PartialSuccess", message="3 rows in quarantine"), flow="fan-out")
    assert (await receiver.next())["text"].startswith("3 rows in quarantine\nfan-out kimi v7: PartialSuccess\n")


async def test_twice_changes_them_and_makes_no_second(receiver: Receiver) -> None:
    await Webhook(url=receiver.url).save("nightly", overwrite=True)
    assert await _alarms(notify="webhook/nightly") == SET
    async with get_client() as client:
        await client.pause_automation((await _automations())[WAITING].id)
    again = await _alarms(notify="webhook/nightly", silent_after="20m")
    assert again == {SILENT: "updated", FAILED: "updated", WAITING: "updated; it is paused"}
    found = await _automations()
    assert set(found) == set(SET)
    assert found[SILENT].trigger.within.total_seconds() == 1200
    assert (found[FAILED].enabled, found[WAITING].enabled) == (True, False)
    # Without a block, what was set is left as it is.
    assert await _alarms() == {SILENT: "updated"}
    assert set(await _automations()) == set(SET)


async def test_every_error_of_ours_is_told(receiver: Receiver) -> None:
    await Webhook(url=receiver.url).save("nightly", overwrite=True)
    async with get_client() as client:
        block = await client.read_block_document_by_name("nightly", "webhook")
    wanted = {kind.__name__ for kind in kinds()} | {"Failed", "Crashed", "RowsMissing"}
    assert {f"prefect.flow-run.{name}" for name in wanted} <= failed_runs(block).trigger.expect


async def test_a_block_that_is_not_there(receiver: Receiver) -> None:
    await Webhook(url=receiver.url).save("nightly", overwrite=True)
    for name in ("slack-webhook/nightly", "nightly", "webhook/"):
        with pytest.raises(RecipeError) as error:
            await _alarms(notify=name)
        assert "webhook/nightly" in error.value.expected
        assert name in str(error.value)
    assert await _automations() == {}


@pytest.mark.parametrize(
    ("span", "wanted"), [("5m", "540s or more"), ("ten", "write it as 10m"), ("06:00", "write it as 10m")]
)
async def test_a_span_that_cannot_be(span: str, wanted: str) -> None:
    with pytest.raises(RecipeError, match=wanted):
        await _alarms(silent_after=span)


async def test_the_span_follows_the_heartbeats() -> None:
    with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: 30}):
        assert await _alarms(silent_after="90s") == {SILENT: "created"}


async def test_without_a_server() -> None:
    with temporary_settings({PREFECT_API_URL: None}), pytest.raises(DraftmillError, match="PREFECT_API_URL"):
        await _alarms()


async def test_no_webhook_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NIGHTLY_WEBHOOK", raising=False)
    with pytest.raises(RecipeError, match="NIGHTLY_WEBHOOK is not set"):
        await _alarms(webhook_env="NIGHTLY_WEBHOOK")
    with pytest.raises(RecipeError, match="one of the two"):
        await _alarms(webhook_env="NIGHTLY_WEBHOOK", notify="webhook/nightly")


def test_the_flows_that_are_told_exist() -> None:
    assert {flow.name for flow in FLOWS.values()} <= set(alarms.NOTIFIED)


async def test_a_run_of_the_command_line_is_watched_too(
    mill: Any, start_run: Callable[..., Awaitable[asyncio.subprocess.Process]]
) -> None:
    mill.prompts(["one"])
    process = await start_run(mill.recipe_file(), "--plan")
    assert await process.wait() == 0
    async with get_client() as client:
        runs = await client.read_flow_runs()
    (run,) = [each for each in runs if each.tags and each.parameters.get("plan_only")]
    assert run.tags == [TAG]
    assert run.name == "plan dataset v1"
    beat = await _first_beat(str(run.id))
    assert f"prefect.tag.{TAG}" in [each["prefect.resource.id"] for each in beat["related"]]


async def _first_beat(run: str) -> dict[str, Any]:
    """Events are stored some moments after the run."""
    wanted = {"event": {"name": ["prefect.flow-run.heartbeat"]}, "resource": {"id": [f"prefect.flow-run.{run}"]}}
    deadline = time.monotonic() + TOLD_S
    async with get_client() as client:
        while not (found := (await client.request("POST", "/events/filter", json={"filter": wanted})).json()["events"]):
            assert time.monotonic() < deadline, "no heartbeat"
            await asyncio.sleep(0.5)
    first: dict[str, Any] = found[-1]
    return first

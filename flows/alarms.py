"""Alarms: what Prefect's server does by itself when a run falls silent, fails, or is started by nobody.

    silent     a run whose heartbeats stop -> Crashed: it can be retried, and its place in the queue is free
    failed     a run of a deployment that failed or crashed -> a notification, the likely cause in its first line
    waiting    a run that is due and that no worker takes -> a notification

Each is an automation on the server, found again by its name: setting them twice
changes them, and makes no second. Only runs with the tag of ours are looked at,
since a server has other people's flows. One that was paused stays so.

Promises: the webhook's URL stays in the block that has it, encrypted by Prefect;
here, in the automations and in errors it is only the block's name.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from datetime import timedelta

from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.objects import BlockDocument, StateType
from prefect.events.actions import CallWebhook, ChangeFlowRunState, SendNotification
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError
from prefect.settings import get_current_settings

from draftmill.errors import DraftmillError, RecipeError, kinds
from draftmill.generation.night import span_s
from flows.launch import TAG, check_server

SILENT, FAILED, WAITING = "draftmill: silent runs", "draftmill: failed runs", "draftmill: runs nobody starts"
"""The automations' names."""

NOTIFIED = ("refresh", "rerun", "compact", "export", "fan-out", "pilot")
"""Flows whose failure is told. A partition's is its fan-out's, which goes on with the others."""

BEATS = 3
"""Heartbeats that must be missing: one is lost when the server restarts, two when a network is slow as well."""

HEARTBEAT_MIN_S = 30
"""Seconds between two heartbeats at least, whatever Prefect is told."""

WEBHOOK_NAME = "draftmill-alarms"
"""The Webhook block made from an environment variable."""

_MESSAGE = "(flow_run.state.message or '').strip() or flow_run.state.name"
_CAUSE = "{{ (" + _MESSAGE + ").splitlines()[0] }}"
_UNTAKEN = "No worker has taken a run that is due: is one running, and has its limit room?"

_Action = CallWebhook | SendNotification


def set_alarms(
    *, silent_after: str, notify: str | None = None, webhook_env: str | None = None, partial: bool = False
) -> dict[str, str]:
    """Name of each automation -> created, updated, or updated and paused.

    `notify`: a block's type and name (slack-webhook/nightly). `webhook_env`: in place of it, the variable with a URL.
    Raises DraftmillError: no server or no access, no such block, a span that cannot be.
    """
    silent_s = _silent_s(silent_after)
    if notify and webhook_env:
        raise RecipeError(
            "notifications go one way",
            value="--notify and --webhook-env",
            expected="one of the two",
            remedy="leave one out",
        )
    return asyncio.run(_set_alarms(silent_s, notify, webhook_env, partial=partial))


async def _set_alarms(silent_s: int, notify: str | None, webhook_env: str | None, *, partial: bool) -> dict[str, str]:
    url = get_current_settings().api.url
    if not url:
        raise DraftmillError(
            "alarms belong to a Prefect server, and none is configured",
            value="PREFECT_API_URL is not set",
            expected="the address of the server that the runs report to",
            remedy="set it (export PREFECT_API_URL=http://127.0.0.1:4200/api, or Prefect's profile)",
        )
    await check_server(url)
    try:
        async with get_client() as client:
            wanted = [silent_runs(silent_s)]
            if webhook_env:
                notify = await _save_webhook(webhook_env)
            if notify:
                block = await _block(client, notify)
                wanted += [failed_runs(block, partial=partial), waiting_runs(block, silent_s)]
            return {automation.name: await _set(client, automation) for automation in wanted}
    except PrefectHTTPStatusError as error:
        raise DraftmillError(
            "the Prefect server refuses the alarms",
            value=f"{url}: {error.response.status_code}",
            expected="an answer to a client that may change automations",
            remedy="set PREFECT_API_AUTH_STRING to the server's user:password, or read the server's log",
        ) from error


def silent_runs(silent_s: int) -> AutomationCore:
    """Marks a run Crashed that has sent no event for `silent_s` seconds after a heartbeat."""
    minutes = f"{silent_s / 60:g} minutes"
    return AutomationCore(
        name=SILENT,
        description=f"draftmill alarms: a run without a sign of life for {minutes} is marked Crashed.",
        tags=[TAG],
        trigger=EventTrigger(
            posture=Posture.Proactive,
            match={"prefect.resource.id": "prefect.flow-run.*"},
            match_related=_tagged(),
            for_each={"prefect.resource.id"},
            after={"prefect.flow-run.heartbeat"},
            # Not a list of final states: ours have names of their own, and one that was forgotten would be marked.
            expect={"prefect.flow-run.*"},
            within=timedelta(seconds=silent_s),
        ),
        actions=[
            ChangeFlowRunState(
                state=StateType.CRASHED,
                message=f"No sign of life for {minutes}: the run's process or its machine is gone\n"
                "  to do:    Retry; finished rows are kept and only the missing ones are asked",
            )
        ],
    )


def failed_runs(block: BlockDocument, *, partial: bool = False) -> AutomationCore:
    """Tells a failed or crashed run of a deployment; `partial`: one with quarantined rows, too."""
    # An event has the name of its state.
    names = ["Failed", "Crashed", "TimedOut", "RowsMissing", *(kind.__name__ for kind in kinds())]
    names += ["PartialSuccess"] if partial else []
    return AutomationCore(
        name=FAILED,
        description="draftmill alarms: a failed run of a deployment is told, its likely cause first.",
        tags=[TAG],
        trigger=_deployed(expect={f"prefect.flow-run.{name}" for name in names}),
        actions=[_notification(block, first=_CAUSE)],
    )


def waiting_runs(block: BlockDocument, waits_s: int) -> AutomationCore:
    """Tells a run that is late and has not begun `waits_s` seconds after."""
    trigger = _deployed(expect={"prefect.flow-run.*"}).model_copy(
        update={
            "posture": Posture.Proactive,
            "after": {"prefect.flow-run.Late"},
            "within": timedelta(seconds=waits_s),
        }
    )
    return AutomationCore(
        name=WAITING,
        description=f"draftmill alarms: a run that nobody starts for {waits_s / 60:g} minutes is told.",
        tags=[TAG],
        trigger=trigger,
        actions=[_notification(block, first=_UNTAKEN)],
    )


def _tagged() -> dict[str, str | list[str]]:
    return {"prefect.resource.id": f"prefect.tag.{TAG}", "prefect.resource.role": "tag"}


def _deployed(*, expect: set[str]) -> EventTrigger:
    """Reacts to runs of deployments; who runs a command sees its end."""
    return EventTrigger(
        posture=Posture.Reactive,
        match={"prefect.resource.id": "prefect.flow-run.*"},
        match_related=[
            _tagged(),
            {"prefect.resource.role": "flow", "prefect.resource.name": list(NOTIFIED)},
            {"prefect.resource.role": "deployment"},
        ],
        for_each={"prefect.resource.id"},
        expect=expect,
    )


def _notification(block: BlockDocument, *, first: str) -> _Action:
    rest = "{{ flow_run.name }}: {{ flow_run.state.name }}\n" + f"{_ui()}/runs/flow-run/{{{{ flow_run.id }}}}"
    if _slug(block) == "webhook":
        # What Slack, Mattermost and others take from a plain webhook. Escaped last: a cause may hold quotes.
        text = "{% set text %}" + f"{first}\n{rest}" + "{% endset %}"
        return CallWebhook(block_document_id=block.id, payload=text + '{"text": {{ text | string | tojson }}}')
    return SendNotification(block_document_id=block.id, subject=first, body=rest)


def _ui() -> str:
    settings = get_current_settings()
    return (settings.ui_url or (settings.api.url or "").removesuffix("/api")).rstrip("/")


async def _set(client: PrefectClient, automation: AutomationCore) -> str:
    found = await client.read_automations_by_name(automation.name)
    if not found:
        await client.create_automation(automation)
        return "created"
    changed = automation.model_copy(update={"enabled": found[0].enabled})
    await client.update_automation(found[0].id, changed)
    return "updated" if changed.enabled else "updated; it is paused"


async def _save_webhook(variable: str) -> str:
    url = os.environ.get(variable)
    if not url:
        raise RecipeError(
            "the webhook's URL is not in the environment",
            value=f"{variable} is not set",
            expected="a variable with the whole URL",
            remedy=f"export {variable}=..., or name a block with --notify",
        )
    webhook = Webhook(url=url, headers={"Content-Type": "application/json"})
    await webhook.save(WEBHOOK_NAME, overwrite=True)
    return f"webhook/{WEBHOOK_NAME}"


async def _block(client: PrefectClient, notify: str) -> BlockDocument:
    slug, _, name = notify.partition("/")
    found: BlockDocument | None = None
    with contextlib.suppress(ObjectNotFound):
        found = await client.read_block_document_by_name(name, slug, include_secrets=False)
    if found is None or not _notifies(found):
        known = sorted(f"{_slug(each)}/{each.name}" for each in await client.read_block_documents() if _notifies(each))
        raise RecipeError(
            "there is no such block to notify through",
            value=notify,
            expected=", ".join(known) or "TYPE/NAME of a notification or Webhook block; this server has none",
            remedy="name one of them, make one in the UI (Blocks), or use --webhook-env with the URL in a variable",
        )
    return found


def _slug(block: BlockDocument) -> str:
    return block.block_type.slug if block.block_type else ""


def _notifies(block: BlockDocument) -> bool:
    capabilities = block.block_schema.capabilities if block.block_schema else []
    return _slug(block) == "webhook" or "notify" in capabilities


def _silent_s(text: str) -> int:
    heartbeat_s = get_current_settings().flows.heartbeat_frequency
    if heartbeat_s is None:
        raise DraftmillError(
            "silent runs cannot be told, since heartbeats are off",
            value="PREFECT_FLOWS_HEARTBEAT_FREQUENCY has no value",
            expected="seconds between two heartbeats, 30 or more",
            remedy="set it here and for the workers; 180 is Prefect's own",
        )
    least_s = BEATS * max(heartbeat_s, HEARTBEAT_MIN_S)
    seconds = span_s(text)
    if not seconds:
        raise RecipeError(
            "--silent-after is no span", value=text, expected="a span: 10m, 1h30m, 600s", remedy="write it as 10m"
        )
    if seconds < least_s:
        raise RecipeError(
            "--silent-after is too short",
            value=text,
            expected=f"{least_s}s or more, {BEATS} heartbeats of {heartbeat_s} s",
            remedy="raise it, or let runs send more (PREFECT_FLOWS_HEARTBEAT_FREQUENCY, here and for the workers)",
        )
    return seconds

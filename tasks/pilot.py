"""Pilot: a sample of the plan asked in place of all of it, and what its rows say of the whole.

`Sampling` stands where a refresh generates (`tasks.generated.Generate`), so everything
before and behind it is a refresh's own: the gate, the checks, the seal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from prefect import State

from draftmill.dataset.manifest import ObjectRef
from draftmill.generation.night import Night
from draftmill.pilot import words
from draftmill.pilot.advice import Advice, budget_advice, in_flight_advice
from draftmill.pilot.estimate import Estimate, Timed, estimate, pace_of
from draftmill.pilot.hidden import hidden_of
from draftmill.pilot.measured import Measured, measured
from draftmill.pilot.servers import servers_of
from draftmill.pilot.split import Frame, split
from draftmill.pilot.strata import default_rows
from draftmill.progress import listener
from draftmill.recipe import Recipe
from draftmill.rendering.prepare import Variants, structures_json
from draftmill.workspace import in_thread, workspace
from tasks.chunks import ChunkOutcome
from tasks.generated import Generated, Replan, generate_here
from tasks.receipts import Receipt
from tasks.report import publish


@dataclass(frozen=True, slots=True)
class Known:
    """What the user says of the servers and the model: GPUs in all, numbers in a hidden state, vectors of an id."""

    gpus: float | None = None
    hidden_size: int | None = None
    hidden_layers: int | None = None


@dataclass(slots=True)
class Sampling:
    """A `generated.Generate`: about `rows` of what is missing, None for as many as are enough; the rest is pending.

    Afterwards `frame` is what the sample is of (None where nothing is missing) and `done` what came.
    """

    rows: int | None = None
    frame: Frame | None = None
    done: Generated | None = None
    variants: Variants = field(default_factory=dict)
    _rest: list[Receipt] = field(default_factory=list)

    async def __call__(
        self, plan: Receipt, recipe: Recipe, variants: Variants, *, night: Night, replan: Replan
    ) -> Generated:
        self.variants = variants

        async def again() -> Receipt:
            return await self._sample(await replan(), recipe)

        done = await generate_here(await self._sample(plan, recipe), recipe, variants, night=night, replan=again)
        done.outcome.chunks += [ChunkOutcome(chunk) for chunk in self._rest]
        done.outcome.left = sum(chunk["num_rows"] for chunk in self._rest)
        # The seal finds every planned row, asked or left.
        plan = done.plan | {"chunks": [*done.plan["chunks"], *self._rest]}
        self.done = Generated(plan, done.gate, done.outcome)
        return self.done

    async def _sample(self, plan: Receipt, recipe: Recipe) -> Receipt:
        if not plan["chunks"]:
            return plan
        places = recipe.engine.in_flight * len(recipe.engine.urls)
        missing = sum(chunk["num_rows"] for chunk in plan["chunks"])
        rows = min(self.rows or default_rows(missing, places), missing)
        mine, self._rest, frame = await in_thread(split, workspace().storage, plan, rows)
        self.frame = frame
        listener().stage(
            f"a sample of {frame.rows:,} of {missing:,} rows that are missing, even over {len(frame.sizes_H)} groups "
            "of prompt lengths"
        )
        return mine


async def tell(state: State[dict[str, Any]], sampling: Sampling, recipe: Recipe, known: Known) -> State[dict[str, Any]]:
    """The state of the refresh that the pilot was, with `estimate` (JSON or None) and its `lines` in its data."""
    found = await _estimate(sampling, recipe, known)
    data: Any = await state.aresult(raise_on_failure=False)
    lines = words.lines(found) if found else [_no_estimate(sampling)]
    state.data = data | {"estimate": found.to_json() if found else None, "lines": lines}
    if found:
        page = words.page(found, recipe.dataset)
        await publish(recipe.dataset, {}, {"pilot": page}, return_state=True)  # type: ignore[misc]
    if not state.is_failed():
        state.message = f"{lines[0]} ({state.message})"
    return state


def _no_estimate(sampling: Sampling) -> str:
    if sampling.frame is None:
        return "nothing is missing: there is no row for a pilot"
    return "too few rows came back for an estimate"


async def _estimate(sampling: Sampling, recipe: Recipe, known: Known) -> Estimate | None:
    if sampling.frame is None or sampling.done is None:
        return None
    done, frame = sampling.done, sampling.frame
    uploads = [chunk.uploaded for chunk in done.outcome.chunks if chunk.uploaded]
    structures = structures_json(sampling.variants)
    found = await in_thread(
        measured,
        workspace().storage,
        frame,
        good=[ObjectRef.model_validate(each["shard"]) for each in uploads if each["shard"]],
        bad=[ObjectRef.model_validate(each["quarantine"]) for each in uploads if each["quarantine"]],
        structures=structures,
        recipe=recipe.model_dump(mode="json"),
    )
    servers = servers_of(done.gate["reports"], recipe.engine.in_flight)
    timed = Timed.of(done.outcome.counts.flights)
    pace = pace_of(timed, servers)
    advice = [in_flight_advice(servers, found, pace), _budget(found, recipe, sampling.variants)]
    # Turns of a conversation are a unit: several answers, within one context.
    budget = advice[1].now if frame.prompt_ids is not None else recipe.model.context_length
    return await in_thread(
        estimate,
        found,
        frame,
        timed=timed,
        servers=servers,
        budget=budget,
        failed=sum(chunk.generated["failed"] for chunk in done.outcome.chunks if chunk.generated),
        advice=advice,
        pace=pace,
        gpus=known.gpus,
        hidden=hidden_of(recipe.model, width=known.hidden_size, layers=known.hidden_layers),
    )


def _budget(found: Measured, recipe: Recipe, variants: Variants) -> Advice:
    """By the largest of the variants' budgets."""
    budget = max(prepared.recipe.sampling.max_new_tokens for prepared in variants.values())
    prompts = found.lengths[""].lengths.get("prompt")
    room = max(budget, recipe.model.context_length - (prompts.max if prompts else 0))
    return budget_advice(found, budget=budget, room=room)

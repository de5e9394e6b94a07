"""Which weights: what a server says of its model against the recipe and the newest manifest. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from draftmill.gate.table import Check, Level, check, shows_flags
from draftmill.recipe import Recipe
from draftmill.records import ServerReport

Servers = Sequence[Mapping[str, Any]]
"""The reports in a manifest's provenance."""


def weight_checks(report: ServerReport, recipe: Recipe, last: Servers | None, *, sent: frozenset[str]) -> list[Check]:
    """`last`: the reports in the newest manifest, None when there is none; `sent`: what every request names."""
    return [
        _model(report, recipe, by_name="model" in sent),
        _revision(report, recipe),
        _quantization(report, recipe),
        weight_version(report, recipe, last),
    ]


def _model(report: ServerReport, recipe: Recipe, *, by_name: bool) -> Check:
    """`by_name`: every request names the model, and only the served name is answered."""
    path = report.facts.get("model_path")
    where = f" (from {path})" if path is not None and path != report.model else ""
    return check(
        report.url,
        "model",
        recipe.model.name in ((report.model,) if by_name else (report.model, path)),
        seen=None if report.model is None else f"{report.model}{where}",
        expected=recipe.model.name,
        remedy="correct model.name, or start the server with this model and --served-model-name",
    )


def _revision(report: ServerReport, recipe: Recipe) -> Check:
    wanted, said = recipe.model.revision, report.facts.get("revision")
    # A server that loads the hub's name without a revision takes whatever is newest; a folder has none.
    hub_name = "/" in recipe.model.name and report.facts.get("model_path") == recipe.model.name
    unpinned = said is None and hub_name and shows_flags(report)
    return check(
        report.url,
        "revision",
        wanted is None or said == wanted or (said is None and not unpinned),
        seen=said,
        expected=wanted or "any",
        remedy="start the server with --revision, or correct model.revision: rows are stored as this revision's",
        level=Level.WARN if said is None else Level.REFUSE,
    )


def _quantization(report: ServerReport, recipe: Recipe) -> Check:
    wanted, said = recipe.model.quantization, report.facts.get("quantization")
    # A quantized checkpoint needs no flag, and an engine may then name its format: only two names are a contradiction.
    return check(
        report.url,
        "quantization",
        said is None or said == wanted,
        seen=said,
        expected=wanted or "none, or as the checkpoint is",
        remedy="rows are stored as the recipe's quantization: correct model.quantization, or start another server",
        level=Level.WARN if wanted is None else Level.REFUSE,
    )


def weight_version(report: ServerReport, recipe: Recipe, last: Servers | None) -> Check:
    """The server's weight version against those the newest manifest was made with."""
    known = sorted({str(server["weight_version"]) for server in last or () if server.get("weight_version") is not None})
    said, name = report.weight_version, "weight version"
    if not known or said in known:
        expected = " or ".join(known) if known else "any: no manifest names one"
        return check(report.url, name, True, seen=said, expected=expected, remedy="")
    stop = recipe.engine.weights == "stop" and said is not None
    remedy = (
        "a dataset of two weight versions is two models' answers: begin another dataset, or set engine.weights: record "
        "to go on and record the version row by row"
    )
    return check(
        report.url,
        name,
        False,
        seen=said,
        expected=f"{' or '.join(known)}, as the newest manifest has it",
        remedy=remedy if stop else "its rows will be told apart by weight_version, where the server says it",
        level=Level.REFUSE if stop else Level.WARN,
    )

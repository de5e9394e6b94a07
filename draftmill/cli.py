"""`draftmill COMMAND`: data to stdout, progress and errors to stderr, the exit status that README.md names.

Commands that run a flow find it through an entry point (cli_flows.py); all
others are plain calls into the library (those that look at a dataset or keep
house in it: cli_dataset.py). An error of draftmill's own is printed
in its four parts; a traceback is always a fault of ours.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import datetime
from typing import Annotated, Any

import typer

from draftmill.cli_audit import audit
from draftmill.cli_dataset import COMMANDS, DatasetUrl, Json
from draftmill.cli_export import export
from draftmill.cli_flows import RecipePath, Sets, launch
from draftmill.cli_operate import alarms
from draftmill.cli_pilot import pilot
from draftmill.cli_up import up
from draftmill.errors import DraftmillError, GateRefused, RecipeError
from draftmill.generation.night import parse_until
from draftmill.recipe import Recipe
from draftmill.recipe_file import load_recipe, parse_recipe
from draftmill.reporting import terminal

app = typer.Typer(
    name="draftmill",
    help="Token-exact training data for speculative-decoding drafters.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def main() -> None:
    """The entry point. Ends with README's exit status and never with a traceback of an expected error."""
    try:
        app()
    except DraftmillError as error:
        terminal.print_error(error)
        sys.exit(error.exit_code)


@app.command()
def run(
    recipe: RecipePath,
    sets: Sets = None,
    plan: Annotated[bool, typer.Option("--plan", help="Stop before anything is generated; needs no server.")] = False,
    until: Annotated[
        str | None,
        typer.Option(metavar="HH:MM or 90m", help="Seal what is done by then; the rest is pending, exit status 5."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Bring a dataset up to its recipe: generate, check and seal what is missing.

    Example: draftmill run deployments/recipes/demo.yaml --set prompts.limit=8 --until 06:00
    """
    loaded = load_recipe(recipe, tuple(sets or ()))
    if until is not None:
        parse_until(until, datetime.now())  # a wrong one is known before anything starts
    _finish(launch("refresh", recipe=loaded, plan_only=plan, until=until), plan=plan, as_json=as_json)


@app.command()
def rerun(
    dataset: DatasetUrl,
    generate: Annotated[bool, typer.Option("--generate", help="Ask again for failed rows and for --reason.")] = False,
    reason: Annotated[list[str] | None, typer.Option("--reason", metavar="CODE", help="A reason code.")] = None,
    sets: Sets = None,
    as_json: Json = False,
) -> None:
    """Judge what is stored by the present rules, with 0 requests; --generate asks for failed rows and --reason.

    Asking again until a rule passes is rejection sampling: it biases the dataset towards answers the rule likes.
    What was asked again has attempt 1 and above; `draftmill status` counts the good rows by attempt. So do long answers
    with `on_truncated: continue`, one attempt a request: those are not drawn again.

    Example: draftmill rerun demo-dataset --generate --reason truncated
    """
    from draftmill.dataset.stored_recipe import stored_recipe
    from draftmill.records import OF_AN_ANSWER

    unknown = sorted(set(reason or ()) - set(OF_AN_ANSWER))
    if unknown or (reason and not generate):
        raise RecipeError(
            "--reason cannot be used so",
            value=", ".join(unknown) if unknown else "--reason without --generate",
            expected=f"with --generate, one of: {', '.join(OF_AN_ANSWER)}",
            remedy="correct the command",
        )
    with terminal.listening():
        stored_recipe(dataset, sets or ())  # a wrong one is known before anything starts
    data = launch("rerun", dataset=dataset, changes=sets or [], generate=generate, reasons=reason or [])
    _finish(data, plan=False, as_json=as_json)


@app.command()
def gate(recipe: RecipePath, sets: Sets = None, as_json: Json = False) -> None:
    """Check the servers against the recipe; generates nothing but a canary.

    Example: draftmill gate deployments/recipes/demo.yaml
    """
    from draftmill.dataset.manifest import newest, servers_of
    from draftmill.dataset.storage import open_checked
    from draftmill.gate import look
    from draftmill.rendering.prepare import prepare

    loaded = load_recipe(recipe, tuple(sets or ()))
    with terminal.listening():
        last = servers_of(newest(open_checked(loaded.dataset)))
        seen = asyncio.run(look(loaded, prepare(loaded), last=last))
    terminal.print_gate(seen.checks, as_json=as_json)
    if seen.refusals:
        sys.exit(GateRefused.exit_code)


@app.command()
def inspect(
    target: Annotated[
        str, typer.Argument(metavar="RECIPE or TOKENIZER", help="A recipe, a tokenizer's folder or hub id.")
    ],
    chat_template: Annotated[
        str | None, typer.Option("--chat-template", metavar="FILE", help="Another template.")
    ] = None,
    revision: Annotated[str | None, typer.Option("--revision", help="Of a hub id.")] = None,
    sets: Sets = None,
    as_json: Json = False,
) -> None:
    """Show how a template renders: who opens the think block, which ids end a turn, and how that was decided.

    Example: draftmill inspect embedded
    """
    from draftmill.judging.derive import inspect as inspect_model
    from draftmill.rendering.tokenizer import load_tokenizer
    from draftmill.variants import by_variant

    if target.endswith((".yaml", ".yml")):
        loaded = load_recipe(
            target, (*(sets or ()), *([f"model.chat_template={chat_template}"] if chat_template else []))
        )
    else:
        loaded = _recipe_of_tokenizer(target, chat_template, revision, tuple(sets or ()))
    tokenizer = load_tokenizer(loaded.model)
    found = {name: inspect_model(tokenizer, alone) for name, alone in by_variant(loaded).items()}
    terminal.print_inspections(found, as_json=as_json)


@app.command()
def engine(
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="0 = a free one; the URL goes to stdout.")
    ] = 30000,
    slots: Annotated[int, typer.Option("--slots", min=1, help="Requests generated at once.")] = 8,
    context_length: Annotated[int, typer.Option("--context-length", min=64, help="Tokens per request.")] = 2048,
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, help="Processor threads; default: all but one.")
    ] = None,
    cache_prompt: Annotated[bool, typer.Option(help="Reuse the work on common beginnings of prompts.")] = True,
) -> None:
    """Serve SmolLM2-135M on loopback by SGLang's protocol, for development: no GPU, no hub, no account.

    Example: draftmill engine --port 30000
    """
    from draftmill.serving.embedded import serve_embedded
    from draftmill.serving.process import run_until_signalled

    def ready(url: str) -> None:
        print(url, flush=True)

    run_until_signalled(
        serve_embedded(
            port=port,
            slots=slots,
            context_length=context_length,
            threads=threads,
            cache_prompt=cache_prompt,
            ready=ready,
        )
    )


for command in (*COMMANDS, audit, export, up, alarms, pilot):
    app.command()(command)


def _finish(data: dict[str, Any], *, plan: bool, as_json: bool) -> None:
    if plan:
        terminal.print_plan(data["plan"])
    terminal.print_summary(data["summary"], plan=plan, as_json=as_json, attempts=data["attempts"])
    terminal.print_drift(data["drift"])
    if data["page"]:
        terminal.say(f"report: {data['page']}")
    rows = data["summary"]["rows"]
    if data["error"]:
        terminal.say(data["error"])
    if not plan and (rows["failed"] or rows["pending"]):
        terminal.say("what is finished is kept: the same command again asks only for the rows that are missing")
    sys.exit(0 if plan else data["exit_code"])


def _recipe_of_tokenizer(name: str, template: str | None, revision: str | None, sets: tuple[str, ...]) -> Recipe:
    from draftmill.recipe_file import assign

    data: dict[str, Any] = {
        "dataset": "none",
        "prompts": {"path": "none"},
        "model": {"name": name, "context_length": 1 << 20, "revision": revision, "chat_template": template},
        "sampling": {"temperature": 1.0, "top_p": 1.0, "max_new_tokens": 1024},
    }
    if name == "embedded":
        data["model"]["tokenizer"] = "embedded"
    for assignment in sets:
        assign(data, assignment)
    return parse_recipe(data, origin="the command line")

"""Messages in, prompt ids out: the only call of apply_chat_template in the project.

The tokenizer's own template renders and tokenizes in one call, so that the ids
are exactly those of `apply_chat_template(tokenize=True)`: no second BOS, no text
that is tokenized again. One thing is added: `strftime_now`, through which
templates print the day, is a macro of ours that prints the recipe's date.
transformers turns functions among the template's variables into plain text, so
a macro in front of the template is the way in; templates that never name it are
passed as they are.

A conversation the template does not take is a value (`Refused`), with the
template's words. A template that is broken for all of them is a RecipeError.
"""

from __future__ import annotations

import datetime as dt
import functools
import inspect
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jinja2

from draftmill.arrays import Ids, ids_array
from draftmill.errors import RecipeError
from draftmill.recipe import Model

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

FAULTS_OF_A_CONVERSATION = (
    jinja2.TemplateError,
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)
"""What Jinja (raise_exception too) and the Python operations inside a template raise for one conversation."""

DATE_DIRECTIVES = ("%-d", "%-m", *(f"%{letter}" for letter in "aAbBcdDeFGhHIjmMpRSTuUVwWxXyYZ"))
"""What templates may ask of strftime; times of day print as midnight. Any other is a RecipeError."""

DIRECTIVE_FLAGS = "-_0^#EO"
"""May stand between the sign and the letter of a directive; %-d and %-m are the only ones known with one."""

DATE_UNSET = "draftmill: the template prints the date and model.date is null"
"""Our own text in our own macro: how a render that reached the clock is told from the template's refusals."""

DIRECTIVE_UNKNOWN = "draftmill: the template prints the date with a directive that is not known: "
"""The same, with the directive behind it."""


@dataclass(frozen=True, slots=True)
class Refused:
    """What the template said of a conversation it does not take."""

    words: str


def render_ids(
    tokenizer: PreTrainedTokenizerBase,
    messages: list[dict[str, Any]],
    tools: list[dict[str, Any]] | None,
    *,
    template_kwargs: dict[str, Any],
    date: dt.date | None,
    add_generation_prompt: bool = True,
) -> Ids | Refused:
    """The conversation's prompt ids, int32 [P], or the template's refusal.

    Raises RecipeError when the template is not Jinja, prints the date while
    `date` is None or in a way that is not known, or `template_kwargs` holds a name
    that is the renderer's own.
    """
    _check_kwargs(template_kwargs)
    try:
        ids = tokenizer.apply_chat_template(
            messages,
            tools=list(tools) if tools else None,
            chat_template=_dated(tokenizer.get_chat_template(None, tools or None), date),
            add_generation_prompt=add_generation_prompt,
            tokenize=True,
            return_dict=False,
            **template_kwargs,
        )
    except jinja2.TemplateSyntaxError as error:
        raise RecipeError(
            "the chat template is not valid Jinja",
            value=f"line {error.lineno}: {error.message}",
            expected="a template that transformers can compile",
            remedy="correct the template, or give another with model.chat_template",
        ) from None
    except FAULTS_OF_A_CONVERSATION as error:
        if isinstance(error, jinja2.TemplateError) and error.message == DATE_UNSET:
            raise date_unset() from None
        if isinstance(error, jinja2.TemplateError) and (error.message or "").startswith(DIRECTIVE_UNKNOWN):
            raise _directive_unknown(str(error.message).removeprefix(DIRECTIVE_UNKNOWN)) from None
        return Refused(_words(error))
    return ids_array("prompt_ids", ids)


def render_date(model: Model) -> dt.date | None:
    """The day templates print: the recipe's, or this machine's for "today"."""
    return dt.date.today() if model.date == "today" else model.date


def date_unset() -> RecipeError:
    """The refusal of a template that prints the day while the recipe has none."""
    return RecipeError(
        "the template prints the date: set model.date",
        value="model.date: null",
        expected="a date, so that the same prompt has the same ids tomorrow",
        remedy="set model.date to a day (2026-01-31), or to 'today' if the ids may change every day",
    )


def _directive_unknown(directive: str) -> RecipeError:
    return RecipeError(
        "the template prints the date in a way that is not known",
        value=f"strftime_now with {directive}",
        expected=f"directives out of {' '.join(DATE_DIRECTIVES)}",
        remedy="give a template with one of these with model.chat_template",
    )


def template_text(tokenizer: PreTrainedTokenizerBase) -> str:
    """The chat template as text; several named ones one after the other. Empty when there is none."""
    template = tokenizer.chat_template
    if isinstance(template, dict):
        return "\n".join(template[name] for name in sorted(template))
    return template or ""


def _words(error: Exception) -> str:
    text = " ".join(str(error).split())
    kind = "" if type(error) is jinja2.TemplateError else f"{type(error).__name__}: "
    return f"{kind}{text}"


def _check_kwargs(template_kwargs: dict[str, Any]) -> None:
    taken = sorted(reserved_names() & template_kwargs.keys())
    if taken:
        raise RecipeError(
            "model.template_kwargs holds a name that is not the template's",
            value=", ".join(taken),
            expected="variables the chat template reads, such as enable_thinking",
            remedy="remove it; the renderer sets it by itself",
        )


@functools.cache
def reserved_names() -> frozenset[str]:
    """Names that no template variable may have in `template_kwargs`: the renderer's own parameters."""
    # `documents` is one of the template's own variables.
    from transformers import PreTrainedTokenizerBase

    parameters = inspect.signature(PreTrainedTokenizerBase.apply_chat_template).parameters
    return frozenset(parameters) - {"documents", "kwargs"} | {"messages", "strftime_now"}


@functools.lru_cache(maxsize=64)
def _dated(template: str, date: dt.date | None) -> str:
    if "strftime_now" not in template:
        return template
    if date is None:
        body = "{{- raise_exception(" + json.dumps(DATE_UNSET) + ") -}}"
    else:
        body = (
            # Between two signs (%%), which are one, stand the directives; no value holds a sign.
            "{%- for part in format.split('%%') -%}{{- '' if loop.first else '%' -}}"
            "{%- set day = namespace(text=part) -%}"
            "{%- for directive, value in " + _date_table(date) + ".items() -%}"
            "{%- set day.text = day.text.replace(directive, value) -%}"
            "{%- endfor -%}"
            "{%- if '%' in day.text -%}{%- set left = day.text.split('%')[1] -%}"
            "{{- raise_exception(" + json.dumps(DIRECTIVE_UNKNOWN) + " ~ '%' ~ "
            "left[: 2 if left[:1] in " + json.dumps([*DIRECTIVE_FLAGS]) + " else 1]) -}}"
            "{%- endif -%}{{- day.text -}}{%- endfor -%}"
        )
    # The line break behind the macro belongs to the block (trim_blocks): the template starts its own first line.
    return "{%- macro strftime_now(format) -%}" + body + "{%- endmacro %}\n" + template


def _date_table(date: dt.date) -> str:
    values = {directive: date.strftime(directive) for directive in DATE_DIRECTIVES}
    return json.dumps(values, ensure_ascii=False)

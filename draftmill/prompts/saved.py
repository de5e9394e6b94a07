"""Folders that say themselves which of their files are rows, and of which split.

`datasets` saves to disk (`save_to_disk`) one folder a split, with the Arrow
files of its rows listed in state.json; dataset_dict.json names the splits. Other
files there are metadata and left-over caches, never rows. A dataset of the Hub
(`push_to_hub`) is Parquet files named by split, train-00000-of-00002.parquet.

Of several splits `prompts.split` is read, and one that is not there is refused:
rows held out for a test must not slip in. For the same reason such a file that
cannot be read is refused. What else lies in a saved folder is named, not read.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from posixpath import dirname, join
from posixpath import split as split_path
from typing import Any

from draftmill.errors import RecipeError, SourceError
from draftmill.prompts.opening import open_raw, shown
from draftmill.prompts.source_row import SourceFile

FORMAT = "huggingface"
"""The plugin that reads Arrow files."""

DEFAULT_SPLIT = "train"

_SPLITS, _STATE, _INFO = "dataset_dict.json", "state.json", "dataset_info.json"

_ARROW = ".arrow"

_LISTED = {"splits": "its splits", "_data_files": "its files"}

METADATA_BYTES = 16 * 2**20
"""More is no such file: a state.json names its Arrow files, a hundred bytes each."""

_HUB_NAME = re.compile(r"(.+)-\d{5}-of-\d{5}(-[0-9a-f]+)?\.parquet")
"""How `push_to_hub` names files: split, number, how many, and in old versions a hash."""


def resolve(listed: list[str], split: str) -> Iterator[SourceFile]:
    """The files that are rows among those listed, in order, with the format their folder decides; and those beside.

    Raises RecipeError for a split that a folder does not have, SourceError for a folder that is not whole.
    """
    folders = _saved_folders(listed)
    roots = {file: next((above for above in _above(file) if above in folders), None) for file in listed}
    kept = set(_of_split([file for file in listed if roots[file] is None], split))
    done: set[str] = set()
    for file, root in roots.items():
        if root is None:
            if file in kept:
                yield SourceFile(file)
            continue
        if root not in done:
            done.add(root)
            yield from (SourceFile(arrow, FORMAT) for arrow in _arrow_files(root, folders[root], split))
        if not _belongs(file, root, folders[root]):
            yield SourceFile(file, beside=True)


def _saved_folders(listed: list[str]) -> dict[str, dict[str, Any]]:
    """The folders that `datasets` saved, by what their own file says."""
    with_arrow = {dirname(file) for file in listed if file.endswith(_ARROW)}
    folders = {}
    for file in listed:
        folder, name = split_path(file)
        if name == _SPLITS:
            # No other program writes a file of this name, and dataset_dict.json comes before state.json.
            folders[folder] = _metadata(file, "splits", required=True)
        elif name == _STATE and folder not in folders:
            folders[folder] = _metadata(file, "_data_files", required=folder in with_arrow)
    return {folder: said for folder, said in folders.items() if said is not None}


def _belongs(file: str, root: str, said: dict[str, Any]) -> bool:
    """Whether a file of a saved folder is its rows (of any split), its caches or its metadata."""
    folder, name = split_path(file)
    with_rows = {join(root, str(each)) for each in said["splits"]} if "splits" in said else {root}
    if name.endswith(_ARROW):
        return folder in with_rows
    return name in (_SPLITS, _STATE, _INFO) and folder in {root, *with_rows}


def _above(file: str) -> list[str]:
    """The folders around a file, the outermost first; "" is the one the command runs in."""
    folders = [dirname(file)]
    while (above := dirname(folders[-1])) != folders[-1]:
        folders.append(above)
    return folders[::-1]


def _metadata(file: str, key: str, *, required: bool) -> dict[str, Any] | None:
    """What such a file says; None where it has no list under `key`: something else wrote it.

    Raises SourceError for what is not JSON, and for such a None where it is `required`.
    """
    with open_raw(file) as raw:
        content = raw.read(METADATA_BYTES)
    try:
        said = json.loads(content)
    except (ValueError, RecursionError):
        raise _not_whole(file, "it is not JSON, so nobody knows which files are rows") from None
    if isinstance(said, dict) and isinstance(said.get(key), list):
        return said
    if required:
        raise _not_whole(file, f"it does not list {_LISTED[key]} under {key}")
    return None


def _arrow_files(root: str, said: dict[str, Any], split: str) -> list[str]:
    if "splits" not in said:
        own = said.get("_split")
        if isinstance(own, str) and split not in (DEFAULT_SPLIT, own):
            raise _no_split(root, split, [own])
        return _data_files(root, said)
    splits = [str(name) for name in said["splits"]]
    if split not in splits:
        raise _no_split(root, split, splits)
    folder = join(root, split)
    state = _metadata(join(folder, _STATE), "_data_files", required=True)
    assert state is not None, "it is required"
    return _data_files(folder, state)


def _data_files(folder: str, state: dict[str, Any]) -> list[str]:
    if state.get("_indices_data_files"):
        # Before datasets 2: some rows of the files, in another order.
        raise _not_whole(join(folder, _STATE), "its rows are a selection (_indices_data_files) of those in the files")
    files = []
    for item in state["_data_files"]:
        name = item.get("filename") if isinstance(item, dict) else None
        if not isinstance(name, str) or "/" in name or name in ("", ".."):
            raise _not_whole(join(folder, _STATE), f"it lists {name!r}, which is no file of the folder")
        files.append(join(folder, name))
    return files


def _of_split(files: list[str], split: str) -> Iterator[str]:
    """The files but those of other splits, where a folder has several by the Hub's names."""
    splits: dict[str, dict[str, str]] = defaultdict(dict)
    for file in files:
        folder, name = split_path(file)
        if found := _HUB_NAME.fullmatch(name):
            splits[folder][file] = found[1]
    for folder, by_file in splits.items():
        known = sorted(set(by_file.values()))
        if len(known) > 1 and split not in known:
            raise _no_split(folder, split, known)
    for file in files:
        by_file = splits.get(dirname(file), {})
        if len(set(by_file.values())) < 2 or by_file.get(file, split) == split:
            yield file


def _no_split(folder: str, split: str, known: list[str]) -> RecipeError:
    return RecipeError(
        "a folder without that split",
        value=f"{shown(folder)}: {split}",
        expected=f"one of: {', '.join(known)}",
        remedy="set prompts.split, or name the files themselves by a glob",
    )


def _not_whole(file: str, words: str) -> SourceError:
    return SourceError(
        "a folder saved by `datasets` that cannot be read",
        value=f"{shown(file)}: {words}",
        expected="the folder as `save_to_disk` writes it",
        remedy="save it again with a current version of `datasets`",
    )

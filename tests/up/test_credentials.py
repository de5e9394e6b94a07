"""The credentials file: one for a home, readable by its owner only, whole or refused."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from draftmill.errors import DraftmillError
from draftmill.up.credentials import load_or_create


def test_they_are_made_once_and_only_their_owner_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "credentials.json"
    made = load_or_create(path)
    assert load_or_create(path) == made
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(tmp_path.iterdir()) == [path]


def test_each_home_has_its_own(tmp_path: Path) -> None:
    one, other = load_or_create(tmp_path / "one.json"), load_or_create(tmp_path / "other.json")
    assert not {one.password, one.access_key, one.secret_key} & {other.password, other.access_key, other.secret_key}


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "credentials.json"
    secret = load_or_create(path).password
    path.chmod(mode)
    with pytest.raises(DraftmillError, match="others can read the credentials") as refused:
        load_or_create(path)
    assert secret not in str(refused.value)
    assert f"chmod 600 {path}" in refused.value.remedy


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"password": "leaks"}',
        json.dumps({"password": "leaks", "access_key": "a", "secret_key": "s", "more": "m"}),
        json.dumps({"password": "leaks\nPATH=x", "access_key": "a", "secret_key": "s"}),
        json.dumps({"password": ["leaks"], "access_key": "a", "secret_key": "s"}),
    ],
)
def test_what_is_no_such_file_is_refused_without_its_words(tmp_path: Path, text: str) -> None:
    path = tmp_path / "credentials.json"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(DraftmillError, match="cannot be read") as refused:
        load_or_create(path)
    assert "leaks" not in str(refused.value)
    assert str(path) in str(refused.value)


def test_a_link_that_leads_nowhere_is_not_written_through(tmp_path: Path) -> None:
    path = tmp_path / "credentials.json"
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DraftmillError, match="cannot be read"):
        load_or_create(path)
    assert not (tmp_path / "elsewhere").exists()

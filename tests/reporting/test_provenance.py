"""What a manifest says of the machine and the parts it was made with."""

from __future__ import annotations

import platform
import re
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import draftmill
from draftmill.reporting import provenance as module
from draftmill.reporting.provenance import PACKAGES, provenance


@pytest.fixture(autouse=True)
def _forget_the_revision() -> None:
    module._revision.cache_clear()


def test_versions_hashes_servers_and_who() -> None:
    found = provenance({"tokenizer_sha256": "t"}, [{"url": "http://a"}])
    assert (found["draftmill"], found["python"]) == (draftmill.__version__, platform.python_version())
    assert (found["tokenizer_sha256"], found["servers"]) == ("t", [{"url": "http://a"}])
    assert re.fullmatch(rf".+@{re.escape(platform.node())}", found["sealed_by"])
    assert found["packages"]["pyarrow"] == metadata.version("pyarrow")


def test_all_packages_are_draftmills_own_requirements() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert set(PACKAGES) <= {Requirement(line).name for line in project["dependencies"]}


def test_the_revision_is_that_of_a_clone_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site-packages" / "draftmill").mkdir(parents=True)
    monkeypatch.setattr(draftmill, "__file__", str(tmp_path / "site-packages" / "draftmill" / "__init__.py"))
    assert provenance({}, [])["revision"] is None
    (tmp_path / "site-packages" / ".git").mkdir()  # no clone that git would know
    module._revision.cache_clear()
    assert provenance({}, [])["revision"] is None


def test_the_revision_of_a_clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "draftmill").mkdir()
    file = tmp_path / "draftmill" / "__init__.py"
    file.write_text("")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], check=True)
    monkeypatch.setattr(draftmill, "__file__", str(file))
    clean = provenance({}, [])["revision"]
    assert re.fullmatch("[0-9a-f]{40}", clean)
    file.write_text("changed = 1\n")
    module._revision.cache_clear()
    assert provenance({}, [])["revision"] == f"{clean}-dirty"

"""docs/operating.md against the code: its settings, its deployment, the states it explains. Its commands: tests/e2e."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from draftmill.serving.prefect_server import SETTINGS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")


def deployment(text: str, name: str) -> dict[str, object]:
    found: dict[str, object] = next(each for each in yaml.safe_load(text)["deployments"] if each["name"] == name)
    return found


def test_settings_are_those_of_our_own_servers() -> None:
    said = dict(re.findall(r"^ *(?:prefect config set )?(PREFECT_[A-Z0-9_]+)=(\S+)", TEXT, re.MULTILINE))
    assert said.pop("PREFECT_API_URL").endswith(":4200/api")
    # For Prefect's own programs: of the environment, not of a profile.
    assert said == {name: value for name, value in SETTINGS.items() if name.startswith("PREFECT_")}


def test_a_night_of_your_own_is_made_like_ours() -> None:
    (block,) = re.findall(r"^```yaml\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    ours = (ROOT / "deployments" / "prefect.yaml").read_text(encoding="utf-8")
    own, refresh = deployment(block, "my-dataset"), deployment(ours, "refresh")
    for key in ("entrypoint", "tags", "work_pool", "concurrency_limit"):
        assert own[key] == refresh[key]
    assert yaml.safe_load(block)["pull"] == yaml.safe_load(ours)["pull"]


def test_every_page_for_operators_is_linked() -> None:
    for page in ("alarms", "kubernetes", "many-machines", "running", "storage", "team"):
        assert f"({page}.md" in TEXT

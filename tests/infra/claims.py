"""What a file of infra/ or a page may say: settings, command lines and versions that the code has."""

from __future__ import annotations

import importlib
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

import cyclopts
import typer
import typer.core
from prefect.settings import Settings
from prefect.settings.legacy import _get_settings_fields

from draftmill.cli import app

ROOT = Path(__file__).parents[2]
DRAFTMILL = typer.main.get_command(app)

OURS = {"DRAFTMILL_STATE"}
LIBRARIES = {
    # botocore
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL"),
    # huggingface-hub
    *("HF_TOKEN", "HF_HOME"),
    # Prefect's telemetry; pip; Python; the system
    *("DO_NOT_TRACK", "PIP_DISABLE_PIP_VERSION_CHECK", "PYTHONUNBUFFERED", "PATH"),
}


def known_variable(name: str) -> bool:
    """Whether anything in our image reads it."""
    return name in OURS | LIBRARIES or name in _get_settings_fields(Settings)


def check_command(words: Sequence[str]) -> None:
    """Raises where `prefect ...` or `draftmill ...` is no command line of the installed version; runs nothing."""
    program, *arguments = words
    if program == "draftmill":
        name, *rest = arguments
        assert isinstance(DRAFTMILL, typer.core.TyperGroup)
        DRAFTMILL.commands[name].make_context(name, rest)
        return
    assert program == "prefect", words
    while arguments and arguments[0] in ("--no-prompt", "--prompt"):
        arguments.pop(0)
    # By module: importing prefect.cli alone gives the function that runs it.
    prefect = importlib.import_module("prefect.cli._app")._app
    assert isinstance(prefect, cyclopts.App)
    prefect.parse_args(arguments, exit_on_error=False, print_error=False)


def version() -> str:
    project: str = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    return project


def locked(package: str) -> str:
    """Its version in requirements.lock."""
    found = re.search(rf"^{re.escape(package)}==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert found, package
    return found[1]


def sglang_flags() -> tuple[str, set[str]]:
    """The version of the golden list, and its flags."""
    title, *flags = (ROOT / "tests/golden/sglang_flags.txt").read_text(encoding="utf-8").splitlines()
    return title.split()[-1], set(flags)

"""docs/up.md gives the code's own options, figures, names and words."""

from __future__ import annotations

import re
from pathlib import Path

import typer

from draftmill.cli import app
from draftmill.up import command, deployments, home, ports, services

PAGE = (Path(__file__).parents[2] / "docs" / "up.md").read_text(encoding="utf-8")
PROSE = " ".join(PAGE.split())


def cells(heading: str) -> list[list[str]]:
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip().strip("`") for cell in row] for row in rows]


def test_every_option_is_there_with_its_default() -> None:
    told = {row[0]: row[1] for row in cells("Options")}
    options = {option.name: option for option in typer.main.get_command(app).commands["up"].params}
    assert set(told) == {*(f"--{name.replace('_', '-')}" for name in options if name != "engine"), "--no-engine"}
    for name in ("port", "s3_port", "engine_port"):
        assert told[f"--{name.replace('_', '-')}"] == str(options[name].default)


def test_the_figures_are_the_codes() -> None:
    assert f"runs are cancelled (at most {command.CANCEL_S:.0f} s)" in PROSE
    assert f"Status {command.KILLED}" in PROSE
    assert f"more than {services.RESTARTS} times in {services.RESTARTS_S / 60:.0f} minutes" in PROSE


def test_the_lines_it_prints_are_the_codes(capsys) -> None:
    root = Path("~/.local/state/draftmill/up")
    urls = (f"http://127.0.0.1:{port}" for port in (ports.DEFAULT_UI, ports.DEFAULT_S3, ports.DEFAULT_ENGINE))
    command.print_standing(home.Home(root), home.Standing(1, *urls, True))
    assert f"```text\n{capsys.readouterr().out}```" in PAGE
    assert deployments.DATASET in PAGE


def test_the_homes_table_is_the_home() -> None:
    told = {row[0].rstrip("/") for row in cells("The home")}
    made = home.Home(Path("/h"))
    shown = (made.env, made.credentials, made.deployments, made.prefect, made.s3, made.state, made.work, made.logs)
    assert told == {path.name for path in shown}


def test_the_files_with_secrets_are_named() -> None:
    named = set(re.findall(r"`([\w./-]+)`", PAGE.split("## Who gets in")[1].split("## ")[0]))
    assert {"credentials.json", "env", "s3/identities.json"} <= named

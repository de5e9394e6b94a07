"""The Dockerfile says nothing that the code and the lock do not; no secret can get into a layer."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from docker.utils.build import exclude_paths

from draftmill.serving.prefect_server import POOL, SETTINGS
from tests.infra.claims import ROOT, check_command, known_variable, version
from tests.infra.dockerfile import DOCKERFILE, environment, named, steps


def context() -> set[str]:
    """What Docker sends of the repository: .dockerignore read by Docker's own Python client."""
    patterns = (ROOT / ".dockerignore").read_text().splitlines()
    return set(exclude_paths(str(ROOT), [line for line in patterns if line and not line.startswith("#")]))


def test_the_base_is_pinned_and_is_the_python_that_is_tested() -> None:
    bases = {step.words[0] for step in named("FROM")}
    assert len(bases) == 1
    (found,) = (re.fullmatch(r"python:(\d+\.\d+)\.\d+-slim-[a-z]+", base) for base in bases)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert found
    assert project["requires-python"] == f">={found[1]}"


@pytest.mark.parametrize(
    "step", [step for step in named("COPY") if "from" not in step.flags], ids=lambda step: step.text
)
def test_what_is_copied_exists_and_is_sent(step) -> None:
    sent = context()
    for source in step.words[:-1]:
        assert (ROOT / source).exists()
        assert source in sent


def test_the_wheel_has_all_it_is_made_of() -> None:
    built = {word for step in named("COPY") if step.stage == 0 for word in step.words[:-1]}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {*wheel["packages"], *wheel.get("force-include", {}), project["project"]["readme"]}
    needed |= set(project["project"]["license-files"])
    assert {Path(name).parts[0] for name in needed} <= built


def test_neither_secrets_nor_data_are_sent(tmp_path: Path) -> None:
    for name in ("infra/compose.env", ".env", ".git/config", "tests/x.py", "draftmill/x.env", "demo-dataset/m.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "draftmill" / "cli.py").touch()
    patterns = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    files = {path for path in exclude_paths(str(tmp_path), patterns) if (tmp_path / path).is_file()}
    assert files == {"draftmill/cli.py"}


def test_it_runs_as_nobody_special_and_may_write_its_volume() -> None:
    (user,) = named("USER")
    assert user.text.isdecimal()
    assert int(user.text) >= 1000
    (made,) = (step.text for step in named("RUN") if "useradd" in step.text)
    assert f"--uid {user.text}" in made
    (volume,) = named("VOLUME")
    assert f"--owner draftmill --group draftmill {volume.text}" in made
    variables = environment()
    assert all(variables[name].startswith(volume.text + "/") for name in ("DRAFTMILL_STATE", "HF_HOME"))


def test_prefect_is_set_as_everywhere() -> None:
    variables = environment()
    assert SETTINGS.items() <= variables.items()
    assert [name for name in variables if not known_variable(name)] == []


def test_the_command_is_a_worker_of_the_pool_and_can_be_replaced() -> None:
    (command,), (entrypoint,) = named("CMD"), named("ENTRYPOINT")
    check_command(command.words)
    assert command.words[command.words.index("--pool") + 1] == POOL
    # Pools put `prefect flow-run execute` behind the entrypoint; the exec form is what signals reach.
    assert entrypoint.words == ["tini", "--"]
    assert all(step.text.startswith("[") for step in (command, entrypoint))


def test_what_is_installed_is_the_lock_without_extras() -> None:
    (install,) = (step.text for step in named("RUN") if "pip install" in step.text)
    assert install.endswith("--constraint requirements.lock .")


def test_no_secret_is_named() -> None:
    text = DOCKERFILE.read_text()
    assert [
        word for word in ("KEY", "TOKEN", "PASSWORD", "SECRET", "AUTH") if re.search(rf"\b\w*{word}\w*=", text)
    ] == []
    assert named("ARG") == []


def test_its_head_builds_the_version_at_hand() -> None:
    assert f"--tag draftmill:{version()} ." in DOCKERFILE.read_text()


def test_the_parser_reads_what_docker_would(tmp_path: Path) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text('# c\nFROM a AS b\nRUN --mount=type=x \\\n  # c\n  one \\\n  && two\nFROM c\nCMD ["d", "e f"]\n')
    first, run, _, command = steps(path)
    assert (first.stage, run.text, run.flags) == (0, "one && two", {"mount": "type=x"})
    assert (command.stage, command.words) == (1, ["d", "e f"])

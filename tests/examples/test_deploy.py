"""What `deploy` holds is what the tools that read it accept, and fits the example."""

from __future__ import annotations

import configparser
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from dockerfile_parse import DockerfileParser

from examples.fastapi_app import app

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
SERVER = "uvicorn"


def manifests() -> list[dict[str, Any]]:
    found = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    assert [one["kind"] for one in found] == ["Deployment", "Service", "PodDisruptionBudget"]
    return found


def dockerfile() -> list[dict[str, str]]:
    parser = DockerfileParser(fileobj=io.BytesIO((DEPLOY / "Dockerfile").read_bytes()))
    structure: list[dict[str, str]] = parser.structure
    return structure


def values_of(instruction: str) -> list[str]:
    return [one["value"] for one in dockerfile() if one["instruction"] == instruction]


def graceful_seconds(command: list[str]) -> int:
    assert Path(command[0]).name == SERVER
    assert "examples.fastapi_app:app" in command
    return int(command[command.index("--timeout-graceful-shutdown") + 1])


@pytest.mark.parametrize("version", ["1.30", "1.37"])
def test_the_manifests_fit_the_schema_of_kubernetes(version: str) -> None:
    for manifest in manifests():
        kubernetes_validate.validate(manifest, version, strict=True)


def test_a_manifest_with_a_mistake_does_not_fit_it() -> None:
    deployment = manifests()[0]
    deployment["spec"]["template"]["spec"]["containers"][0]["prestop"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, "1.37", strict=True)


def test_the_probes_ask_what_the_example_answers() -> None:
    (container,) = manifests()[0]["spec"]["template"]["spec"]["containers"]
    paths = {container[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")}
    assert paths <= {getattr(route, "path", None) for route in app.routes}
    (port,) = container["ports"]
    assert values_of("EXPOSE") == [str(port["containerPort"])]


def test_a_pod_has_the_time_that_its_server_takes_to_end() -> None:
    pod = manifests()[0]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (_sleep, before) = container["lifecycle"]["preStop"]["exec"]["command"]
    (command,) = values_of("CMD")
    least = int(before) + graceful_seconds(json.loads(command))
    assert pod["terminationGracePeriodSeconds"] > least
    assert pod["securityContext"]["runAsUser"] == int(values_of("USER")[-1])


def test_the_service_finds_the_pods() -> None:
    deployment, service, budget = manifests()
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    for selector in (
        service["spec"]["selector"],
        budget["spec"]["selector"]["matchLabels"],
        deployment["spec"]["selector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()


def test_the_image_is_made_of_what_is_there() -> None:
    for copied in values_of("COPY"):
        *sources, _target = copied.split()
        for source in sources:
            assert (ROOT / source).exists(), source
            assert f"!{source}" in (DEPLOY / "Dockerfile.dockerignore").read_text().split()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    (install,) = [run for run in values_of("RUN") if run.startswith("pip install")]
    wanted = shlex.split(install)[-1].partition("[")[2].rstrip("]").split(",")
    assert set(wanted) <= set(extras)


def test_the_commands_make_the_image_that_the_pods_run() -> None:
    (container,) = manifests()[0]["spec"]["template"]["spec"]["containers"]
    build = f"docker build -f deploy/Dockerfile -t {container['image']} ."
    for page in (DEPLOY / "Dockerfile", ROOT / "docs" / "deploy.md"):
        assert build in page.read_text(), page


@pytest.mark.slow
def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd is not installed")
    unit = (DEPLOY / "support-desk.service").read_text()
    for text, takes in [(unit, True), (unit.replace("KillMode", "KilMode"), False)]:
        # It looks for the program, which is on the server alone.
        there = re.sub(r"^ExecStart=\S+", f"ExecStart={sys.executable}", text, flags=re.M)
        copy = tmp_path / "support-desk.service"
        copy.write_text(there)
        said = subprocess.run(
            [analyze, "verify", copy], capture_output=True, text=True, timeout=60, check=False
        )
        told = [line for line in said.stderr.splitlines() if "support-desk" in line]
        assert (told == []) == takes, told


def test_the_unit_of_systemd_gives_the_server_its_time() -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "support-desk.service")
    service = unit["Service"]
    assert int(service["TimeoutStopSec"]) > graceful_seconds(shlex.split(service["ExecStart"]))
    assert service["KillMode"] == "mixed"

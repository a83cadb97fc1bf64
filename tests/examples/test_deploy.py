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
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from examples.fastapi_app import app

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
SERVER = "uvicorn"


def manifests() -> list[dict[str, Any]]:
    found = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    kinds = ["Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy"]
    assert [one["kind"] for one in found] == kinds
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
    deployment, service, budget, policy = manifests()
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    for selector in (
        policy["spec"]["podSelector"]["matchLabels"],
        service["spec"]["selector"],
        budget["spec"]["selector"]["matchLabels"],
        deployment["spec"]["selector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()


def test_a_pod_may_do_nothing_that_it_does_not_need() -> None:
    pod = manifests()[0]["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"] == {"drop": ["ALL"]}
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}


def test_the_pods_reach_and_are_reached_by_what_is_named_alone() -> None:
    deployment, _, _, policy = manifests()
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    ports = [port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]]
    assert ports == [port["name"] for port in container["ports"]]
    reached = {port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]}
    assert reached == {53, 443, 5432}


def test_the_image_is_made_of_what_is_there() -> None:
    for copied in values_of("COPY"):
        if copied.startswith("--from="):
            continue
        *sources, _target = copied.split()
        for source in sources:
            assert (ROOT / source).exists(), source
            assert f"!{source}" in (DEPLOY / "Dockerfile.dockerignore").read_text().split()


def pinned(name: str) -> dict[str, tuple[str, list[str]]]:
    """By package: its version, and the hashes of its files."""
    found: dict[str, tuple[str, list[str]]] = {}
    for entry in (DEPLOY / name).read_text().replace("\\\n", " ").splitlines():
        if entry and not entry.startswith("#"):
            pin, *hashes = entry.split()
            package, _, version = pin.partition("==")
            found[canonicalize_name(package)] = version, hashes
    return found


def test_whatever_is_installed_in_the_image_is_pinned_with_hashes() -> None:
    """The base image moves, and each build fetched what was newest on that day."""
    for run in values_of("RUN"):
        if "pip install" in run:
            assert "--require-hashes" in run or "--no-index" in run
        assert "pip wheel" not in run or {"--no-deps", "--no-build-isolation"} <= set(run.split())
    for name in ("constraints.txt", "build-constraints.txt"):
        for package, (version, hashes) in pinned(name).items():
            assert version, package
            assert hashes, package
            assert all(re.fullmatch("--hash=sha256:[0-9a-f]{64}", each) for each in hashes)
    assert [value for value in values_of("ARG") if value.startswith("BASE=python:3.13")]
    assert all("${BASE}" in value for value in values_of("FROM"))


def test_the_pins_are_what_the_library_and_its_extras_need() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"], *extras["web"], *extras["postgres"], "fastapi>=0.110"]
    pins = pinned("constraints.txt")
    for text in needed:
        requirement = Requirement(text)
        version, _ = pins[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), text
    (builder,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    version, _ = pinned("build-constraints.txt")["hatchling"]
    assert Requirement(builder).specifier.contains(version)


def test_each_extra_that_serves_needs_a_starlette_without_known_holes() -> None:
    """A header `Range` of a static file could hold a server before 0.49.1."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    for name, requirements in extras.items():
        for requirement in map(Requirement, requirements):
            if requirement.name == "starlette":
                assert not requirement.specifier.contains("0.49.0"), name


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
    unit = configparser.ConfigParser(interpolation=None, strict=False)  # a filter has two lines
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "support-desk.service")
    service = unit["Service"]
    assert int(service["TimeoutStopSec"]) > graceful_seconds(shlex.split(service["ExecStart"]))
    assert service["KillMode"] == "mixed"


def test_the_unit_may_do_nothing_that_it_does_not_need() -> None:
    unit = (DEPLOY / "support-desk.service").read_text()
    for wanted in (
        "NoNewPrivileges=true",
        "CapabilityBoundingSet=",
        "ProtectSystem=strict",
        "ProtectHome=true",
        "PrivateTmp=true",
        "PrivateDevices=true",
        "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX",
        "MemoryDenyWriteExecute=true",
        "SystemCallFilter=@system-service",
        "UMask=0077",
    ):
        assert wanted in unit.splitlines(), wanted


def test_what_makes_a_list_of_the_image_reads_the_pins() -> None:
    makefile = (ROOT / "Makefile").read_text()
    (recipe,) = re.findall(r"^sbom:.*\n((?:\t.*\n)+)", makefile, flags=re.M)
    assert "deploy/constraints.txt" in recipe

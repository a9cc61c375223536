# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The playbook mirror on the sample fleet, with a real Helm, a real crane and registries of this process."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.modelplane.fleet.plugins.filter.mirror_charts import mirror_charts
from ansible_collections.modelplane.fleet.tests import ansible_run
from ansible_collections.modelplane.fleet.tests.packages import UnavailableError
from ansible_collections.modelplane.fleet.tests.stack import crane
from ansible_collections.modelplane.fleet.tests.stack.images import add_image, digest_of
from ansible_collections.modelplane.fleet.tests.stack.programs import helm
from ansible_collections.modelplane.fleet.tests.stack.sources import (
    CHARTS,
    HttpRepository,
    OciRegistry,
    Request,
    chart_of,
    names,
    pack,
)

ROLE = ansible_run.ROOT / "roles" / "mirror"
DEFAULTS = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text())
SPECS = yaml.safe_load((ROLE / "meta" / "argument_specs.yml").read_text())["argument_specs"]
SAMPLE = ansible_run.ROOT / "inventories" / "quickstart" / "hosts.yml"
STACK = yaml.safe_load((ROLE.parent / "serving_stack" / "defaults" / "main.yml").read_text())
ALL = [component["key"] for component in STACK["serving_stack_components"]]
# From a repository, and from a registry.
SOME = {"cert-manager": "cert-manager-v1.17.1.tgz", "leader-worker-set": "lws-v0.8.0.tgz"}
# Charts with images in containers, in arguments, and in no template.
LISTED = {
    "cert-manager": "cert-manager",
    "prometheus": "kube-prometheus-stack",
    "envoy-gateway": "gateway-helm",
    "ai-gateway": "ai-gateway-helm",
}
SECRET = "a-long-password-of-a-robot"


@dataclass
class Ran:
    output: str
    changed: int
    failed: int

    def ok(self) -> Ran:
        assert self.failed == 0, self.output
        return self


@dataclass
class Mirror:
    """The playbook with these variables."""

    folder: Path
    variables: dict[str, Any] = field(default_factory=dict)

    def run(self, *arguments: str, **variables: Any) -> Ran:
        given = self.folder / "variables.json"
        given.write_text(json.dumps({**self.variables, **variables}))
        command = ("modelplane.fleet.mirror", "-i", str(SAMPLE), "-e", f"@{given}", *arguments)
        out, errors = ansible_run.run("ansible-playbook", *command, cwd=self.folder)
        recap = re.search(r"changed=(\d+).*failed=(\d+)", out)
        assert recap, out + errors
        assert SECRET not in out + errors
        return Ran(out, int(recap[1]), int(recap[2]))


def listed(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


@pytest.fixture(scope="module")
def charts(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    try:
        helm(3)
    except UnavailableError as error:
        pytest.skip(str(error))
    return pack(tmp_path_factory.mktemp("charts"), only=[*LISTED.values(), "lws"])


def test_every_chart_of_the_stack_is_needed() -> None:
    found = mirror_charts({"east": {}}, ["east"], STACK["serving_stack_components"])
    others = {"metallb", "traefik", "keda", "cluster-autoscaler", "aws-dranet", "trust-manager", "valkey"}
    desired = {name: chart_of(CHARTS / name)["version"] for name in {*names()} - others}
    assert {each["file"] for each in found} == {f"{name}-{version}.tgz" for name, version in desired.items()}


def test_charts_for_a_gateway_in_mode_model_are_needed_where_one_runs() -> None:
    about = {"drivers": [], "gateway_needs": ["gateway", "certificates", "budgets"], "stack": {}}
    found = mirror_charts({"hub": {}}, ["hub"], STACK["serving_stack_components"], clusters={"hub": about})
    files = {each["file"] for each in found}
    assert {"trust-manager-v0.25.0.tgz", "valkey-1.0.0.tgz", "gateway-helm-v1.9.3.tgz"} < files
    assert {"ai-gateway-helm-v1.2.1.tgz", "ai-gateway-crds-helm-v1.2.1.tgz"} < files
    assert not any(file.startswith(("gateway-helm-v1.8", "ai-gateway-helm-v0")) for file in files)


def test_charts_and_images_are_listed_and_nothing_changed(charts: Mapping[str, Path], tmp_path: Path) -> None:
    folder = next(iter(charts.values())).parent
    before = sorted(path.name for path in folder.iterdir())
    states = {key: "provided" for key in ALL if key not in LISTED}
    mirror = Mirror(tmp_path, {"mirror_charts_dir": str(folder), "mirror_helm": str(helm(3))})
    ran = mirror.run(mirror_list="list.yml", mirror_control_gateway=False, serving_stack_states=states).ok()
    found = listed(tmp_path / "list.yml")
    assert {each["file"] for each in found["charts"]} == {charts[name].name for name in LISTED.values()}
    images = {each["image"]: each["used_by"] for each in found["images"]}
    for image, user in (
        ("docker.io/envoyproxy/envoy:distroless-v1.38.1", "gateway-helm v1.8.1, unnamed"),
        ("docker.io/envoyproxy/ratelimit:master", "gateway-helm v1.8.1"),
        ("quay.io/prometheus/prometheus:v3.4.0", "kube-prometheus-stack 72.6.2"),
        ("quay.io/prometheus-operator/prometheus-config-reloader:v0.82.2", "kube-prometheus-stack 72.6.2"),
        ("registry.k8s.io/ingress-nginx/kube-webhook-certgen:v1.5.3", "kube-prometheus-stack 72.6.2"),
        ("quay.io/jetstack/cert-manager-acmesolver:v1.17.1", "cert-manager v1.17.1"),
        ("quay.io/jetstack/cert-manager-startupapicheck:v1.17.1", "cert-manager v1.17.1"),
        ("docker.io/envoyproxy/ai-gateway-extproc:v0.7.0", "ai-gateway-helm v0.7.0"),
        ("ghcr.io/llm-d/llm-d-router-endpoint-picker:v0.9.0", "fleet_images.picker"),
        ("docker.io/library/python:3.11-slim", "fleet_images.hydration"),
        ("docker.io/vllm/vllm-openai:v0.23.0", "manifest ModelDeployment ml-team/qwen3-8b"),
    ):
        assert user in images[image]
        assert image in ran.output
    assert found["problems"] == []
    # The list is all that was written.
    assert (ran.changed, before) == (1, sorted(path.name for path in folder.iterdir()))


@dataclass
class World:
    """Registries outside, and the one of the site, which wants a login."""

    outside: OciRegistry
    repository: HttpRepository
    inside: OciRegistry
    mirror: Mirror

    @property
    def kept(self) -> Path:
        return self.mirror.folder / "kept"

    def pushed(self) -> dict[str, list[str]]:
        return {
            "cert-manager": self.inside.tags("charts/charts.jetstack.io/cert-manager"),
            "lws": self.inside.tags("charts/registry.k8s.io/lws/charts/lws"),
        }

    def written(self, since: int) -> set[str]:
        """Return what was written to in the registry of the site, after that many requests."""
        return {repository(each) for each in self.inside.requests[since:] if each.method not in ("GET", "HEAD")}


def repository(asked: Request) -> str:
    """The repository that a request to a registry is about."""
    return re.split("/(?:blobs|manifests)/", asked.path.removeprefix("/v2/"))[0]


@pytest.fixture(scope="module")
def world(charts: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    try:
        program = crane.crane()
    except UnavailableError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("mirror")
    with (
        OciRegistry() as outside,
        HttpRepository(credentials=("reader", SECRET)) as repository,
        OciRegistry(tls=folder / "tls", credentials=("robot", SECRET)) as inside,
    ):
        outside.add("registry.k8s.io/lws/charts", charts["lws"])
        repository.add(charts["cert-manager"])
        mirror = Mirror(
            folder,
            {
                "mirror_mode": "copy",
                "mirror_list": "list.yml",
                "mirror_helm": str(helm(3)),
                "mirror_image_tool": str(program),
                "mirror_charts_dir": "kept",
                "mirror_chart_registry": f"{inside.url}/charts",
                "mirror_image_registry": f"{inside.address}/images",
                "mirror_registry_config": str(inside.login(folder / "login.json")),
                "mirror_ca_file": str(inside.ca),
                "mirror_control_gateway": False,
                "mirror_logins": [{"repository": repository.url, "username": "reader", "password": SECRET}],
                "mirror_sources": {
                    "https://charts.jetstack.io": repository.url,
                    "oci://registry.k8s.io": f"{outside.url}/registry.k8s.io",
                    **{
                        name: f"{outside.address}/{name}"
                        for name in ("docker.io", "ghcr.io", "quay.io", "registry.k8s.io")
                    },
                },
                # The fewer, the faster.
                "mirror_exclude_images": [
                    "ghcr.io/llm-d/llm-d-router-disagg-sidecar:v0.9.0",
                    "docker.io/envoyproxy/envoy:distroless-v1.40.0",
                    "docker.io/library/python:3.11-slim",
                    "quay.io/jetstack/cert-manager-acmesolver:v1.17.1",
                    "quay.io/jetstack/cert-manager-cainjector:v1.17.1",
                    "quay.io/jetstack/cert-manager-startupapicheck:v1.17.1",
                ],
                "serving_stack_states": {key: "provided" for key in ALL if key not in SOME},
            },
        )
        yield World(outside, repository, inside, mirror)


def test_check_mode_says_what_would_be_copied(world: World) -> None:
    ran = world.mirror.run("--check")
    # No image is there yet, and each is reported.
    assert ran.failed == 1
    assert "quay.io/jetstack/cert-manager-webhook:v1.17.1 cannot be read from " in ran.output
    assert "lws-v0.8.0.tgz would be pushed to oci://" in ran.output
    assert world.pushed() == {"cert-manager": [], "lws": []}
    assert not world.kept.exists()


def test_what_cannot_be_had_keeps_nothing_else_from_being_copied(world: World) -> None:
    for image in (
        "docker.io/vllm/vllm-openai:v0.23.0",
        "ghcr.io/llm-d/llm-d-router-endpoint-picker:v0.9.0",
        "quay.io/jetstack/cert-manager-controller:v1.17.1",
        "registry.k8s.io/lws/lws:v0.8.0",
    ):
        add_image(world.outside, *image.rsplit(":", 1))
    ran = world.mirror.run()
    assert ran.failed == 1
    missing = "quay.io/jetstack/cert-manager-webhook:v1.17.1"
    reported = ran.output.rpartition("fatal: ")[2]
    assert f"{missing} cannot be read from {world.outside.address}/{missing}: " in reported
    assert "MANIFEST_UNKNOWN" in reported
    assert reported.count("cannot be read") == 1
    assert world.pushed() == {"cert-manager": ["v1.17.1"], "lws": ["v0.8.0"]}
    # Two platforms, and what is inside is byte for byte what is outside.
    name, tag = "registry.k8s.io/lws/lws", "v0.8.0"
    assert digest_of(world.inside, f"images/{name}", tag) == digest_of(world.outside, name, tag) != ""


def test_the_next_run_goes_on_and_copies_no_more_than_is_missing(world: World) -> None:
    add_image(world.outside, "quay.io/jetstack/cert-manager-webhook", "v1.17.1")
    before, outside = len(world.inside.requests), len(world.outside.requests)
    ran = world.mirror.run().ok()
    name = "quay.io/jetstack/cert-manager-webhook"
    assert world.written(before) == {f"images/{name}"}
    # Of what is there, no more than its digest is asked for.
    read = [each for each in world.outside.requests[outside:] if each.method == "GET" and "/manifests/" in each.path]
    assert {repository(each) for each in read} == {name}
    # The image, and the list is as it was.
    assert ran.changed == 1
    for key, value in listed(world.mirror.folder / "list.yml")["variables"].items():
        assert key in ran.output
        assert value


def test_what_moved_is_copied_again_by_skopeo_too_and_nothing_else(world: World) -> None:
    """Nor are charts pushed again where no folder keeps them."""
    # What is asked of skopeo, answered by crane.
    program = world.mirror.folder / "skopeo"
    program.write_text(
        f"""#!/bin/sh
case "$1 $2" in
    "--version "*) echo skopeo version 1.20.0 ;;
    "inspect --raw") for last; do :; done; exec {crane.crane()} manifest "${{last#docker://}}" ;;
    "copy --all") while [ $# -gt 2 ]; do shift; done; exec {crane.crane()} copy "${{1#docker://}}" "${{2#docker://}}" ;;
esac
"""
    )
    program.chmod(0o755)
    name, tag = "ghcr.io/llm-d/llm-d-router-endpoint-picker", "v0.9.0"
    digest = add_image(world.outside, name, tag, content="built again")
    assert digest_of(world.inside, f"images/{name}", tag) not in ("", digest)
    before = len(world.inside.requests)
    ran = world.mirror.run(mirror_image_tool=str(program), mirror_charts_dir="", mirror_list="").ok()
    assert (ran.changed, world.written(before)) == (1, {f"images/{name}"})
    assert digest_of(world.inside, f"images/{name}", tag) == digest


def test_checksums_are_kept(world: World) -> None:
    lock = yaml.safe_load((world.kept / "charts.lock").read_text())["charts"]
    assert {each["file"] for each in lock} == set(SOME.values())
    for each in lock:
        assert hashlib.sha256((world.kept / each["file"]).read_bytes()).hexdigest() == each["sha256"]


def test_archives_that_became_others_are_refused_and_without_a_program_it_is_reported_which_images_to_copy(
    world: World,
) -> None:
    # Helm writes the time into archives, so that no two are the same.
    for archive in pack(world.mirror.folder / "other", only=["cert-manager", "lws"]).values():
        shutil.copy(archive, world.kept)
    # Without a checksum, what is in the registry decides.
    lock = world.kept / "charts.lock"
    known = [each for each in yaml.safe_load(lock.read_text())["charts"] if each["file"] != SOME["cert-manager"]]
    lock.write_text(yaml.safe_dump({"charts": known}))
    chart, version = "charts/charts.jetstack.io/cert-manager", "v1.17.1"
    before = digest_of(world.inside, chart, version)
    reported = " ".join(world.mirror.run(mirror_image_tool="/nowhere/crane").output.rpartition("fatal: ")[2].split())
    picker = "ghcr.io/llm-d/llm-d-router-endpoint-picker:v0.9.0"
    desired = (
        f"lws v0.8.0: {SOME['leader-worker-set']} in {world.kept} has sha256",
        f"cert-manager has version {version} with sha256",
        "mirror_replace overwrites the copy",
        "Neither crane nor skopeo runs here as /nowhere/crane",
        f"{world.outside.address}/{picker} {world.inside.address}/images/{picker}",
    )
    assert [words for words in desired if words not in reported] == []
    assert digest_of(world.inside, chart, version) == before


def test_wrong_variables_are_refused_by_name(tmp_path: Path) -> None:
    (reported,) = ArgumentSpecValidator(SPECS["main"]["options"]).validate({"mirror_mode": "copies"}).error_messages
    assert "mirror_mode" in reported
    ran = Mirror(tmp_path, {"mirror_mode": "copy"}).run()
    assert ran.failed == 1
    assert "Set mirror_charts_dir or mirror_chart_registry" in " ".join(ran.output.split())
    wrong = {"mirror_chart_registry": "mirror.example/charts", "mirror_image_registry": "https://mirror.example"}
    ran = Mirror(tmp_path, wrong).run()
    assert ran.failed == 1
    for form in ("oci://HOST[:PORT][/FOLDER]", "HOST[:PORT][/FOLDER], without a"):
        assert f"must be of the form {form}" in " ".join(ran.output.split())


def test_every_variable_is_specified_and_its_default_is_the_same() -> None:
    options = SPECS["main"]["options"]
    assert set(options) == set(DEFAULTS)
    for name, option in options.items():
        if "default" in option:
            assert option["default"] == DEFAULTS[name], name

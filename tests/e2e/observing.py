# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Observations of a fleet for tests: which pods are where and why, where requests go, who wrote what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from ansible_collections.modelplane.fleet.tests.e2e.live_fleet import (
    CONTROL_ADDRESS,
    DRIVER,
    MANAGED,
    POOL_LABEL,
    LiveFleet,
    Object,
    kubectl,
)
from ansible_collections.modelplane.fleet.tests.kube.audit import Request
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane

RESOURCE = "resource.k8s.io/v1"
GATEWAY = "gateway.networking.k8s.io/v1"
POOL = "inference.networking.k8s.io/v1"
REPLICA_LABEL = "modelplane.ai/replica"
DEPLOYMENT_LABEL = "modelplane.ai/deployment"

_WRITTEN_BY_SERVERS = ("managedFields", "resourceVersion", "uid", "generation", "creationTimestamp")


class Writes:
    """Writes to any API server of a fleet while it is entered, in `all`, and in `lasting` without dry runs and
    questions about rights, of which nothing is kept; by tests and clusters not counted."""

    def __init__(self, live: LiveFleet) -> None:
        self._since = [(plane, plane.audit_position()) for plane in planes(live)]
        self.all: list[Request] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.all = [request for plane, since in self._since for request in plane.write_requests(since)]

    @property
    def lasting(self) -> list[Request]:
        return [
            request
            for request in self.all
            if "dryRun=All" not in request.uri and request.group != "authorization.k8s.io"
        ]


def planes(live: LiveFleet) -> list[ControlPlane]:
    return [live.control, *live.workloads.values()]


def contents(live: LiveFleet) -> dict[str, Object]:
    """Desired state of each object of the fleet, its status left out, by "<cluster>: <kind> <namespace>/<name>"."""
    found = {}
    for plane in planes(live):
        for (kind, namespace, name), value in live.ours(plane).items():
            # Controllers copy our labels to the EndpointSlices of Services.
            if name.startswith("modelplane-record-") or value["metadata"].get("ownerReferences"):
                continue
            metadata = {key: part for key, part in value["metadata"].items() if key not in _WRITTEN_BY_SERVERS}
            place = f"{namespace}/{name}" if namespace else name
            rest = {key: part for key, part in value.items() if key != "status"}
            found[f"{plane.name}: {kind} {place}"] = {**rest, "metadata": metadata}
    return found


def built(live: LiveFleet) -> dict[Path, bytes]:
    """The files of the build folder."""
    return {path: path.read_bytes() for path in (live.folder / "build").rglob("*") if path.is_file()}


def everything(plane: ControlPlane) -> list[str]:
    """All objects with our label, of every kind that a cluster serves but Events, which expire."""
    kinds = kubectl(plane, "api-resources", "--verbs=list", "--output=name").split()
    kinds = [kind for kind in kinds if not kind.startswith("events")]
    found = kubectl(plane, "get", ",".join(kinds), "-A", f"--selector={MANAGED}", "-o=name", "--ignore-not-found")
    return found.split()


def table(text: str) -> list[dict[str, str]]:
    """The rows of what kubectl lists, by column."""
    rows = []
    for block in text.strip().split("\n\n"):
        title, *lines = block.splitlines()
        # A column starts where its title does; cells may be empty or hold spaces.
        starts = [
            index for index, letter in enumerate(title) if letter != " " and (not index or title[index - 1] == " ")
        ]
        ends = [*starts[1:], None]
        rows += [{title[a:b].strip(): line[a:b].strip() for a, b in zip(starts, ends, strict=True)} for line in lines]
    return rows


# Replicas and pods


def placed(live: LiveFleet, deployment: str) -> list[Object]:
    """The placements of a deployment in the plan, sorted by cluster and name."""
    found = [entry for entry in live.plan()["placements"] if entry["deployment"] == deployment]
    return sorted(found, key=lambda entry: (entry["cluster"], entry["replica"]))


def engines(live: LiveFleet, cluster: str, deployment: str = "") -> list[Object]:
    """The pods of engines, which are those that claim devices."""
    return [
        pod
        for pod in live.pods(cluster)
        if pod["spec"].get("resourceClaims") and deployment in ("", pod["metadata"]["labels"][DEPLOYMENT_LABEL])
    ]


def tags(live: LiveFleet, cluster: str, deployment: str = "") -> set[str]:
    """The tags of the engines' images."""
    images = (pod["spec"]["containers"][0]["image"] for pod in engines(live, cluster, deployment))
    return {image.rpartition(":")[2] for image in images}


def is_ready(pod: Object) -> bool:
    """Return whether a pod is an endpoint of its Service, which a terminating pod is not."""
    return _condition(pod, "Ready").get("status") == "True" and "deletionTimestamp" not in pod["metadata"]


def created(pod: Object) -> datetime:
    return datetime.fromisoformat(pod["metadata"]["creationTimestamp"])


def became_ready(pod: Object) -> datetime:
    return datetime.fromisoformat(_condition(pod, "Ready")["lastTransitionTime"])


def check_placement(live: LiveFleet) -> None:
    """The scheduler of each cluster did what the plan says: as many pods per pool, each with the devices of its node
    that it claims, none of them twice; the ModelReplicas say the same."""
    taken: Counter[tuple[str, str, str]] = Counter()
    counted = 0
    for placement in live.plan()["placements"]:
        name, cluster = placement["replica"], placement["cluster"]
        plane = live.workloads[cluster]
        pools = {node["metadata"]["name"]: _pool(node) for node in plane.objects.list("v1", "Node")}
        desired: Counter[tuple[str, int]] = Counter()
        for engine in placement["engines"]:
            for part in engine["members"]:
                count = sum(request["count"] for request in part["deviceRequests"])
                desired[part["pool"], count] += engine["copies"] * part["pods"]
        found: Counter[tuple[str, int]] = Counter()
        for pod in engines(live, cluster):
            if pod["metadata"]["labels"][REPLICA_LABEL] == name:
                assert is_ready(pod), pod["status"]
                node = pod["spec"]["nodeName"]
                devices = _devices(plane, pod)
                assert {(device["driver"], device["pool"]) for device in devices} == {(DRIVER, node)}
                taken.update((cluster, device["pool"], device["device"]) for device in devices)
                found[pools[node], len(devices)] += 1
                counted += 1
        assert found == desired, f"{name} on {cluster}"
        replica = live.resource("ModelReplica", name, placement["namespace"])
        assert replica["spec"]["clusterName"] == cluster
    assert counted == sum(len(engines(live, cluster)) for cluster in live.workloads)
    assert set(taken.values()) == {1}, taken


def _pool(node: Object) -> str:
    return str(node["metadata"]["labels"].get(POOL_LABEL, "none"))


def _devices(plane: ControlPlane, pod: Object) -> list[Object]:
    """The devices that were allocated for a pod."""
    found = []
    for entry in pod["status"]["resourceClaimStatuses"]:
        claim = plane.get(RESOURCE, "ResourceClaim", entry["resourceClaimName"], pod["metadata"]["namespace"])
        assert claim is not None
        assert pod["metadata"]["uid"] in {user["uid"] for user in claim["status"]["reservedFor"]}
        found += allocated(claim)
    return found


def allocated(claim: Object) -> list[Object]:
    """The devices of a ResourceClaim."""
    results: list[Object] = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
    return results


def _condition(value: Object, kind: str) -> Object:
    conditions = value.get("status", {}).get("conditions") or ()
    return next((entry for entry in conditions if entry["type"] == kind), {})


# The way of a request


def check_ways(live: LiveFleet, service: str, deployments: Sequence[str]) -> None:
    """Requests for a service reach ready pods of every replica of these deployments, as far as objects show: from
    its URL through the control gateway to each cluster's gateway, and there through the InferencePool to the pods."""
    resource = live.resource("ModelService", service, "team")
    assert resource["status"]["address"] == f"http://{CONTROL_ADDRESS}/team/{service}"
    routes = [route for route in _routes(live.control) if _prefix(route) == f"/team/{service}/"]
    assert len(routes) == 1
    (rule,) = routes[0]["spec"]["rules"]
    ways = sorted(_way(live, reference) for reference in rule["backendRefs"])
    # What is to go serves on until something serves in its place.
    leaving = [entry for entry in live.plan()["leaving"] if entry["deployment"] in deployments]
    desired = [*(entry for name in deployments for entry in placed(live, name)), *leaving]
    assert ways == sorted((live.addresses[entry["cluster"]], f"/team/{entry['replica']}/") for entry in desired)
    for entry in desired:
        _check_replica(live.workloads[entry["cluster"]], f"/team/{entry['replica']}/", entry["replica"])


def _way(live: LiveFleet, reference: Object) -> tuple[str, str]:
    """Return where the control gateway sends what goes to a backend: address and path."""
    slices = live.control.objects.list(
        "discovery.k8s.io/v1", "EndpointSlice", "team", f"kubernetes.io/service-name={reference['name']}"
    )
    assert live.control.get("v1", "Service", reference["name"], "team")
    (address,) = [address for each in slices for endpoint in each["endpoints"] for address in endpoint["addresses"]]
    (rewrite,) = [each["urlRewrite"] for each in reference["filters"] if each["type"] == "URLRewrite"]
    return address, rewrite["path"]["replacePrefixMatch"]


def _check_replica(plane: ControlPlane, prefix: str, replica: str) -> None:
    routes = [route for route in _routes(plane) if _prefix(route) == prefix]
    assert len(routes) == 1
    (rule,) = routes[0]["spec"]["rules"]
    (backend,) = rule["backendRefs"]
    namespace = routes[0]["metadata"]["namespace"]
    pool = plane.get(POOL, "InferencePool", backend["name"], namespace)
    assert pool is not None
    picker = plane.get("v1", "Service", pool["spec"]["endpointPickerRef"]["name"], namespace)
    assert picker is not None
    for selector, what in (
        (pool["spec"]["selector"]["matchLabels"], f"engine of {replica}"),
        (picker["spec"]["selector"], f"picker of {replica}"),
    ):
        labels = ",".join(f"{name}={value}" for name, value in selector.items())
        pods = plane.objects.list("v1", "Pod", namespace, labels)
        assert {pod["metadata"]["labels"][REPLICA_LABEL] for pod in pods} == {replica}, what
        assert any(is_ready(pod) for pod in pods), what


def _routes(plane: ControlPlane) -> Iterator[Object]:
    """HTTPRoutes that their gateway took, with all that they lead to."""
    for route in plane.objects.list(GATEWAY, "HTTPRoute", labels=MANAGED):
        parents = route.get("status", {}).get("parents", [])
        conditions = [entry for parent in parents for entry in parent["conditions"]]
        reported = {(entry["type"], entry["status"]) for entry in conditions}
        if reported == {("Accepted", "True"), ("ResolvedRefs", "True")}:
            yield route


def _prefix(route: Object) -> str:
    (rule,) = route["spec"]["rules"]
    return str(rule["matches"][0]["path"]["value"])

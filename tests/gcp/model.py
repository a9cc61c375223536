# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Clusters of GKE and their node pools as the double keeps them, and the rules that hold for changes of both."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

from ansible_collections.modelplane.fleet.tests.cloud.authority import authority
from ansible_collections.modelplane.fleet.tests.cloud.refusals import Refusal

from . import catalogue
from .operations import start_container
from .wire import Json, canonical
from .world import World, base64_text

NAME = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")
_LABEL_KEY = re.compile(r"[a-z][-_a-z0-9]{0,62}")
_LABEL_VALUE = re.compile(r"[-_a-z0-9]{0,63}")
# Fields whose keys are up to those who set them: empty ones are not written.
_MAPS = ("labels", "metadata", "resourceLabels")


class Cluster:
    """A cluster. `body`: its representation in the API, without its pools. `pools`: those, by name."""

    def __init__(self, world: World, path: str, body: Json, network: str, subnetwork: str) -> None:
        self.world, self.path, self.body = world, path, body
        self.network, self.subnetwork = network, subnetwork
        self.pools: dict[str, Pool] = {}
        # In the names of what GKE makes for it.
        self.uid = world.token(8, "0123456789abcdef")

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def project(self) -> str:
        return self.path.split("/")[1]

    @property
    def location(self) -> str:
        return self.path.split("/")[3]

    @property
    def zones(self) -> list[str]:
        return list(self.body["locations"])

    @property
    def ranges(self) -> set[str]:
        """The secondary ranges of the subnetwork that it uses."""
        policy = self.body.get("ipAllocationPolicy", {})
        return {policy[key] for key in ("clusterSecondaryRangeName", "servicesSecondaryRangeName") if policy.get(key)}

    def machines(self) -> Iterator[str]:
        """The paths of the machines."""
        for pool in self.pools.values():
            for zone in pool.zones:
                for number in range(pool.nodes):
                    name = f"gke-{self.name[:20]}-{pool.name[:10]}-{self.uid}-{number:04x}"
                    yield f"projects/{self.project}/zones/{zone}/instances/{name}"

    def usage(self) -> Counter[str]:
        """Return what it takes of the quotas of its region."""
        used: Counter[str] = Counter()
        for pool in self.pools.values():
            used.update(pool.usage())
        return used

    def touch(self) -> None:
        self.body["etag"] = self.world.token(8)

    def shown(self) -> Json:
        """As the API returns it."""
        servers = self.world.servers
        url, authority_pem = servers.get(self.name) or servers.get("") or ("", "")
        shown = deepcopy(self.body)
        if shown["status"] != "PROVISIONING":
            shown["endpoint"] = url.removeprefix("https://").rstrip("/") or shown["endpoint"]
            certificate = base64_text(authority_pem) if authority_pem else authority()
            shown["masterAuth"] = {"clusterCaCertificate": certificate}
        else:
            shown.pop("endpoint", None)
        shown["nodePools"] = [pool.shown() for pool in self.pools.values()]
        shown["currentNodeCount"] = sum(pool.nodes * len(pool.zones) for pool in self.pools.values())
        shown["instanceGroupUrls"] = [url for pool in shown["nodePools"] for url in pool.get("instanceGroupUrls", ())]
        versions_of_pools = {pool.body["version"] for pool in self.pools.values()}
        shown["currentNodeVersion"] = "*" if len(versions_of_pools) > 1 else "".join(versions_of_pools)
        kept: Json = written(shown)
        return kept


class Pool:
    """A node pool. `nodes`: how many there are in each zone."""

    def __init__(self, cluster: Cluster, body: Json, nodes: int) -> None:
        self.cluster, self.body, self.nodes = cluster, body, nodes

    @property
    def name(self) -> str:
        return str(self.body["name"])

    @property
    def path(self) -> str:
        return f"{self.cluster.path}/nodePools/{self.name}"

    @property
    def zones(self) -> list[str]:
        return list(self.body["locations"])

    @property
    def accelerator(self) -> tuple[str, int]:
        """Type and number of the accelerators of a machine."""
        for each in self.body["config"].get("accelerators", ()):
            return each.get("acceleratorType", ""), int(each.get("acceleratorCount", 0))
        return "", 0

    def usage(self) -> Counter[str]:
        return self.needs(self.nodes, self.zones)

    def needs(self, nodes: int, zones: list[str]) -> Counter[str]:
        """Return what so many nodes in each of the zones take of the quotas."""
        each = catalogue.demand(self.body["config"]["machineType"], *self.accelerator)
        return Counter({metric: count * nodes * len(zones) for metric, count in each.items()})

    def stocked_out(self) -> list[str]:
        """The zones that have no machines for it."""
        kinds = (self.body["config"]["machineType"], self.accelerator[0])
        stockouts = self.cluster.world.settings.stockouts
        return [zone for zone in self.zones if any(out["zone"] == zone and out["type"] in kinds for out in stockouts)]

    def touch(self) -> None:
        self.body["etag"] = self.cluster.world.token(8)
        self.cluster.touch()

    def shown(self) -> Json:
        """As the API returns it. A pool that lacked machines in a zone gets them once there are any."""
        if self.body["status"] == "RUNNING_WITH_ERROR" and not self.body.get("_lasting") and not self.stocked_out():
            self.body["status"] = "RUNNING"
            self.body.pop("conditions", None)
            self.body.pop("statusMessage", None)
        kept: Json = written({key: value for key, value in deepcopy(self.body).items() if not key.startswith("_")})
        return kept


def written(value: Any, name: str = "") -> Any:
    """A value as protocol buffers of version 3 are written: without what has the default of its type."""
    if isinstance(value, dict):
        return (
            {
                key: each
                for key, each in ((key, written(each, key)) for key, each in value.items())
                if each not in (None, False, "", [])
                and not (each == 0 and not isinstance(each, dict))
                and not (each == {} and key in _MAPS)
            }
            if name not in _MAPS
            else dict(value)
        )
    return [written(each) for each in value] if isinstance(value, list) else value


def refuse_busy(cluster: Cluster) -> None:
    """A cluster does one thing at a time. Being refused takes time too."""
    for operation in cluster.world.running(cluster.path):
        name = operation.body["name"]
        operation.observe()
        if operation.kind == "create cluster":
            raise Refusal(
                "FAILED_PRECONDITION",
                f"Operation {name} is currently creating cluster {cluster.name}. Please wait and try again once it is "
                "done.",
                400,
            )
        raise Refusal("FAILED_PRECONDITION", f"Cluster is running incompatible operation {name}.", 400)


def find(world: World, path: str) -> Cluster:
    found: Cluster | None = world.clusters.get(path)
    if found is None:
        raise Refusal("NOT_FOUND", f"Not found: {path}.", 404)
    return found


def changing(
    cluster: Cluster,
    operation_type: str,
    kind: str,
    target: str,
    change: Callable[[], None],
    failed: Callable[[Json], None] | None = None,
    failure: Json | None = None,
) -> Json:
    """Begins what changes a cluster or a pool: it is RECONCILING meanwhile, and what it was when that fails."""
    thing: Cluster | Pool = cluster if target == cluster.path else cluster.pools[target.rpartition("/")[2]]
    before = thing.body["status"]
    thing.body["status"] = "RECONCILING"

    def done() -> None:
        thing.body["status"] = "RUNNING"
        thing.body.pop("conditions", None)
        thing.body.pop("statusMessage", None)
        change()
        thing.touch()

    def undone(reported: Json) -> None:
        thing.body["status"] = before
        if failed:
            failed(reported)

    return start_container(cluster.world, operation_type, kind, target, done, undone, failure=failure)


def condition(failure: Json) -> Json:
    """A failure as the condition of a cluster or pool."""
    code = failure["code"]
    older = code if code in ("GCE_STOCKOUT", "GCE_QUOTA_EXCEEDED") else "UNKNOWN"
    return {"code": older, "canonicalCode": canonical(code), "message": failure["message"]}


def invalid(message: str) -> Refusal:
    return Refusal("INVALID_ARGUMENT", message, 400)


def check_labels(labels: Json) -> None:
    """Labels in Google Cloud."""
    for key, value in labels.items():
        if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
            raise invalid(f"Invalid field 'cluster.resource_labels': label {key}={value} is not valid.")

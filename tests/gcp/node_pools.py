# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Node pools of GKE."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from ansible_collections.modelplane.fleet.tests.cloud.refusals import Refusal

from . import catalogue, compute, versions
from .model import (
    NAME,
    Cluster,
    Pool,
    changing,
    check_labels,
    condition,
    find,
    invalid,
    refuse_busy,
)
from .operations import container_link, serves, start_container
from .wire import Call, Json
from .world import World

_GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}
_PROVISIONING = {"goog-gke-node-pool-provisioning-model": "on-demand"}
_QUALIFIED = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_RESERVATION_KEY = "compute.googleapis.com/reservation-name"
_TOGETHER = {"machineType", "diskType", "diskSizeGb", "imageType", "accelerators", "nodeVersion"}
"""Fields of an update that may go in one call. Others go alone."""


@serves("container", "projects.locations.clusters.nodePools.create")
def create(world: World, call: Call) -> Json:
    cluster = find(world, call.path.removesuffix("/nodePools"))
    desired = dict(call.body.get("nodePool") or {})
    pool = made(cluster, desired)
    world.observe(pool.path)
    if pool.name in cluster.pools:
        raise Refusal("ALREADY_EXISTS", f"Already exists: {pool.path}.", 409)
    refuse_busy(cluster)
    if cluster.body["status"] not in ("RUNNING", "RECONCILING"):
        raise Refusal("FAILED_PRECONDITION", f"Cluster {cluster.name} is {cluster.body['status']}.", 400)
    refuse_above_quota(cluster, [pool])
    cluster.pools[pool.name] = pool
    taint(cluster)

    def done() -> None:
        pool.body["status"] = "RUNNING"
        cluster.touch()

    return start_container(
        world,
        "CREATE_NODE_POOL",
        "create node pool",
        pool.path,
        done,
        lambda failure: _failed(pool, failure),
        failure=stock_out(pool) if pool.nodes else None,
    )


@serves("container", "projects.locations.clusters.nodePools.get")
def get(world: World, call: Call) -> Json:
    cluster_path, _, name = call.path.rpartition("/nodePools/")
    world.observe(call.path)
    # Nothing is done to a pool while its cluster is made or deleted: that takes time too.
    for operation in world.running(cluster_path):
        if operation.target == cluster_path:
            operation.observe()
    return _found(find(world, cluster_path), name).shown()


@serves("container", "projects.locations.clusters.nodePools.list")
def list_(world: World, call: Call) -> Json:
    path = call.path.removesuffix("/nodePools")
    world.observe(path)
    found = [pool.shown() for pool in find(world, path).pools.values()]
    return {"nodePools": found} if found else {}


@serves("container", "projects.locations.clusters.nodePools.delete")
def delete(world: World, call: Call) -> Json:
    cluster, pool = _of(world, call)
    refuse_busy(cluster)
    pool.body["status"] = "STOPPING"

    def done() -> None:
        cluster.pools.pop(pool.name, None)
        cluster.touch()

    return start_container(
        world,
        "DELETE_NODE_POOL",
        "delete node pool",
        pool.path,
        done,
        lambda failure: pool.body.update(status="ERROR", conditions=[condition(failure)]),
    )


@serves("container", "projects.locations.clusters.nodePools.setSize")
def set_size(world: World, call: Call) -> Json:
    cluster, pool = _of(world, call)
    nodes = call.body.get("nodeCount", 0)
    if nodes < 0:
        raise invalid("node_count must not be negative.")
    refuse_busy(cluster)
    more = max(nodes - pool.nodes, 0)
    if more:
        refuse_above_quota(cluster, [pool], more)

    def change() -> None:
        pool.nodes = nodes

    def failed(failure: Json) -> None:
        _failed(pool, {**failure, "pool_status": "RUNNING_WITH_ERROR"})

    return changing(
        cluster,
        "SET_NODE_POOL_SIZE",
        "set size of node pool",
        pool.path,
        change,
        failed,
        stock_out(pool) if more else None,
    )


@serves("container", "projects.locations.clusters.nodePools.setAutoscaling")
def set_autoscaling(world: World, call: Call) -> Json:
    """Set the bounds. The autoscaler does not resize a pool to new bounds by itself."""
    cluster, pool = _of(world, call)
    desired = _autoscaling(call.body.get("autoscaling") or {})
    refuse_busy(cluster)
    return changing(
        cluster, "UPDATE_CLUSTER", "update node pool", pool.path, lambda: pool.body.update(autoscaling=desired)
    )


@serves("container", "projects.locations.clusters.nodePools.setManagement")
def set_management(world: World, call: Call) -> Json:
    cluster, pool = _of(world, call)
    desired = call.body.get("management") or {}
    refuse_busy(cluster)
    return changing(
        cluster,
        "SET_NODE_POOL_MANAGEMENT",
        "update node pool",
        pool.path,
        lambda: pool.body.update(management=dict(desired)),
    )


@serves("container", "projects.locations.clusters.nodePools.update")
def update(world: World, call: Call) -> Json:
    """One thing in a call, but for what the machines are made of."""
    cluster, pool = _of(world, call)
    desired = {key: value for key, value in call.body.items() if key not in ("name", "etag")}
    if call.body.get("etag") not in (None, "", pool.body["etag"]):
        raise Refusal("ABORTED", "The etag of the node pool is another one.", 409)
    if not desired:
        raise invalid("At least one field of the node pool has to be updated.")
    if len(desired) > 1 and not set(desired) <= _TOGETHER:
        raise invalid(f"{', '.join(sorted(desired))} cannot be updated in one call.")
    refuse_busy(cluster)
    if set(desired) == {"nodeVersion"}:
        return upgraded(pool, desired["nodeVersion"])
    changed = deepcopy(pool.body)
    for field, value in desired.items():
        _apply(cluster, changed, field, value)
    _check(cluster, changed)
    # Machines of another kind are others.
    kind = "UPGRADE_NODES" if set(desired) & _TOGETHER else "UPDATE_CLUSTER"

    def change() -> None:
        status = pool.body["status"]
        pool.body.clear()
        pool.body.update(changed, status=status)
        for gone in ("conditions", "statusMessage", "_lasting"):
            pool.body.pop(gone, None)
        taint(cluster)

    return changing(cluster, kind, "update node pool", pool.path, change)


def upgraded(pool: Pool, desired: str) -> Json:
    """Begins the upgrade of a pool: to a version that is not ahead of the control plane."""
    cluster = pool.cluster
    master = cluster.body["currentMasterVersion"]
    channel = cluster.body["releaseChannel"].get("channel", "")
    version = master if desired in ("-", "") else versions.chosen(cluster.world, desired, channel)
    if versions.key(version) > versions.key(master):
        raise invalid(f'Node version "{version}" must not be newer than the master version "{master}".')
    return changing(cluster, "UPGRADE_NODES", "upgrade node pool", pool.path, lambda: pool.body.update(version=version))


def made(cluster: Cluster, desired: Json) -> Pool:
    """A pool with all that Google adds. Raises Refusal for one that GKE does not make."""
    desired = deepcopy(desired)
    name = desired.get("name", "")
    if not NAME.fullmatch(name):
        raise invalid(f'Node pool name "{name}" must be up to 40 lower-case letters, digits and dashes.')
    autoscaling = _autoscaling(desired.get("autoscaling") or {})
    nodes = desired.get("initialNodeCount", 0)
    least, most = autoscaling.get("minNodeCount", 0), autoscaling.get("maxNodeCount", nodes)
    if autoscaling.get("enabled") and "totalMaxNodeCount" not in autoscaling and not least <= nodes <= most:
        raise invalid(f"initial_node_count {nodes} of node pool {name} must be from {least} to {most}.")
    master = cluster.body["currentMasterVersion"]
    channel = cluster.body["releaseChannel"].get("channel", "")
    version = desired.get("version", "")
    version = (
        master
        if version in ("", "-") or versions.matches(master, version)
        else (versions.chosen(cluster.world, version, channel))
    )
    if versions.key(version) > versions.key(master):
        raise invalid(f'Node version "{version}" must not be newer than the master version "{master}".')
    config = desired.get("config") or {}
    body = {
        "management": {"autoUpgrade": True, "autoRepair": True},
        "upgradeSettings": {"maxSurge": 1, "strategy": "SURGE"},
        "maxPodsConstraint": {"maxPodsPerNode": "110"},
        **desired,
        "locations": list(desired.get("locations") or cluster.zones),
        "initialNodeCount": nodes,
        "autoscaling": autoscaling,
        "version": version,
        "etag": cluster.world.token(8),
        "status": "PROVISIONING",
        "selfLink": container_link(cluster.world, f"{cluster.path}/nodePools/{name}"),
        "podIpv4CidrSize": 24,
        "networkConfig": {
            **desired.get("networkConfig", {}),
            "podRange": cluster.body["ipAllocationPolicy"].get("clusterSecondaryRangeName", ""),
            "podIpv4CidrBlock": cluster.body["clusterIpv4Cidr"],
            "podIpv4RangeUtilization": 0.0039,
        },
        "config": {
            "diskSizeGb": 100,
            "diskType": "pd-balanced",
            "machineType": "e2-medium",
            "imageType": "COS_CONTAINERD",
            "serviceAccount": "default",
            "shieldedInstanceConfig": {"enableIntegrityMonitoring": True},
            "windowsNodeConfig": {},
            "loggingConfig": {"variantConfig": {"variant": "DEFAULT"}},
            "effectiveCgroupMode": "EFFECTIVE_CGROUP_MODE_V2",
            **config,
            "metadata": {"disable-legacy-endpoints": "true", **config.get("metadata", {})},
            "resourceLabels": {**config.get("resourceLabels", {}), **_PROVISIONING},
            "taints": list(config.get("taints", ())),
        },
    }
    if cluster.body.get("workloadIdentityConfig", {}).get("workloadPool"):
        body["config"].setdefault("workloadMetadataConfig", {"mode": "GKE_METADATA"})
    _check(cluster, body)
    pool = Pool(cluster, body, nodes)
    body["instanceGroupUrls"] = [
        f"https://www.googleapis.com/compute/v1/projects/{cluster.project}/zones/{zone}/instanceGroupManagers/"
        f"gke-{cluster.name}-{name}-{cluster.uid}-grp"
        for zone in pool.zones
    ]
    return pool


def taint(cluster: Cluster) -> None:
    """Keeps what claims no GPU off nodes with GPUs, as soon as there are nodes without."""
    pools = list(cluster.pools.values())
    if all(pool.accelerator[1] for pool in pools):
        return
    for pool in pools:
        taints = pool.body["config"].setdefault("taints", [])
        if pool.accelerator[1] and all(each["key"] != _GPU_TAINT["key"] for each in taints):
            taints.append(dict(_GPU_TAINT))


def refuse_above_quota(cluster: Cluster, pools: Sequence[Pool], nodes: int | None = None) -> None:
    """Refuses nodes (those that pools begin with, or so many in each zone) that the quotas of the region forbid."""
    region, world = catalogue.region_of(cluster.location), cluster.world
    needed: Counter[str] = Counter()
    for pool in pools:
        needed.update(pool.needs(pool.nodes if nodes is None else nodes, pool.zones))
    used = catalogue.usage(world, cluster.project, region)
    limits = {**catalogue.QUOTAS, **world.settings.quotas.get(region, {})}
    for metric, count in needed.items():
        free = limits.get(metric, float("inf")) - used[metric]
        if count > free:
            raise Refusal(
                "PERMISSION_DENIED",
                f'Insufficient regional quota to satisfy request: resource "{metric}": request requires '
                f"'{count:.1f}' and is short '{count - free:.1f}'. project has a quota of "
                f"'{limits[metric]:.1f}' with '{free:.1f}' available. View and manage quotas at "
                "https://console.cloud.google.com/iam-admin/quotas?usage=USED"
                f"&project={cluster.project}.",
                403,
            )


def stock_out(pool: Pool) -> Json | None:
    """The failure of a pool for which zones have no machines; None when they have."""
    zones = pool.stocked_out()
    if not zones:
        return None
    return {
        "code": "GCE_STOCKOUT",
        "message": "Google Compute Engine does not have enough resources available to fulfill the request: "
        f"{', '.join(zones)}. ZONE_RESOURCE_POOL_EXHAUSTED",
        "pool_status": "ERROR" if len(zones) == len(pool.zones) else "RUNNING_WITH_ERROR",
    }


def _failed(pool: Pool, failure: Json) -> None:
    """Set the status of a pool whose machines are not made. One that a test lets fail stays so."""
    status = failure.get("pool_status") or "ERROR"
    pool.body.update(status=status, statusMessage=failure["message"], conditions=[condition(failure)])
    if "kind" in failure:
        pool.body["_lasting"] = True
    if status == "ERROR":
        pool.nodes = 0
    pool.cluster.touch()


def _autoscaling(desired: Json) -> Json:
    if not desired.get("enabled"):
        if any(desired.get(key) for key in ("minNodeCount", "maxNodeCount", "totalMinNodeCount", "totalMaxNodeCount")):
            raise invalid("Bounds of autoscaling can only be set when it is enabled.")
        return {}
    per_zone = "minNodeCount" in desired or "maxNodeCount" in desired
    total = "totalMinNodeCount" in desired or "totalMaxNodeCount" in desired
    if per_zone and total:
        raise invalid("min_node_count and max_node_count exclude total_min_node_count and total_max_node_count.")
    least, most = (
        (desired.get("totalMinNodeCount", 0), desired.get("totalMaxNodeCount", 0))
        if total
        else (desired.get("minNodeCount", 0), desired.get("maxNodeCount", 0))
    )
    if most < 1:
        raise invalid("autoscaling.max_node_count must be greater than zero.")
    if not 0 <= least <= most:
        raise invalid(f"autoscaling.min_node_count {least} must not be more than max_node_count {most}.")
    return {"locationPolicy": "BALANCED", **desired}


def _check(cluster: Cluster, body: Json) -> None:
    """Refuses machines that are not to be had in a zone of a pool, and what GKE does not take of its nodes."""
    config, zones = body["config"], body["locations"]
    settings, region = cluster.world.settings, catalogue.region_of(cluster.location)
    machine_type = config["machineType"]
    if not zones or len(set(zones)) != len(zones):
        raise invalid("locations must name different zones.")
    for zone in zones:
        if zone not in catalogue.REGIONS[region]:
            raise invalid(f'Zone "{zone}" is not in region {region}.')
        if machine_type not in catalogue.machine_types(zone, settings):
            raise invalid(f'Machine type "{machine_type}" does not exist in zone "{zone}".')
        for each in config.get("accelerators", ()):
            if each.get("acceleratorType") not in catalogue.accelerators(zone, settings):
                raise invalid(f'Accelerator type "{each.get("acceleratorType")}" does not exist in zone "{zone}".')
    _check_accelerators(machine_type, config.get("accelerators", ()))
    _check_nodes(config)
    _check_account(cluster, config["serviceAccount"])
    _check_capacity(body)
    _check_upgrades(body.get("upgradeSettings", {}))
    _check_networks(cluster, body.get("networkConfig", {}))


def _check_nodes(config: Json) -> None:
    """Refuses disks, images, labels and taints that GKE does not take."""
    if int(config["diskSizeGb"]) < 10:
        raise invalid("disk_size_gb must be at least 10.")
    if config["imageType"] not in ("COS_CONTAINERD", "UBUNTU_CONTAINERD"):
        raise invalid(f'Image type "{config["imageType"]}" is not supported.')
    for key, value in config.get("labels", {}).items():
        if not _QUALIFIED.fullmatch(key) or not _VALUE.fullmatch(value):
            raise invalid(f"Label {key}={value} of the nodes is not valid.")
        if key.partition("/")[0] in ("kubernetes.io", "k8s.io") or key == "cloud.google.com/gke-nodepool":
            raise invalid(f"Label {key} of the nodes is reserved.")
    for each in config.get("taints", ()):
        if not _QUALIFIED.fullmatch(each.get("key", "")) or not _VALUE.fullmatch(each.get("value", "")):
            raise invalid(f"Taint {each} of the nodes is not valid.")
        if each.get("effect", "EFFECT_UNSPECIFIED") == "EFFECT_UNSPECIFIED":
            raise invalid(f"Taint {each.get('key')} of the nodes needs an effect.")
    keys = [(each["key"], each["effect"]) for each in config.get("taints", ())]
    if len(set(keys)) != len(keys):
        raise invalid("Two taints of the nodes have the same key and effect.")
    check_labels(config.get("resourceLabels", {}))


def _check_account(cluster: Cluster, account: str) -> None:
    """Refuse nodes that run as an account that does not exist ("Use least privilege IAM service accounts")."""
    if account != "default" and account not in cluster.world.accounts:
        raise invalid(f'The service account "{account}" does not exist.')


def _check_capacity(body: Json) -> None:
    """Refuse machines that are bought in two ways. Sources: "Consuming reserved zonal resources" (a specific
    reservation is named by the key compute.googleapis.com/reservation-name), "Spot VMs" (they take no reservation),
    "Run a small batch workload with GPUs and flex-start provisioning mode" (--enable-autoscaling, --num-nodes 0,
    --reservation-affinity=none, --no-enable-autorepair)."""
    config = body["config"]
    affinity = config.get("reservationAffinity", {})
    kind, values = affinity.get("consumeReservationType", "UNSPECIFIED"), affinity.get("values", [])
    if kind == "SPECIFIC_RESERVATION" and (affinity.get("key") != _RESERVATION_KEY or not values):
        raise invalid(f"A specific reservation needs the key {_RESERVATION_KEY} and its name in values.")
    if kind != "SPECIFIC_RESERVATION" and (affinity.get("key") or values):
        raise invalid("key and values of reservation_affinity are for SPECIFIC_RESERVATION.")
    if config.get("spot") and config.get("flexStart"):
        raise invalid("spot and flex_start cannot both be set.")
    if config.get("spot") and kind not in ("UNSPECIFIED", "NO_RESERVATION"):
        raise invalid("Spot VMs cannot consume reservations.")
    if not config.get("flexStart"):
        return
    if kind != "NO_RESERVATION":
        raise invalid("Flex-start node pools must have reservation affinity NO_RESERVATION.")
    if not body["autoscaling"].get("enabled") or body["autoscaling"].get("minNodeCount") or body["initialNodeCount"]:
        raise invalid("Flex-start node pools must be autoscaled, and begin with no nodes.")
    if body["management"].get("autoRepair"):
        raise invalid("Auto-repair cannot be enabled on flex-start node pools.")
    if int(config.get("maxRunDuration", "604800s").removesuffix("s")) > 604800:
        raise invalid("max_run_duration of flex-start must be at most 7 days.")


def _check_upgrades(desired: Json) -> None:
    """Refuse upgrades that change no node, or too many at once ("Configure surge upgrades": both cannot be 0, and they
    are 20 at most together)."""
    if desired.get("strategy", "SURGE") != "SURGE":
        return
    nodes = desired.get("maxSurge", 0) + desired.get("maxUnavailable", 0)
    if not 1 <= nodes <= 20:
        raise invalid("max_surge and max_unavailable of upgrade_settings must be 1 to 20 together.")


def _check_networks(cluster: Cluster, desired: Json) -> None:
    """Refuse more interfaces of nodes where the cluster has none ("Set up multi-network support for Pods": at a
    cluster with multi-networking, which needs GKE Dataplane V2), and on networks that do not exist."""
    more = desired.get("additionalNodeNetworkConfigs", ())
    if not more and not desired.get("acceleratorNetworkProfile"):
        return
    if more and desired.get("acceleratorNetworkProfile"):
        raise invalid("accelerator_network_profile excludes additional_node_network_configs.")
    if not cluster.body["networkConfig"].get("enableMultiNetworking"):
        raise invalid("Additional node networks need a cluster with multi-networking enabled.")
    for each in more:
        if compute.network_path(cluster.project, each["network"]) not in cluster.world.compute:
            raise invalid(f'Network "{each["network"]}" does not exist.')


def _check_accelerators(machine_type: str, desired: Sequence[Json]) -> None:
    machine = catalogue.MACHINES[machine_type]
    given = [(each.get("acceleratorType", ""), int(each.get("acceleratorCount", 0))) for each in desired]
    if machine.accelerator and given != [(machine.accelerator, machine.accelerators)]:
        raise invalid(
            f'Machine type "{machine_type}" has {machine.accelerators} accelerators of type {machine.accelerator}: the '
            "node pool has to have the same."
        )
    if not machine.accelerator and given and not machine_type.startswith("n1-"):
        raise invalid(f'Accelerators cannot be attached to machine type "{machine_type}".')


def _apply(cluster: Cluster, body: Json, field: str, value: Any) -> None:
    """Apply a field of an update to the body of a pool."""
    config = body["config"]
    if field == "labels":
        config["labels"] = dict(value.get("labels", {}))
    elif field == "taints":
        config["taints"] = [dict(each) for each in value.get("taints", ())]
    elif field == "resourceLabels":
        config["resourceLabels"] = {**value.get("labels", {}), **_PROVISIONING}
    elif field == "tags":
        config["tags"] = list(value.get("tags", ()))
    elif field == "locations":
        body["locations"] = list(value)
    elif field == "diskSizeGb":
        config["diskSizeGb"] = int(value)
    elif field in ("machineType", "imageType", "diskType", "accelerators", "workloadMetadataConfig"):
        config[field] = deepcopy(value)
    elif field == "upgradeSettings":
        body["upgradeSettings"] = dict(value)
    elif field == "gvnic":
        config["gvnic"] = dict(value)
    elif field == "nodeNetworkConfig":
        body["networkConfig"].update(deepcopy(value))
    elif field == "nodeVersion":
        channel = cluster.body["releaseChannel"].get("channel", "")
        master = cluster.body["currentMasterVersion"]
        body["version"] = master if value in ("", "-") else versions.chosen(cluster.world, value, channel)
    else:
        raise Refusal("NotInTheDouble", f"the double does not update {field} of a node pool", 501)


def _of(world: World, call: Call) -> tuple[Cluster, Pool]:
    """The cluster and the pool that a call is about."""
    cluster_path, _, name = call.path.rpartition("/nodePools/")
    cluster = find(world, cluster_path)
    return cluster, _found(cluster, name)


def _found(cluster: Cluster, name: str) -> Pool:
    if name not in cluster.pools:
        raise Refusal("NOT_FOUND", f"Not found: {cluster.path}/nodePools/{name}.", 404)
    return cluster.pools[name]

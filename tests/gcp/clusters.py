# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Clusters of GKE: one operation at a time, what Google adds to what was asked for, and updates of one thing each."""

from __future__ import annotations

import ipaddress
import re
import zlib
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from ansible_collections.modelplane.fleet.tests.cloud.refusals import Refusal

from . import catalogue, compute, node_pools, versions
from .model import NAME, Cluster, changing, check_labels, condition, find, invalid, refuse_busy, written
from .operations import container_link, observed, serves, start_container
from .wire import Call, Json
from .world import World, relative, timestamp


@serves("container", "projects.locations.getServerConfig")
def server_config(world: World, call: Call) -> Json:
    _known_location(call.path.split("/")[3])
    channels = [
        {"channel": name, "defaultVersion": versions.default(world, name), "validVersions": offered[::-1]}
        for name, offered in world.settings.versions.items()
    ]
    everything = sorted({each for offered in world.settings.versions.values() for each in offered}, key=versions.key)
    return {
        "defaultClusterVersion": versions.default(world, "REGULAR"),
        "validMasterVersions": everything[::-1],
        "validNodeVersions": everything[::-1],
        "defaultImageType": "COS_CONTAINERD",
        "validImageTypes": ["COS_CONTAINERD", "UBUNTU_CONTAINERD", "WINDOWS_LTSC_CONTAINERD"],
        "channels": channels,
    }


@serves("container", "projects.locations.clusters.create")
def create(world: World, call: Call) -> Json:
    expected = dict(call.body.get("cluster") or {})
    name = expected.get("name", "")
    if not NAME.fullmatch(name):
        raise invalid(f'Cluster name "{name}" must be up to 40 lower-case letters, digits and dashes.')
    location = call.path.split("/")[3]
    _known_location(location)
    path = f"{call.path}/{name}"
    world.observe(path)
    if path in world.clusters:
        raise Refusal("ALREADY_EXISTS", f"Already exists: {path}.", 409)
    network, subnetwork = _network(world, call, expected)
    channel = expected.get("releaseChannel", {}).get("channel", "REGULAR")
    version = versions.chosen(world, expected.get("initialClusterVersion", ""), channel)
    check_labels(expected.get("resourceLabels", {}))
    pool = expected.get("workloadIdentityConfig", {}).get("workloadPool")
    if pool not in (None, f"{call.project}.svc.id.goog"):
        raise invalid(f'Workload pool "{pool}" is not that of the project.')
    _check_networking(expected.get("networkConfig", {}))
    _check_encryption(location, expected.get("databaseEncryption", {}))
    _check_authorized(expected.get("masterAuthorizedNetworksConfig", {}))
    pools = _pools(expected)
    cluster = Cluster(world, path, _filled(world, path, expected, version, network, subnetwork), network, subnetwork)
    made = [node_pools.made(cluster, each) for each in pools]
    names = [each.name for each in made]
    if len(set(names)) != len(names):
        raise invalid(f"Node pools have the same name: {', '.join(names)}.")
    node_pools.refuse_above_quota(cluster, made)
    cluster.pools = {each.name: each for each in made}
    node_pools.taint(cluster)
    world.clusters[path] = cluster
    out = next((each for each in made if each.nodes and each.stocked_out()), None)
    return start_container(
        world,
        "CREATE_CLUSTER",
        "create cluster",
        path,
        lambda: _created(cluster),
        lambda failure: _not_created(cluster, failure),
        failure=node_pools.stock_out(out) if out else None,
    )


@serves("container", "projects.locations.clusters.get")
def get(world: World, call: Call) -> Json:
    world.observe(call.path)
    return find(world, call.path).shown()


@serves("container", "projects.locations.clusters.list")
def list_(world: World, call: Call) -> Json:
    world.observe(call.path.removesuffix("/clusters").replace("/locations/-", ""))
    pattern = re.compile(re.escape(call.path).replace(r"locations/\-", "locations/[^/]+"))
    found = [each.shown() for path, each in world.clusters.items() if pattern.fullmatch(path.rpartition("/")[0])]
    return written({"clusters": found}) or {}


@serves("container", "projects.locations.clusters.update")
def update(world: World, call: Call) -> Json:
    """One `desired*` in a call."""
    cluster = find(world, call.path)
    expected = dict(call.body.get("update") or {})
    etag = expected.pop("etag", "")
    desired = [key for key in expected if key != "desiredNodePoolId"]
    if len(desired) != 1:
        raise invalid(f"Exactly one update can be applied in a call, not {len(desired)}: {', '.join(desired)}.")
    serve = _UPDATES.get(desired[0])
    if serve is None:
        raise Refusal("NotInTheDouble", f"the double does not update {desired[0]}", 501)
    refuse_busy(cluster)
    if etag and etag != cluster.body["etag"]:
        raise Refusal("ABORTED", "The etag of the cluster is another one.", 409)
    return serve(cluster, expected[desired[0]], expected)


@serves("container", "projects.locations.clusters.updateMaster")
def update_master(world: World, call: Call) -> Json:
    cluster = find(world, call.path)
    refuse_busy(cluster)
    return _master(cluster, call.body.get("masterVersion", ""), {})


@serves("container", "projects.locations.clusters.setAddons")
def set_addons(world: World, call: Call) -> Json:
    cluster = find(world, call.path)
    refuse_busy(cluster)
    return _addons(cluster, call.body.get("addonsConfig", {}), {})


@serves("container", "projects.locations.clusters.setResourceLabels")
def set_labels(world: World, call: Call) -> Json:
    cluster = find(world, call.path)
    refuse_busy(cluster)
    labels = call.body.get("resourceLabels", {})
    check_labels(labels)
    if call.body.get("labelFingerprint", "") != cluster.body["labelFingerprint"]:
        raise Refusal("FAILED_PRECONDITION", "Labels could not be set due to fingerprint mismatch.", 412)

    def change() -> None:
        cluster.body["resourceLabels"] = dict(labels)
        cluster.body["labelFingerprint"] = world.token(8, "0123456789abcdef")

    return changing(cluster, "UPDATE_CLUSTER", "update cluster", cluster.path, change)


@serves("container", "projects.locations.clusters.delete")
def delete(world: World, call: Call) -> Json:
    cluster = find(world, call.path)
    refuse_busy(cluster)
    cluster.body["status"] = "STOPPING"

    def done() -> None:
        world.clusters.pop(call.path, None)
        if not world.settings.leaves_firewalls:
            for path in _firewalls(cluster):
                world.compute.pop(path, None)

    def failed(failure: Json) -> None:
        cluster.body.update(status="ERROR", statusMessage=failure["message"], conditions=[condition(failure)])

    return start_container(world, "DELETE_CLUSTER", "delete cluster", call.path, done, failed)


@serves("container", "projects.locations.operations.get")
def get_operation(world: World, call: Call) -> Json:
    return observed(world, f"container/{call.path}")


@serves("container", "projects.locations.operations.list")
def list_operations(world: World, call: Call) -> Json:
    pattern = re.compile(re.escape(f"container/{call.path}/").replace(r"locations/\-", "locations/[^/]+") + "[^/]+")
    found = [each for path, each in world.operations.items() if pattern.fullmatch(path)]
    for each in found:
        each.observe()
    return {"operations": [each.body for each in found]} if found else {}


def busy(world: World, name: str, operation_type: str, polls: int | None) -> Json:
    """Lets Google itself do something with a cluster."""
    cluster = next(each for each in world.clusters.values() if each.name == name)
    cluster.body["status"] = "RECONCILING"

    def done() -> None:
        cluster.body["status"] = "RUNNING"

    return start_container(world, operation_type, "google", cluster.path, done, polls=polls)


# Updates: of the cluster, what is desired, and the whole update.


def _master(cluster: Cluster, expected: str, _: Json) -> Json:
    channel = cluster.body["releaseChannel"].get("channel", "")
    have = cluster.body["currentMasterVersion"]
    version = versions.chosen(cluster.world, expected, channel)
    if versions.key(version) < versions.key(have):
        raise invalid(f'Master cannot be downgraded to "{version}": it is at "{have}".')
    if versions.key(version)[1] > versions.key(have)[1] + 1:
        raise invalid(
            f'Master cannot be upgraded to "{version}": cannot upgrade the master more than a minor at a time.'
        )

    def change() -> None:
        cluster.body["currentMasterVersion"] = version

    return changing(cluster, "UPGRADE_MASTER", "upgrade master", cluster.path, change)


def _nodes(cluster: Cluster, expected: str, update_: Json) -> Json:
    name = update_.get("desiredNodePoolId", "")
    if name not in cluster.pools:
        raise Refusal("NOT_FOUND", f"Not found: {cluster.path}/nodePools/{name}.", 404)
    return node_pools.upgraded(cluster.pools[name], expected)


def _addons(cluster: Cluster, expected: Json, _: Json) -> Json:
    def change() -> None:
        for name, config in expected.items():
            cluster.body["addonsConfig"][name] = dict(config)

    return changing(cluster, "UPDATE_CLUSTER", "update cluster", cluster.path, change)


def _replaced(field: str) -> Callable[[Cluster, Any, Json], Json]:
    def serve(cluster: Cluster, expected: Any, _: Json) -> Json:
        return changing(
            cluster, "UPDATE_CLUSTER", "update cluster", cluster.path, lambda: cluster.body.update({field: expected})
        )

    return serve


def _networking(cluster: Cluster, more: Json) -> Json:
    return changing(
        cluster,
        "UPDATE_CLUSTER",
        "update cluster",
        cluster.path,
        lambda: cluster.body["networkConfig"].update(more),
    )


def _private_nodes(cluster: Cluster, expected: bool, _: Json) -> Json:
    return _networking(cluster, {"defaultEnablePrivateNodes": expected})


def _multi_networking(cluster: Cluster, expected: bool, _: Json) -> Json:
    body = {**cluster.body["networkConfig"], "enableMultiNetworking": expected}
    _check_networking(body)
    return _networking(cluster, {"enableMultiNetworking": expected})


def _encryption(cluster: Cluster, expected: Json, _: Json) -> Json:
    _check_encryption(cluster.location, expected)
    return _replaced("databaseEncryption")(
        cluster, {**expected, "currentState": f"CURRENT_STATE_{expected['state']}"}, {}
    )


def _authorized(cluster: Cluster, expected: Json, _: Json) -> Json:
    _check_authorized(expected)
    return _replaced("masterAuthorizedNetworksConfig")(cluster, expected, {})


def _check_networking(expected: Json) -> None:
    """Refuse more networks without the datapath that has them ("Set up multi-network support for Pods": it needs GKE
    Dataplane V2)."""
    if expected.get("enableMultiNetworking") and expected.get("datapathProvider") != "ADVANCED_DATAPATH":
        raise invalid("Multi-networking needs GKE Dataplane V2 (datapath_provider ADVANCED_DATAPATH).")


def _check_encryption(location: str, expected: Json) -> None:
    """Refuse a key that the cluster cannot use ("Encrypt secrets at the application layer": the key is in the
    location of the cluster)."""
    if expected.get("state") != "ENCRYPTED":
        return
    parts = expected.get("keyName", "").split("/")
    if len(parts) != 8 or parts[3] != location:
        raise invalid(f'Key "{expected.get("keyName", "")}" of database_encryption must be in {location}.')


def _check_authorized(expected: Json) -> None:
    """Refuse what is no range of addresses ("Customize your network isolation": CIDR blocks, 50 at most)."""
    blocks = expected.get("cidrBlocks", [])
    if blocks and not expected.get("enabled"):
        raise invalid("cidr_blocks need master authorized networks to be enabled.")
    if len(blocks) > 50:
        raise invalid("There can be 50 cidr_blocks at most.")
    for each in blocks:
        try:
            ipaddress.ip_network(each.get("cidrBlock", ""))
        except ValueError as error:
            raise invalid(f"Invalid cidr_block: {error}.") from error


def _identity(cluster: Cluster, expected: Json, _: Json) -> Json:
    if expected.get("workloadPool", "") not in ("", f"{cluster.project}.svc.id.goog"):
        raise invalid(f'Workload pool "{expected["workloadPool"]}" is not that of the project.')
    return _replaced("workloadIdentityConfig")(cluster, expected, {})


def _locations(cluster: Cluster, expected: list[str], _: Json) -> Json:
    for zone in expected:
        if zone not in catalogue.REGIONS[catalogue.region_of(cluster.location)]:
            raise invalid(f'Zone "{zone}" is not in {cluster.location}.')
    return _replaced("locations")(cluster, expected, {})


_UPDATES: dict[str, Callable[[Cluster, Any, Json], Json]] = {
    "desiredAddonsConfig": _addons,
    "desiredDatabaseEncryption": _encryption,
    "desiredDefaultEnablePrivateNodes": _private_nodes,
    "desiredEnableMultiNetworking": _multi_networking,
    "desiredLocations": _locations,
    "desiredLoggingConfig": _replaced("loggingConfig"),
    "desiredMasterAuthorizedNetworksConfig": _authorized,
    "desiredMasterVersion": _master,
    "desiredMonitoringConfig": _replaced("monitoringConfig"),
    "desiredNodeVersion": _nodes,
    "desiredReleaseChannel": _replaced("releaseChannel"),
    "desiredShieldedNodes": _replaced("shieldedNodes"),
    "desiredWorkloadIdentityConfig": _identity,
}


# Making one.


def _known_location(location: str) -> None:
    if not catalogue.region_of(location):
        raise invalid(f'Location "{location}" does not exist.')


def _network(world: World, call: Call, expected: Json) -> tuple[str, str]:
    """The paths of the network and the subnetwork."""
    network = compute.network_path(call.project, expected.get("network") or "default")
    region = catalogue.region_of(call.path.split("/")[3])
    given = expected.get("subnetwork") or "default"
    subnetwork = relative(given) if "/" in given else f"projects/{call.project}/regions/{region}/subnetworks/{given}"
    if network not in world.compute:
        raise invalid(f'Network "{network}" does not exist.')
    found = world.compute.get(subnetwork)
    if found is None or relative(found["network"]) != network:
        raise invalid(f'Subnetwork "{subnetwork}" is not in network "{network}".')
    if f"/regions/{region}/" not in subnetwork:
        raise invalid(f'Subnetwork "{subnetwork}" is not in region {region}.')
    policy = expected.get("ipAllocationPolicy", {})
    ranges = {entry["rangeName"] for entry in found.get("secondaryIpRanges", ())}
    for key, what in (("clusterSecondaryRangeName", "Pod"), ("servicesSecondaryRangeName", "Services")):
        if policy.get(key) and not policy.get("useIpAliases"):
            raise invalid(f"{key} can only be set when use_ip_aliases is true.")
        if policy.get(key) and policy[key] not in ranges:
            raise invalid(f'{what} secondary range "{policy[key]}" does not exist in subnetwork "{subnetwork}".')
    return network, subnetwork


def _pools(expected: Json) -> list[Json]:
    """The pools that it begins with."""
    pools = [dict(each) for each in expected.pop("nodePools", [])]
    count, config = expected.pop("initialNodeCount", None), expected.pop("nodeConfig", None)
    if pools and (count is not None or config is not None):
        raise invalid("Cluster.node_pools and Cluster.initial_node_count or node_config cannot both be set.")
    if not pools and not count:
        raise invalid("Cluster.initial_node_count must be greater than zero.")
    return pools or [{"name": "default-pool", "initialNodeCount": count, "config": config or {}}]


_GIVEN: Json = {
    "loggingService": "logging.googleapis.com/kubernetes",
    "monitoringService": "monitoring.googleapis.com/kubernetes",
    "loggingConfig": {"componentConfig": {"enableComponents": ["SYSTEM_COMPONENTS", "WORKLOADS"]}},
    "monitoringConfig": {
        "componentConfig": {"enableComponents": ["SYSTEM_COMPONENTS"]},
        "managedPrometheusConfig": {"enabled": True, "autoMonitoringConfig": {"scope": "NONE"}},
    },
    "legacyAbac": {},
    "autopilot": {},
    "autoscaling": {"autoscalingProfile": "BALANCED"},
    "shieldedNodes": {"enabled": True},
    "databaseEncryption": {"state": "DECRYPTED", "currentState": "CURRENT_STATE_DECRYPTED"},
    "defaultMaxPodsConstraint": {"maxPodsPerNode": "110"},
    "masterAuthorizedNetworksConfig": {},
    "notificationConfig": {"pubsub": {}},
    "nodePoolDefaults": {"nodeConfigDefaults": {"loggingConfig": {"variantConfig": {"variant": "DEFAULT"}}}},
    "nodePoolAutoConfig": {},
    "securityPostureConfig": {"mode": "BASIC", "vulnerabilityMode": "VULNERABILITY_DISABLED"},
    "releaseChannel": {"channel": "REGULAR"},
}
"""Settings of a cluster that the request for it did not set."""


def _filled(world: World, path: str, expected: Json, version: str, network: str, subnetwork: str) -> Json:
    """The cluster with all that Google adds."""
    location = path.split("/")[3]
    zones = list(catalogue.REGIONS[location][:3]) if location in catalogue.REGIONS else [location]
    policy = expected.get("ipAllocationPolicy", {})
    ranges = {each["rangeName"]: each["ipCidrRange"] for each in world.compute[subnetwork].get("secondaryIpRanges", ())}
    pods = ranges.get(policy.get("clusterSecondaryRangeName", ""), "10.4.0.0/14")
    services = ranges.get(policy.get("servicesSecondaryRangeName", ""), "34.118.224.0/20")
    number = zlib.crc32(path.encode())
    return {
        "locations": zones,
        **deepcopy(_GIVEN),
        "maintenancePolicy": {"resourceVersion": f"{number:08x}"},
        **expected,
        "id": world.token(64, "0123456789abcdef"),
        "etag": world.token(8),
        "labelFingerprint": world.token(8, "0123456789abcdef"),
        "location": location,
        "zone": location,
        "createTime": timestamp(),
        "status": "PROVISIONING",
        "selfLink": container_link(world, path),
        "endpoint": f"34.{number % 200 + 1}.{number // 256 % 250}.{number // 65536 % 250 + 1}",
        "currentMasterVersion": version,
        "initialClusterVersion": version,
        "network": network.rpartition("/")[2],
        "subnetwork": subnetwork.rpartition("/")[2],
        "clusterIpv4Cidr": pods,
        "servicesIpv4Cidr": services,
        "nodeIpv4CidrSize": 24,
        "networkConfig": {
            **expected.get("networkConfig", {}),
            "network": network,
            "subnetwork": subnetwork,
            "defaultSnatStatus": {},
            "serviceExternalIpsConfig": {},
        },
        "ipAllocationPolicy": {
            **policy,
            "clusterIpv4Cidr": pods,
            "clusterIpv4CidrBlock": pods,
            "servicesIpv4Cidr": services,
            "servicesIpv4CidrBlock": services,
            "stackType": "IPV4",
            "podCidrOverprovisionConfig": {},
            "defaultPodIpv4RangeUtilization": 0.0039,
        },
        "addonsConfig": {
            "kubernetesDashboard": {"disabled": True},
            "networkPolicyConfig": {"disabled": True},
            "dnsCacheConfig": {"enabled": True},
            "gcePersistentDiskCsiDriverConfig": {"enabled": True},
            **expected.get("addonsConfig", {}),
        },
    }


def _created(cluster: Cluster) -> None:
    """Finish a new cluster: it runs, and so do its pools. GKE makes firewall rules in the network."""
    cluster.body["status"] = "RUNNING"
    for pool in cluster.pools.values():
        pool.body["status"] = "RUNNING"
    for path, allowed in _firewalls(cluster).items():
        compute.plant(
            cluster.world,
            path.rpartition("/")[0],
            {
                "name": path.rpartition("/")[2],
                "network": f"https://www.googleapis.com/compute/v1/{cluster.network}",
                "direction": "INGRESS",
                "priority": 1000,
                "disabled": False,
                "sourceRanges": [allowed[0]],
                "targetTags": [f"gke-{cluster.name[:30]}-{cluster.uid}-node"],
                "allowed": [{"IPProtocol": protocol} for protocol in allowed[1:]],
            },
        )


def _firewalls(cluster: Cluster) -> dict[str, tuple[str, ...]]:
    """The paths of GKE's own firewall rules, with whom they let in by which protocols."""
    # Names are cut: only the network says for sure whose a rule is.
    start = f"projects/{cluster.project}/global/firewalls/gke-{cluster.name[:30]}-{cluster.uid}"
    return {
        f"{start}-all": (cluster.body["clusterIpv4Cidr"], "tcp", "udp", "icmp", "esp", "ah", "sctp"),
        f"{start}-exkubelet": ("0.0.0.0/0", "tcp"),
        f"{start}-inkubelet": (cluster.body["clusterIpv4Cidr"], "tcp"),
        f"{start}-vms": ("10.0.0.0/8", "tcp", "udp", "icmp"),
    }


def _not_created(cluster: Cluster, failure: Json) -> None:
    cluster.body.update(status="ERROR", statusMessage=failure["message"], conditions=[condition(failure)])
    for pool in cluster.pools.values():
        pool.body.update(status="ERROR", statusMessage=failure["message"], conditions=[condition(failure)])
        pool.nodes = 0

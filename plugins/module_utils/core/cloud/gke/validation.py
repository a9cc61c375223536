# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Validation of GKEClusters beyond their schema: values that Google rejects, or that never become ready.

The schema has the limits of single fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from ipaddress import IPv4Network, ip_network
from typing import Any

from ...problem import Problem, Ref
from ...text import short_value
from ...wire import Object
from .. import pools
from ..validation import Validation, of_key, of_pool_zones, of_pools, of_range, of_version, where_written
from . import machines, names, reading, regions

_VERSION = re.compile(r"1\.[0-9]{1,3}(\.[0-9]{1,3}(-gke\.[0-9]+)?)?")
_PROJECT = re.compile(r"([a-z0-9][-a-z0-9.]*\.[a-z]+:)?[a-z][-a-z0-9]{4,28}[a-z0-9]")
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
_MOST_LABELS = 40
"""Limit for labels of the user: Google allows 64 on a resource, and GKE sets some of them."""
_RANGES = {"nodeCidr": (8, 29), "podCidr": (9, 24), "serviceCidr": (16, 27)}
"""Prefixes of the largest and the smallest range of each (VPC: "IPv4 subnet ranges"; GKE: "IP address ranges for
VPC-native clusters"). A node uses a /24 of the pod range, so a /24 is the smallest range for one node."""
_POD_PREFIX = 24
_CLASS_E = "240.0.0.0/4"
"""Reserved in other networks, but supported for subnetworks of Google Cloud."""
_KEPT = 4
"""Addresses of a subnetwork that Google reserves."""


def of_project(cluster: reading.GkeCluster, project: str) -> list[Problem]:
    """Return the problems of the project of a plan."""
    if not project:
        problem = "is not given, and the credentials name none"
        hint = "Write the ID of the project there, or set gke_cluster_project"
        return [where_written(Problem(problem, "spec.project", hint=hint), cluster)]
    if not _PROJECT.fullmatch(project):
        problem = "is no ID of a project: 6 to 30 lower-case letters, digits and hyphens, beginning with a letter"
        hint = "Write the ID, not the name or the number" if project != project.lower() or project.isdigit() else ""
        return [where_written(Problem(problem, "spec.project", short_value(project), hint), cluster)]
    return []


def of_options(labels: Mapping[str, Any]) -> list[Problem]:
    """Return the problems of the options of a plan."""
    problems = []
    if len(labels) > _MOST_LABELS:
        problems.append(Problem(f"must be at most {_MOST_LABELS}, as Google allows 64 with those of others", "labels"))
    for key, value in labels.items():
        label_path = f"labels.{str(key)[:60]}"
        if str(key).startswith(("goog", "modelplane-ai-")):
            problems.append(Problem("is set by Google or this collection", label_path, hint="Use another key"))
        elif not _LABEL_KEY.fullmatch(str(key)) or not _LABEL_VALUE.fullmatch(str(value)):
            problems.append(
                Problem(
                    "must be at most 63 lower-case letters, digits, '-' and '_', and so must its value; it has to "
                    "begin with a letter",
                    label_path,
                    short_value(value),
                    "gke_cluster_labels has these labels",
                )
            )
    return problems


def _of_names(cluster: reading.GkeCluster, other_clusters: Sequence[reading.GkeCluster]) -> Iterator[Problem]:
    if not cluster.namespace[:1].isalpha():
        yield Problem(
            "must begin with a letter, as the names of GKE clusters do, of which it is the beginning",
            "metadata.namespace",
            short_value(cluster.namespace),
            "Choose another namespace",
        )
    if "." in cluster.name:
        yield Problem(
            "must have no dots, which the names of GKE clusters cannot have",
            "metadata.name",
            short_value(cluster.name),
            "Choose another name",
        )
    for other_cluster in other_clusters:
        yield from _beside(cluster, other_cluster)


def _claims(cluster: reading.GkeCluster) -> Iterator[str]:
    yield names.cluster_name(cluster.namespace, cluster.name)


def _beside(cluster: reading.GkeCluster, that: reading.GkeCluster) -> Iterator[Problem]:
    """Return the conflicting names of two clusters. Network names are shared by all regions of a project."""
    if (that.namespace, that.name) == (cluster.namespace, cluster.name):
        return
    if cluster.project and that.project and cluster.project != that.project:
        return
    if names.cluster_name(that.namespace, that.name) == names.cluster_name(cluster.namespace, cluster.name):
        ref = Ref(reading.KIND, that.namespace, that.name)
        yield Problem(
            f"{ref} would have the same name in Google Cloud",
            "metadata.name",
            short_value(cluster.name),
            "Rename one of the two",
        )


def _of_place(cluster: reading.GkeCluster) -> Iterator[Problem]:
    if not regions.REGION.fullmatch(cluster.region):
        region, __, _letter = cluster.region.rpartition("-")
        hint = f"Write {region}" if regions.REGION.fullmatch(region) else "Write a region such as us-central1"
        yield Problem("is no name of a region of Google Cloud", "spec.region", short_value(cluster.region), hint)
    yield from of_version(cluster, _VERSION, "a version of Kubernetes", "1.35")
    if cluster.project:
        yield from of_project(cluster, cluster.project)


def _of_addresses(cluster: reading.GkeCluster) -> Iterator[Problem]:
    ranges: dict[str, IPv4Network] = {}
    for field, cidr in (
        ("nodeCidr", cluster.node_cidr),
        ("podCidr", cluster.pod_cidr),
        ("serviceCidr", cluster.service_cidr),
    ):
        path = f"spec.networking.{field}"
        address_range, range_problems = of_range(cidr, path, *_RANGES[field], "Google Cloud", usable=(_CLASS_E,))
        yield from range_problems
        if address_range is None:
            continue
        for other_path, other_range in ranges.items():
            if address_range.overlaps(other_range):
                hint = "Choose ranges that have no addresses in common"
                yield Problem(f"has addresses of {other_path} ({other_range})", path, cidr, hint)
        ranges[path] = address_range
    if not cluster.composed:
        yield from _of_room(cluster, ranges)


def _of_room(cluster: reading.GkeCluster, ranges: Mapping[str, IPv4Network]) -> Iterator[Problem]:
    """Yield ranges that are too small for the initial nodes. A pool without zones is in at least one zone."""
    nodes = sum(max(pool["nodeCount"], pool["minNodeCount"]) * len(pool.get("zones") or "1") for pool in cluster.pools)
    rooms: dict[str, Callable[[IPv4Network], int]] = {
        "spec.networking.nodeCidr": lambda each: int(each.num_addresses) - _KEPT,
        "spec.networking.podCidr": lambda each: int(2 ** (_POD_PREFIX - each.prefixlen)),
    }
    for path, room in rooms.items():
        if path in ranges and (free := room(ranges[path])) < nodes:
            yield Problem(
                f"has room for {free} node{'' if free == 1 else 's'}, and the pools, with that of the system, have "
                f"{nodes} at the start",
                path,
                str(ranges[path]),
                "Choose a larger range, or fewer nodes",
            )


def _of_settings(cluster: reading.GkeCluster) -> Iterator[Problem]:
    for index, network in enumerate(cluster.settings.master_authorized_networks or ()):
        try:
            ip_network(network.cidr_block)
        except ValueError:
            path = f"spec.masterAuthorizedNetworks[{index}].cidrBlock"
            hint = "Write the first address of a range and its length, such as 203.0.113.0/24"
            yield Problem("is no range of addresses", path, short_value(network.cidr_block), hint)
    encryption = cluster.settings.database_encryption
    if encryption:
        key, hint = encryption.key_name, f"Choose a key whose name has locations/{cluster.region}"
        yield from of_key(cluster, key, key.split("/")[3], "spec.databaseEncryption.keyName", hint)


def _of_pools(cluster: reading.GkeCluster) -> Iterator[Problem]:
    yield from of_pools(cluster, lambda pool, path: _of_pool(cluster, pool, path))


def _of_pool(cluster: reading.GkeCluster, pool: Object, path: str) -> Iterator[Problem]:
    if not _NAME.fullmatch(pool["name"]):
        yield Problem(
            "must begin with a letter, as the names of node pools of GKE do",
            f"{path}.name",
            short_value(pool["name"]),
            "Choose another name",
        )
    machine = pool["machineType"]
    if not _NAME.fullmatch(machine):
        hint = "Write one such as g2-standard-8"
        yield Problem("is no name of a machine type", f"{path}.machineType", short_value(machine), hint)
    if pool.get("flexStart") and pool["minNodeCount"]:
        yield Problem(
            "must be 0 with flexStart, whose nodes start when Google has free machines",
            f"{path}.minNodeCount",
            short_value(pool["minNodeCount"]),
            "Set minNodeCount to 0, and maxNodeCount to as many as it may have",
        )
    yield from _of_accelerators(pool, path, machine)
    yield from of_pool_zones(cluster, pool, path, regions.REGION, regions.ZONE_FORM)


def _of_accelerators(pool: Object, path: str, machine: str) -> Iterator[Problem]:
    """Yield a problem if a machine type with built-in GPUs has other GPUs in the manifest."""
    fixed = machines.ACCELERATORS.get(machine)
    if fixed is None:
        return
    accelerator, count = fixed
    if pool["role"] != pools.GPU:
        hint = "Take one without, such as e2-standard-4, or make role GPU"
        yield Problem(
            f"comes with GPUs ({accelerator}), and role {pool['role']} has none", f"{path}.machineType", machine, hint
        )
        return
    pool_gpu = pool["gpu"]
    if pool_gpu["acceleratorType"] != accelerator:
        yield Problem(
            f"{machine} comes with {accelerator}",
            f"{path}.gpu.acceleratorType",
            short_value(pool_gpu["acceleratorType"]),
            f"Write {accelerator}, or take another machine type",
        )
    elif pool_gpu["acceleratorCount"] != count:
        yield Problem(
            f"{machine} comes with {count}",
            f"{path}.gpu.acceleratorCount",
            short_value(pool_gpu["acceleratorCount"]),
            f"Write {count}, or take another machine type",
        )


def _rules(cluster: reading.GkeCluster, other_clusters: Sequence[reading.GkeCluster]) -> Iterator[Problem]:
    yield from _of_names(cluster, other_clusters)
    yield from _of_place(cluster)
    yield from _of_addresses(cluster)
    yield from _of_settings(cluster)
    yield from _of_pools(cluster)


VALIDATION = Validation(reading.read, _claims, _rules)

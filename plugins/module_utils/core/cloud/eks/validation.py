# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Validation of EKSClusters beyond their schema: values that AWS rejects, or that never become ready.

The schema has the limits of single fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Network
from typing import Any

from ...problem import Problem, Ref
from ...text import short_value
from ...wire import Object
from .. import addresses
from ..names import kubeconfig_secret
from ..validation import Validation, of_key, of_pool_zones, of_pools, of_range, of_version, where_written
from . import launch_templates, names, reading, regions

LARGEST, SMALLEST = 16, 28
"""Prefixes of the largest and the smallest VPC, and subnet (Amazon VPC: "VPC CIDR blocks", "Subnet sizing")."""
_CIDRS = "spec.networking.subnetCidrs"
_ZONES = "spec.networking.zones"
_MOST_TAGS = 40
"""Limit of the collection: AWS allows 50 tags on an object, and EKS and controllers set some of them."""
_LONGEST_NAME = 251
"""AWS allows 255 characters in the name of a security group, and this name has a suffix of four characters."""
_VERSION = re.compile(r"1\.[0-9]{1,3}")
_TAG = re.compile(r"[\w\s.:/=+@-]*")
"""Keys and values of tags that every service accepts. Only EC2 accepts any characters, and IAM would reject others in
the middle of a run."""


def ranges_and_zones(
    cluster: reading.EksCluster, available: Sequence[str], held: Mapping[str, str] | None = None
) -> tuple[list[str], list[str]]:
    """Return the public ranges and their zones.

    The number of default ranges is the number of zones, and at least two. If the region has too few zones, there are
    fewer zones than ranges. `held`: the zones of existing subnets, by range.
    """
    cidrs = list(cluster.subnet_cidrs)
    if cluster.zones:
        return cidrs, list(cluster.zones)
    held_zones = [_held(cidr, held or {}) for cidr in cidrs]
    zones = regions.choose_zones(cluster.region, held_zones, available, cluster.pool_zones())
    if not cluster.own_cidrs and len(zones) < len(cidrs):
        cidrs = cidrs[: max(len(zones), 2)]
    return cidrs, zones


def _held(cidr: str, held: Mapping[str, str]) -> str:
    """Return the zone of the existing public subnet of a range, or of its private subnet; empty without both."""
    return held.get(cidr) or held.get(str(addresses.private_twin(addresses.network(cidr))), "")


def of_zones(
    cluster: reading.EksCluster, cidrs: Sequence[str], zones: Sequence[str], available: Sequence[str] = ()
) -> list[Problem]:
    """Return the problems of the zones of subnets and node pools.

    `available`: the zones that support a control plane, empty if they are unknown.
    """
    if len(zones) < len(cidrs):
        count = "1 zone" if len(zones) == 1 else f"{len(zones)} zones"
        message = (
            f"AWS offers {count} in {cluster.region} ({', '.join(zones) or 'none'}), and there are {len(cidrs)} ranges"
        )
        hint = "Give one range for each zone" if len(zones) > 1 else "Choose a region with two zones or more"
        return [where_written(Problem(message, _CIDRS if cluster.own_cidrs else "spec.region", hint=hint), cluster)]
    problems = [
        *(_unusable(zone, f"{_ZONES}[{index}]", available) for index, zone in _missing(cluster.zones, available)),
        *(
            _without_subnet(cluster, zone, f"{cluster.path(pool)}.zones[{index}]", zones, available)
            for pool in cluster.pools
            for index, zone in enumerate(pool.get("zones") or ())
            if zone not in zones
        ),
    ]
    return [where_written(problem, cluster) for problem in problems]


def _missing(zones: Sequence[str], available: Sequence[str]) -> list[tuple[int, str]]:
    """Return the zones that are not available, each with its index. If the available zones are unknown, the list is
    empty."""
    return [(index, zone) for index, zone in enumerate(zones) if available and zone not in available]


def _without_subnet(
    cluster: reading.EksCluster, zone: str, path: str, zones: Sequence[str], available: Sequence[str]
) -> Problem:
    """Return the problem of a pool in a zone without a subnet of the cluster."""
    if available and zone not in available:
        return _unusable(zone, path, available)
    alternative = (
        _directly(cluster)
        if cluster.composed
        else f"or add a range to {_CIDRS}{' and its zone' if cluster.zones else ''}"
    )
    message = f"the cluster has no subnet in this zone, only in {', '.join(zones)}"
    return Problem(message, path, short_value(zone), f"Choose one of these, {alternative}")


def _unusable(zone: str, path: str, available: Sequence[str]) -> Problem:
    return Problem(
        "is not available to this account, or is a zone in which EKS takes no subnets "
        f"(the ids {', '.join(regions.WITHOUT_CONTROL_PLANE)})",
        path,
        short_value(zone),
        f"Choose one of {', '.join(sorted(available))}",
    )


def of_options(tags: Mapping[str, Any], addons: Mapping[str, Any]) -> list[Problem]:
    """Return the problems of the options of a plan."""
    problems = []
    if len(tags) > _MOST_TAGS:
        problems.append(Problem(f"must be at most {_MOST_TAGS}, as AWS allows 50 with those of others", "tags"))
    for key in tags:
        if key == "Name" or key.lower().startswith(("aws:", "modelplane.ai/", "kubernetes.io/", "k8s.io/")):
            problems.append(
                Problem("is set by AWS, Kubernetes or this collection", f"tags.{key}", hint="Use another key")
            )
        elif len(key) > 128 or len(str(tags[key])) > 256:
            problems.append(Problem("must be at most 128 characters, its value at most 256", f"tags.{key[:60]}"))
        elif not key or not _TAG.fullmatch(key) or not _TAG.fullmatch(str(tags[key])):
            message = "must be letters, digits, spaces and any of _ . : / = + - @, and so must its value"
            problems.append(
                Problem(message, f"tags.{key}", short_value(str(tags[key])), "Leave the other characters out")
            )
    for name, configuration in addons.items():
        addon = {} if configuration is None else configuration
        if not isinstance(addon, Mapping) or not isinstance(addon.get("configuration") or {}, Mapping):
            problems.append(
                Problem("must be a mapping of version and configuration, which is a mapping too", f"addons.{name}")
            )
        else:
            problems += [
                Problem("is not a known key", f"addons.{name}.{key}", hint="Known here: configuration, version.")
                for key in sorted(set(addon) - {"version", "configuration"})
            ]
    return problems


def _directly(cluster: reading.EksCluster) -> str:
    """Return the fix for a network setting that an InferenceCluster does not support."""
    return (
        "or write an EKSCluster of that name, which has networking.subnetCidrs, and make this source: Existing with "
        f"secretRef.name: {kubeconfig_secret(cluster.name)}"
    )


def _of_names(cluster: reading.EksCluster, other_clusters: Sequence[reading.EksCluster]) -> Iterator[Problem]:
    name = cluster.name
    if "." in name:
        yield Problem(
            "must have no dots, which the names of EKS clusters cannot have",
            "metadata.name",
            short_value(name),
            "Choose another name",
        )
    if name.startswith("sg-"):
        yield Problem(
            "must not begin with sg-, as names of security groups do then, which AWS refuses",
            "metadata.name",
            short_value(name),
            "Choose another name",
        )
    if len(name) > _LONGEST_NAME:
        yield Problem(
            f"must be at most {_LONGEST_NAME} characters, as security groups are named after it",
            "metadata.name",
            short_value(name),
            "Choose a shorter name",
        )
    for other_cluster in other_clusters:
        yield from _beside(cluster, other_cluster)


def _claims(cluster: reading.EksCluster) -> Iterator[tuple[str, str]]:
    yield "", names.cluster_name(cluster.namespace, cluster.name)
    for template in cluster.template_names():
        yield cluster.region, template


def _beside(cluster: reading.EksCluster, that: reading.EksCluster) -> Iterator[Problem]:
    """Return the conflicting names of two clusters. IAM names are shared by all regions."""
    if (that.namespace, that.name) == (cluster.namespace, cluster.name):
        return
    ref = Ref(reading.KIND, that.namespace, that.name)
    if names.cluster_name(that.namespace, that.name) == names.cluster_name(cluster.namespace, cluster.name):
        yield Problem(
            f"{ref} would have the same name in AWS",
            "metadata.name",
            short_value(cluster.name),
            "Rename one of the two",
        )
        return
    shared = cluster.template_names() & that.template_names() if that.region == cluster.region else set()
    if shared:
        yield Problem(
            f"{ref} in the same region would have the same launch template {min(shared)}",
            "metadata.name",
            short_value(cluster.name),
            "Rename one of the two, or the pool in one of them",
        )


def _of_place(cluster: reading.EksCluster) -> Iterator[Problem]:
    if not regions.REGION.fullmatch(cluster.region):
        zone = cluster.region[:-1]
        hint = f"Write {zone}" if regions.REGION.fullmatch(zone) else "Write a region such as us-west-2"
        yield Problem("is no name of an AWS region", "spec.region", short_value(cluster.region), hint)
    meaning = "a minor version of Kubernetes, as EKS chooses the patch"
    yield from of_version(cluster, _VERSION, meaning, "1.36")


def _of_addresses(cluster: reading.EksCluster) -> Iterator[Problem]:
    vpc_path = "spec.networking.vpcCidr"
    vpc, problems = of_range(cluster.vpc_cidr, vpc_path, LARGEST, SMALLEST, "AWS")
    yield from problems
    ranges: dict[str, IPv4Network] = {}
    for index, cidr in enumerate(cluster.subnet_cidrs):
        path = f"{_CIDRS}[{index}]"
        address_range, problems = of_range(cidr, path, LARGEST, SMALLEST, "AWS")
        yield from problems
        if address_range is None:
            continue
        ranges[path] = address_range
        twin = f"the private range of {path}"
        try:
            ranges[twin] = addresses.private_twin(address_range)
        except addresses.AddressError as error:
            yield Problem(str(error), path, cidr, _suggestion(cluster, vpc))
            continue
        if vpc is not None:
            yield from _outside(path, cidr, ranges[path], ranges[twin], cluster, vpc)
    yield from _collisions(ranges, cluster, vpc)


def _outside(
    path: str, cidr: str, public: IPv4Network, twin: IPv4Network, cluster: reading.EksCluster, vpc: IPv4Network
) -> Iterator[Problem]:
    if not addresses.within(public, vpc):
        yield Problem(f"is not within spec.networking.vpcCidr ({vpc})", path, cidr, _suggestion(cluster, vpc))
    elif not addresses.within(twin, vpc):
        yield Problem(
            f"its private range {twin} ({addresses.TWIN_OFFSET} higher in the third octet) is not within "
            f"spec.networking.vpcCidr ({vpc})",
            path,
            cidr,
            _suggestion(cluster, vpc),
        )


def _collisions(
    ranges: Mapping[str, IPv4Network], cluster: reading.EksCluster, vpc: IPv4Network | None
) -> Iterator[Problem]:
    """Yield ranges that overlap, reported at the later range of the manifest.

    Private twins of overlapping ranges overlap too, and are not reported a second time.
    """
    written_paths = [path for path in ranges if path.startswith(_CIDRS)]
    for index, path in enumerate(written_paths):
        for earlier_path in written_paths[:index]:
            if ranges[path].overlaps(ranges[earlier_path]):
                yield Problem(
                    f"has addresses of {earlier_path} ({ranges[earlier_path]})",
                    path,
                    str(ranges[path]),
                    _suggestion(cluster, vpc),
                )
    for owner_path in written_paths:
        twin = ranges.get(f"the private range of {owner_path}")
        for path in written_paths:
            if twin is not None and twin.overlaps(ranges[path]):
                yield Problem(
                    f"has addresses of the private range of {owner_path} ({twin}, {addresses.TWIN_OFFSET} higher in "
                    "the third octet)",
                    path,
                    str(ranges[path]),
                    _suggestion(cluster, vpc),
                )


def _suggestion(cluster: reading.EksCluster, vpc: IPv4Network | None) -> str:
    """Return valid ranges of the same size as the ranges of the cluster."""
    if vpc is None:
        return "Choose other ranges"
    for cidr in cluster.subnet_cidrs:
        try:
            prefix = addresses.network(cidr).prefixlen
        except addresses.AddressError:
            continue
        good = addresses.suggested(vpc, len(cluster.subnet_cidrs), prefix)
        if good:
            return f"Choose for example subnetCidrs: [{', '.join(good)}]"
    return "Choose smaller ranges, or a larger vpcCidr"


def _of_networking_zones(cluster: reading.EksCluster) -> Iterator[Problem]:
    if not cluster.zones:
        return
    yield from of_pool_zones(cluster, {"zones": cluster.zones}, "spec.networking", regions.REGION, "{}{}")
    if len(cluster.zones) != len(cluster.subnet_cidrs):
        message = f"must be as many as the ranges of {_CIDRS}, which are {len(cluster.subnet_cidrs)}"
        yield Problem(message, _ZONES, short_value(len(cluster.zones)), "Give one zone for each range")


def _of_key(cluster: reading.EksCluster) -> Iterator[Problem]:
    encryption = cluster.settings.encryption_config
    if encryption:
        key, hint = encryption.key_arn, "Choose a key of the region of the cluster"
        yield from of_key(cluster, key, key.split(":")[3], "spec.encryptionConfig.keyArn", hint)


def _of_pool(cluster: reading.EksCluster, pool: Object, path: str) -> Iterator[Problem]:
    zones = list(pool.get("zones") or ())
    yield from of_pool_zones(cluster, pool, path, regions.REGION, "{}{}")
    if launch_templates.reservation(pool) and len(zones) > 1:
        hint = "Set the zone that the block was bought for"
        yield Problem("must be one zone, as a Capacity Block is in one", f"{path}.zones", ", ".join(zones), hint)
    for index, zone in enumerate(zones):
        if cluster.zones and zone not in cluster.zones:
            yield _without_subnet(cluster, zone, f"{path}.zones[{index}]", cluster.zones, ())


def _of_pools(cluster: reading.EksCluster) -> Iterator[Problem]:
    yield from of_pools(cluster, lambda pool, path: _of_pool(cluster, pool, path))
    used = sorted(cluster.pool_zones())
    if len(used) > len(cluster.subnet_cidrs):
        hint = f"Use fewer, {_directly(cluster)}" if cluster.composed else f"Use fewer, or add ranges to {_CIDRS}"
        yield Problem(
            f"the pools name {len(used)} zones ({', '.join(used)}), and the cluster has subnets in "
            f"{len(cluster.subnet_cidrs)}",
            "spec.nodePools",
            hint=hint,
        )


def _rules(cluster: reading.EksCluster, other_clusters: Sequence[reading.EksCluster]) -> Iterator[Problem]:
    yield from _of_names(cluster, other_clusters)
    yield from _of_place(cluster)
    yield from _of_addresses(cluster)
    yield from _of_networking_zones(cluster)
    yield from _of_key(cluster)
    yield from _of_pools(cluster)


VALIDATION = Validation(reading.read, _claims, _rules)

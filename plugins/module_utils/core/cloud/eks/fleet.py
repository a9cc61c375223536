# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Resources of a fleet -> the plans of all its clusters on EKS."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network
from itertools import combinations
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks import network
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.plan import plan, problems
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.cluster import InvalidPool, cluster_objects
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Problem, Ref

Object = Mapping[str, Any]
KIND = "EKSCluster"


@dataclass(frozen=True)
class Fleet:
    """The plan of each cluster without errors by its name, and problems, each with the name of its cluster."""

    plans: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    problems: Sequence[tuple[str, Problem]] = ()


def plans(resources: Iterable[Object], zones: Mapping[str, Sequence[str]] | None = None) -> Fleet:
    """The clusters of `resources` (wire form): what InferenceClusters of source EKS become, and EKSClusters as they are
    written. `zones` are the zones of the subnets by cluster, where they are not the first ones of the region."""
    by_kind: dict[str, list[Object]] = {}
    for resource in resources:
        by_kind.setdefault(str(resource.get("kind")), []).append(resource)
    told: list[tuple[str, Problem]] = []
    clusters: dict[str, Object] = {}
    for cluster, origin in sorted(_clusters(by_kind, told), key=lambda entry: _place(entry[0])):
        name = cluster["metadata"]["name"]
        if name in clusters:
            told.append((name, _twice(clusters[name], cluster, origin)))
        else:
            clusters[name] = cluster
    given = zones or {}
    for name, cluster in clusters.items():
        told += [(name, problem) for problem in problems(cluster, given.get(name, ()))]
    told += _overlaps(clusters)
    faulty = {name for name, problem in told if problem.severity == "error"}
    return Fleet(
        {name: plan(cluster, given.get(name, ())) for name, cluster in clusters.items() if name not in faulty},
        tuple(told),
    )


def _clusters(by_kind: Mapping[str, Sequence[Object]], told: list[tuple[str, Problem]]) -> Iterator[tuple[Object, str]]:
    """Each EKSCluster, and the InferenceCluster that it is made of, empty for those that are written."""
    for written in by_kind.get(KIND, ()):
        yield {**written, "metadata": {"namespace": "default", **written["metadata"]}}, ""
    classes = {value["metadata"]["name"]: value for value in by_kind.get("InferenceClass", ())}
    for value in by_kind.get("InferenceCluster", ()):
        if value["spec"]["cluster"]["source"] != "EKS":
            continue
        name = value["metadata"]["name"]
        try:
            composed = cluster_objects(value, classes)
        except InvalidPool as error:
            told.append((name, Problem(str(error), ref=Ref("InferenceCluster", "", name))))
            continue
        yield from ((found, name) for found in composed if found["kind"] == KIND)


def _place(cluster: Object) -> tuple[str, str]:
    return cluster["metadata"]["namespace"], cluster["metadata"]["name"]


def _twice(first: Object, second: Object, origin: str) -> Problem:
    ref = Ref(KIND, *_place(first))
    other = Ref(KIND, *_place(second))
    by = f"InferenceCluster {origin} becomes {other}" if origin else f"{other} has this name too"
    return Problem(
        f"{by}: the clusters of a fleet have names of their own",
        "metadata.name",
        hint="Give one of them another name, or write the cluster down once",
        ref=ref,
    )


def _overlaps(clusters: Mapping[str, Object]) -> list[tuple[str, Problem]]:
    """Clusters whose VPCs could not be connected with each other."""
    ranges: dict[str, IPv4Network] = {}
    for name, cluster in sorted(clusters.items()):
        try:
            ranges[name] = IPv4Network(network.vpc_cidr(cluster["spec"]))
        except ValueError:
            continue
    met: dict[str, list[str]] = {}
    for (one, its), (other, others) in combinations(ranges.items(), 2):
        if its.overlaps(others):
            met.setdefault(one, []).append(other)
    problem = Problem(
        "",
        "spec.networking.vpcCidr",
        hint="They work as long as they stay apart; to peer them, write EKSClusters with ranges of their own",
        severity="warning",
    )
    return [
        (
            name,
            replace(
                problem,
                message=f"the VPC has addresses of those of {', '.join(others[:5])}{' and more' * (len(others) > 5)}",
                value=str(ranges[name]),
                ref=Ref(KIND, *_place(clusters[name])),
            ),
        )
        for name, others in met.items()
    ]

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A scheduler that reads what is composed as kube-scheduler does, and takes any node and any devices that it may.

It knows node selectors, affinity, spread and claims, and nothing else. Where kube-scheduler has a preference of its own
this one has none, so that it strands a pod far sooner: many orders in little time, without a control plane. As the
device allocator of Kubernetes 1.34 does, it tries all orders of too few free devices, and gives up a pod if that takes
too long.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.selector import compile_selector
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import Cluster, Pool
from ansible_collections.modelplane.fleet.tests.kube.client import Object
from ansible_collections.modelplane.fleet.tests.oracle.placement.written import ROOT

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_MOST_DEVICES = 32
_MOST_STEPS = 1_000_000
_GROUP = "leaderworkerset.sigs.k8s.io/group-index"


@dataclass(frozen=True)
class _Pod:
    name: str
    labels: Mapping[str, str]
    spec: Object
    claims: Sequence[Object]

    def terms(self, kind: str, strength: str = _REQUIRED) -> list[Object]:
        found: list[Object] = self.spec.get("affinity", {}).get(kind, {}).get(strength, [])
        return found


@dataclass
class _Node:
    pool: Pool
    labels: Mapping[str, str]
    free: list[int]
    pods: list[_Pod] = field(default_factory=list)


class Simulation:
    """The nodes of clusters and the pods on them."""

    def __init__(self, clusters: Sequence[Cluster]) -> None:
        pools = [pool for cluster in clusters for pool in cluster.pools]
        self._nodes = [_node(pool, number) for pool in pools for number in range(pool.nodes)]

    def bind(self, loads: Iterable[Sequence[Object]], chance: random.Random) -> list[str]:
        """Put the pods of replicas that are on no node yet on nodes of chance, in an order of chance.

        Return those that find none.
        """
        there = {pod.name for node in self._nodes for pod in node.pods}
        waiting = [pod for load in loads for pod in _pods(load) if pod.name not in there]
        chance.shuffle(waiting)
        while waiting:
            left = [pod for pod in waiting if not _place(pod, self._nodes, chance)]
            if len(left) == len(waiting):
                return sorted(pod.name for pod in left)
            waiting = left
        return []


def _node(pool: Pool, number: int) -> _Node:
    labels = {
        "kubernetes.io/hostname": f"{pool.name}-{number}",
        "kubernetes.io/os": "linux",
        names.POOL_LABEL: pool.name,
    }
    unavailable = pool.unavailable[number] if number < len(pool.unavailable) else [0] * len(pool.devices)
    return _Node(pool, labels, [device.count - less for device, less in zip(pool.devices, unavailable, strict=True)])


def _pods(load: Sequence[Object]) -> Iterator[_Pod]:
    """Return the pods with claims of the objects of a replica, as controllers create them."""
    claims = {each["metadata"]["name"]: each for each in load if each["kind"] == "ResourceClaimTemplate"}
    for each in load:
        if each["kind"] == "ResourceClaimTemplate":
            continue
        spec, name = each["spec"], each["metadata"]["name"]
        for copy in range(spec["replicas"]):
            if each["kind"] == "Deployment":
                templates = [spec["template"]]
            else:
                gang = spec["leaderWorkerTemplate"]
                templates = [gang["leaderTemplate"], *[gang["workerTemplate"]] * (gang["size"] - 1)]
            for number, template in enumerate(templates):
                if "resourceClaims" in template["spec"]:
                    names_of = [each["resourceClaimTemplateName"] for each in template["spec"]["resourceClaims"]]
                    devices = [claims[each]["spec"]["spec"]["devices"] for each in names_of]
                    labels = {**template["metadata"]["labels"], _GROUP: str(copy)}
                    yield _Pod(f"{name}-{copy}-{number}", labels, template["spec"], devices)


def _place(pod: _Pod, nodes: Sequence[_Node], chance: random.Random) -> bool:
    possible = [node for node in nodes if _is_selected(pod, node)]
    possible = [node for node in possible if _is_allowed(pod, node, nodes, possible)]
    allocated = [(node, list(_allocations(pod, node))) for node in possible]
    with_devices = [(node, found) for node, found in allocated if found]
    if not with_devices or any(not found and _times_out(pod, node) for node, found in allocated):
        return False
    liked = [entry for entry in with_devices if _is_preferred(pod, entry[0])]
    node, allocations = chance.choice(liked or with_devices)
    node.free = chance.choice(allocations)
    node.pods.append(pod)
    return True


def _is_selected(pod: _Pod, node: _Node) -> bool:
    selector = pod.spec.get("nodeSelector", {})
    affinity = pod.spec.get("affinity", {}).get("nodeAffinity", {}).get(_REQUIRED, {})
    expressions = [each for term in affinity.get("nodeSelectorTerms", []) for each in term["matchExpressions"]]
    return _matches({"matchLabels": selector, "matchExpressions": expressions}, node.labels)


def _is_allowed(pod: _Pod, node: _Node, nodes: Sequence[_Node], selected: Sequence[_Node]) -> bool:
    return (
        not any(
            _selects(pod, term, other) for term in pod.terms("podAntiAffinity") for other in _near(node, term, nodes)
        )
        and not any(
            _selects(other, term, pod)
            for there in nodes
            for other in there.pods
            for term in other.terms("podAntiAffinity")
            if there.labels[term["topologyKey"]] == node.labels[term["topologyKey"]]
        )
        and all(_has_company(pod, term, node, nodes) for term in pod.terms("podAffinity"))
        and all(_keeps_skew(pod, spread, node, selected) for spread in pod.spec.get("topologySpreadConstraints", []))
    )


def _near(node: _Node, term: Object, nodes: Sequence[_Node]) -> Iterator[_Pod]:
    key = term["topologyKey"]
    return (pod for other in nodes if other.labels[key] == node.labels[key] for pod in other.pods)


def _has_company(pod: _Pod, term: Object, node: _Node, nodes: Sequence[_Node]) -> bool:
    if any(_selects(pod, term, other) for other in _near(node, term, nodes)):
        return True
    # The first pod of those that attract each other.
    return _selects(pod, term, pod) and not any(_selects(pod, term, other) for there in nodes for other in there.pods)


def _keeps_skew(pod: _Pod, spread: Object, node: _Node, selected: Sequence[_Node]) -> bool:
    if spread["whenUnsatisfiable"] != "DoNotSchedule":
        return True
    key = spread["topologyKey"]
    counts = dict.fromkeys((other.labels[key] for other in selected), 0)
    for other in selected:
        counts[other.labels[key]] += sum(_selects(pod, spread, each) for each in other.pods)
    least = min(counts.values()) if len(counts) >= spread.get("minDomains", 1) else 0
    return counts[node.labels[key]] + 1 - least <= int(spread["maxSkew"])


def _is_preferred(pod: _Pod, node: _Node) -> bool:
    terms = [each["podAffinityTerm"] for each in pod.terms("podAffinity", _PREFERRED)]
    return any(_selects(pod, term, other) for term in terms for other in node.pods)


def _selects(pod: _Pod, term: Object, other: _Pod) -> bool:
    """Return whether a term of a pod is about another one."""
    alike = all(pod.labels.get(key) == other.labels.get(key) for key in term.get("matchLabelKeys", []))
    return alike and _matches(term["labelSelector"], other.labels)


def _matches(selector: Object, labels: Mapping[str, str]) -> bool:
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    return all(_satisfies(each, labels.get(each["key"])) for each in selector.get("matchExpressions", []))


def _satisfies(expression: Object, value: str | None) -> bool:
    values = expression.get("values", [])
    verdicts: dict[str, bool] = {
        "In": value in values,
        "NotIn": value not in values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }
    return verdicts[expression["operator"]]


def _allocations(pod: _Pod, node: _Node) -> Iterator[list[int]]:
    """Return what is free on a node after each way to serve the claims of a pod."""
    yield from _allocated(pod.claims, node, node.free)


def _times_out(pod: _Pod, node: _Node) -> bool:
    """Return whether the allocator takes too many steps to find that a node has too few free devices."""
    free, orders, steps = list(node.free), 1, 0
    for request in (request for claim in pod.claims for request in claim["requests"]):
        kinds, count = _accepted(node.pool, request), request["exactly"].get("count", 1)
        have = sum(free[kind] for kind in kinds)
        for taken in range(min(have, count)):
            orders *= have - taken
            steps += orders
        if have < count:
            break
        for kind in kinds:
            taken = min(count, free[kind])
            free[kind], count = free[kind] - taken, count - taken
    return steps > _MOST_STEPS


def _allocated(claims: Sequence[Object], node: _Node, free: list[int]) -> Iterator[list[int]]:
    if not claims:
        yield free
        return
    first, *rest = claims
    requests = first["requests"]
    if sum(each["exactly"].get("count", 1) for each in requests) > _MOST_DEVICES:
        return
    constraints: list[Any] = first.get("constraints", [])
    bound = [constraint.get("requests") or [each["name"] for each in requests] for constraint in constraints]
    roots = {str(device.attributes.get(ROOT, "only")) for device in node.pool.devices} if bound else {""}
    for root in sorted(roots):
        names_of = {name for together in bound for name in together}
        for after in _serve(node, requests, free, dict.fromkeys(names_of, root)):
            yield from _allocated(rest, node, after)


def _serve(node: _Node, requests: Sequence[Object], free: list[int], roots: Mapping[str, str]) -> Iterator[list[int]]:
    if not requests:
        yield free
        return
    first, *rest = requests
    kinds = [
        kind
        for kind in _accepted(node.pool, first)
        if roots.get(first["name"], str(node.pool.devices[kind].attributes.get(ROOT, "only")))
        == str(node.pool.devices[kind].attributes.get(ROOT, "only"))
    ]
    for after in _split(free, kinds, first["exactly"].get("count", 1)):
        yield from _serve(node, rest, after, roots)


def _split(free: list[int], kinds: Sequence[int], count: int) -> Iterator[list[int]]:
    """Return what is free after each way to take devices of these kinds."""
    if not kinds:
        if not count:
            yield free
        return
    kind, *rest = kinds
    for taken in range(min(count, free[kind]) + 1):
        after = list(free)
        after[kind] -= taken
        yield from _split(after, rest, count - taken)


def _accepted(pool: Pool, request: Object) -> list[int]:
    """Return the positions of the devices that a request accepts; none where a selector fails on a device.

    kube-scheduler fails only if it comes to that device before it has found enough, which depends on the order.
    """
    exactly = request["exactly"]
    selectors = [compile_selector(each["cel"]["expression"]) for each in exactly.get("selectors", [])]
    found = []
    for kind, device in enumerate(pool.devices):
        if device.claim != "DRA" or device.device_class_name != exactly["deviceClassName"]:
            continue
        verdicts = [selector.evaluate(device) for selector in selectors]
        failed = next((verdict for verdict in verdicts if not verdict.match), None)
        if failed is not None and failed.error:
            return []
        if failed is None:
            found.append(kind)
    return found

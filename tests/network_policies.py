# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The verdict of NetworkPolicies on a connection (Kubernetes API reference, networking.k8s.io/v1), for ingress.

A form that no policy of this collection has (IP blocks, ranges of ports) is an error here and never a verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Object = Mapping[str, Any]


@dataclass(frozen=True)
class Pod:
    """A pod as policies see it. `ports`: names of its ports, with their numbers."""

    name: str
    namespace: str
    labels: Mapping[str, str] = field(default_factory=dict)
    ports: Mapping[str, int] = field(default_factory=dict)


def may_reach(
    policies: Iterable[Object],
    namespaces: Mapping[str, Mapping[str, str]],
    source: Pod,
    target: Pod,
    port: int,
    protocol: str = "TCP",
) -> bool:
    """Return whether a pod may open a connection to a port of another one. `namespaces`: labels of each."""
    selecting = [
        policy["spec"]
        for policy in policies
        if policy["metadata"]["namespace"] == target.namespace
        and "Ingress" in _types(policy["spec"])
        and selects(policy["spec"]["podSelector"], target.labels)
    ]
    # A pod that no policy selects is open.
    return not selecting or any(
        _from(rule, namespaces, source, target) and _port(rule, target, port, protocol)
        for spec in selecting
        for rule in spec.get("ingress") or ()
    )


def selects(selector: Object, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector selects these labels. An empty one selects everything."""
    assert set(selector) <= {"matchLabels", "matchExpressions"}, selector
    equal = all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
    return equal and all(_meets(each, labels) for each in selector.get("matchExpressions") or ())


def _meets(expression: Object, labels: Mapping[str, str]) -> bool:
    key, operator, values = expression["key"], expression["operator"], expression.get("values") or ()
    return {
        "In": labels.get(key) in values,
        "NotIn": labels.get(key) not in values,
        "Exists": key in labels,
        "DoesNotExist": key not in labels,
    }[operator]


def _types(spec: Object) -> Sequence[str]:
    return spec.get("policyTypes") or (("Ingress", "Egress") if spec.get("egress") else ("Ingress",))


def _from(rule: Object, namespaces: Mapping[str, Mapping[str, str]], source: Pod, target: Pod) -> bool:
    assert set(rule) <= {"from", "ports"}, rule
    peers = rule.get("from") or ()
    return not peers or any(_is_peer(peer, namespaces, source, target) for peer in peers)


def _is_peer(peer: Object, namespaces: Mapping[str, Mapping[str, str]], source: Pod, target: Pod) -> bool:
    assert set(peer) in ({"podSelector"}, {"namespaceSelector"}, {"podSelector", "namespaceSelector"}), peer
    if "namespaceSelector" in peer:
        there = selects(peer["namespaceSelector"], namespaces[source.namespace])
    else:
        there = source.namespace == target.namespace
    return there and selects(peer.get("podSelector") or {}, source.labels)


def _port(rule: Object, target: Pod, port: int, protocol: str) -> bool:
    ports = rule.get("ports") or ()
    return not ports or any(_is_port(each, target, port, protocol) for each in ports)


def _is_port(desired: Object, target: Pod, port: int, protocol: str) -> bool:
    assert set(desired) <= {"port", "protocol"}, desired
    number = desired.get("port", port)
    if isinstance(number, str):
        number = target.ports.get(number)
    return number == port and desired.get("protocol", "TCP") == protocol

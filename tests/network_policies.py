# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The verdict of NetworkPolicies on a connection (Kubernetes API reference, networking.k8s.io/v1).

A form that no policy of this collection has (IP blocks of ingress, ranges of ports) is an error here and never a
verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
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


def may_send(
    policies: Iterable[Object],
    namespaces: Mapping[str, Mapping[str, str]],
    source: Pod,
    target: Pod | str,
    port: int,
    protocol: str = "TCP",
) -> bool:
    """Return whether a pod may open a connection to a port of another pod, or of an IP address outside of the cluster.
    `namespaces`: labels of each."""
    selecting = [
        policy["spec"]
        for policy in policies
        if policy["metadata"]["namespace"] == source.namespace
        and "Egress" in _types(policy["spec"])
        and selects(policy["spec"]["podSelector"], source.labels)
    ]
    return not selecting or any(
        _to(rule, namespaces, source, target) and _leaves(rule, port, protocol)
        for spec in selecting
        for rule in spec.get("egress") or ()
    )


def _to(rule: Object, namespaces: Mapping[str, Mapping[str, str]], source: Pod, target: Pod | str) -> bool:
    assert set(rule) <= {"to", "ports"}, rule
    peers = rule.get("to") or ()
    if isinstance(target, str):
        return not peers or any(_holds(peer["ipBlock"], target) for peer in peers if "ipBlock" in peer)
    # Networks need not apply IP blocks to pods, and some do not.
    pods = [peer for peer in peers if "ipBlock" not in peer]
    return not peers or any(_is_peer(peer, namespaces, target, source) for peer in pods)


def _holds(block: Object, address: str) -> bool:
    assert set(block) <= {"cidr", "except"}, block
    found = ip_address(address)
    whole, *excluded = (ip_network(text) for text in (block["cidr"], *(block.get("except") or ())))
    # The API server refuses others.
    assert all(each.version == whole.version and each != whole and each.subnet_of(whole) for each in excluded), block
    return found in whole and not any(found in each for each in excluded)


def _leaves(rule: Object, port: int, protocol: str) -> bool:
    ports = rule.get("ports") or ()
    return not ports or any((each["port"], each["protocol"]) == (port, protocol) for each in ports)


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

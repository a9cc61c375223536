# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""AWS-specific comparisons of an actual with a desired value, in the style of engine/compare.py."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from ...names import MANAGED_BY
from ..engine import compare

MODES = ("CONFIG_MAP", "API_AND_CONFIG_MAP", "API")
"""Authentication modes of a cluster. A cluster can only change from one mode to the next."""
MOST_MINORS = 3
"""Kubelets may be three minor versions older than the API server ("Version Skew Policy"). Node groups are only updated
after the API server."""
_PORTS = re.compile(r"(-?\d+)(?:-(-?\d+))?")
"""Ports of a rule. For ICMP: its type and code; -1 stands for any."""
_PEERS = (("IpRanges", "CidrIp"), ("Ipv6Ranges", "CidrIpv6"), ("PrefixListIds", "PrefixListId"))
"""Lists of the peers of a rule, each with the field that has the peer in its entries."""
_TEMPLATE_IDENTITY = ("NetworkCardIndex", "DeviceIndex", "DeviceName", "ResourceType", "Key")
"""Fields that identify the entries of a list in a launch template; their order has no meaning for EC2."""
_TEMPLATE_DEFAULTS = {"NetworkCardIndex": 0, "InterfaceType": "interface"}
"""Defaults of a network interface for fields that a launch template does not set."""


def within_skew(actual: Any, desired: Any) -> bool:
    """Return True if a control plane may be updated to a version before its nodes."""
    actual_version, desired_version = compare.numbers(actual), compare.numbers(desired)
    return actual_version[:1] == desired_version[:1] and desired_version[1] - actual_version[1] <= MOST_MINORS


def mode(actual: Any, desired: Any) -> bool:
    """Compare authentication modes. A later mode is equal to the desired mode because a cluster cannot return to an
    earlier mode."""
    return rank(actual) >= rank(desired)


def rank(mode: Any) -> int:
    """Return the rank of an authentication mode. An unknown mode has the highest rank, so it is left unchanged."""
    return MODES.index(mode) if mode in MODES else len(MODES)


def no_fewer(actual: Any, desired: Any) -> bool:
    """Return True if no subnet is removed from a list: EKS keeps the initial zones of a cluster."""
    return set(actual or ()) <= set(desired)


def cidrs(actual: Any, desired: Any) -> bool:
    """Compare address ranges. EKS describes them without host bits."""
    return _networks(actual) == _networks(desired)


def _networks(ranges: Iterable[str] | None) -> set[str]:
    def network(cidr: str) -> str:
        try:
            return str(ipaddress.ip_network(cidr, strict=False))
        except ValueError:
            return cidr

    return {network(str(cidr)) for cidr in ranges or ()}


def among(actual: Any, desired: Any) -> bool:
    """Return True if the actual values contain the desired value, or if they are unknown (None)."""
    return actual is None or desired in actual


def scaling(actual: Any, desired: Any) -> bool:
    """Compare the bounds of a node group; within the bounds, the autoscaler sets its size."""
    bounds = ("minSize", "maxSize")
    size = int((actual or {}).get("desiredSize", 0))
    is_within_bounds = int(desired["minSize"]) <= size <= int(desired["maxSize"])
    return is_within_bounds and all((actual or {}).get(key) == desired[key] for key in bounds)


def taints(actual: Any, desired: Any) -> bool:
    """Compare taints in any order; a taint without a value has the empty value."""
    return normal_taints(actual) == normal_taints(desired)


def normal_taints(taints: Iterable[Mapping[str, Any]] | None) -> list[dict[str, str]]:
    """Return taints in a fixed order and with all fields."""
    plain = [{key: str(taint.get(key) or "") for key in ("key", "value", "effect")} for taint in taints or ()]
    return sorted(plain, key=lambda taint: (taint["key"], taint["effect"]))


def configuration(actual: Any, desired: Any) -> bool:
    """Compare the configuration of an addon. The desired configuration is JSON; a text that is not JSON is always
    different."""
    return bool(_configuration(actual) == _configuration(desired))


def _configuration(text: Any) -> Any:
    try:
        return json.loads(text or "{}")
    except ValueError:
        return text


def document(actual: Any, desired: Any) -> bool:
    """Compare policy documents by their meaning.

    A list with one element is equal to this element without a list. Lists have no order. Service prefixes and names of
    actions are case-insensitive.
    """
    return bool(_normal(policy_document(actual)) == _normal(policy_document(desired)))


def policy_document(text: Any) -> dict[str, Any]:
    """Return a policy document as data. IAM returns it URL-encoded; botocore decodes it in most responses."""
    if isinstance(text, str):
        text = json.loads(unquote(text) if text.lstrip()[:1] == "%" else text)
    return dict(text)


def _normal(value: Any, key: str = "") -> Any:
    """Return a part of a policy document, the value of `key`, with every list in a fixed order. A single value becomes
    a list."""
    if isinstance(value, Mapping) and key != "Statement":
        # A Sid is only a name for readers, and consoles add it.
        return {name: _normal(element, name) for name, element in sorted(value.items()) if name != "Sid"}
    elements = value if isinstance(value, (list, tuple)) else [value]
    if key == "Statement":
        return sorted(map(_normal, elements), key=str)
    return sorted({str(element).lower() if key in ("Action", "NotAction") else str(element) for element in elements})


def template(actual: Any, desired: Any) -> bool:
    """Compare the latest version of a launch template with data. The latest version must be the default version."""
    return bool((actual or {}).get("default")) and template_data(actual, desired)


def template_data(actual: Any, desired: Any) -> bool:
    """Compare a version of a launch template with data.

    EC2 may add fields to data that the collection wrote. The description of such a version contains the hash of the
    data.
    """
    version = actual or {}
    actual_data, desired_data = normal_template(version.get("data")), normal_template(desired)
    if actual_data == desired_data:
        return True
    if version.get("description") != template_description(desired):
        return False
    return set(actual_data) == set(desired_data) and compare.subset(actual_data, desired_data)


def template_description(data: Mapping[str, Any]) -> str:
    """Return the description of a version of a launch template with this data."""
    text = json.dumps(normal_template(data), sort_keys=True)
    return f"{MANAGED_BY} {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def normal_template(value: Any) -> Any:
    """Return data of a launch template without empty values and defaults, and with every list in a fixed order."""
    if isinstance(value, Mapping):
        items = {str(key): normal_template(element) for key, element in sorted(value.items())}
        return {
            key: element
            for key, element in items.items()
            if element not in (None, "", {}, [], _TEMPLATE_DEFAULTS.get(key))
        }
    if isinstance(value, (list, tuple)):
        return sorted((normal_template(element) for element in value), key=_sort_key)
    return {} if value is None else value


def _sort_key(value: Any) -> tuple[str, str]:
    identity = [str(value.get(key, "")).zfill(4) for key in _TEMPLATE_IDENTITY] if isinstance(value, Mapping) else []
    return "/".join(identity), json.dumps(value, sort_keys=True, default=str)


def rules(permissions: Iterable[Mapping[str, Any]], group_id: str) -> list[str]:
    """Return the rules of a security group, one for each peer: `tcp 2049 10.0.0.0/16`, `all self`.

    A peer is a range, `self`, or the ID of another group or of a prefix list.
    """
    rule_texts: set[str] = set()
    for permission in permissions:
        protocol, from_port, to_port = (permission.get(key) for key in ("IpProtocol", "FromPort", "ToPort"))
        every = str(protocol) == "-1" or from_port is None
        ports = "" if every else f" {from_port}" if from_port == to_port else f" {from_port}-{to_port}"
        begin = f"{'all' if str(protocol) == '-1' else protocol}{ports}"
        peers = [peer_entry[field] for entries, field in _PEERS for peer_entry in permission.get(entries, ())]
        for pair in permission.get("UserIdGroupPairs", ()):
            peers.append("self" if pair.get("GroupId") == group_id else pair.get("GroupId", pair.get("GroupName", "")))
        rule_texts |= {f"{begin} {peer}" for peer in peers}
    return sorted(rule_texts)


def permission(rule: str, group_id: str) -> dict[str, Any]:
    """Return a rule of a security group in the format of EC2."""
    protocol, *ports, peer = rule.split()
    sent: dict[str, Any] = {"IpProtocol": "-1" if protocol == "all" else protocol}
    if ports:
        [(from_port, to_port)] = _PORTS.findall(ports[0])
        sent |= {"FromPort": int(from_port), "ToPort": int(to_port or from_port)}
    if peer == "self" or peer.startswith("sg-"):
        return {**sent, "UserIdGroupPairs": [{"GroupId": group_id if peer == "self" else peer}]}
    if peer.startswith("pl-"):
        return {**sent, "PrefixListIds": [{"PrefixListId": peer}]}
    if ":" in peer:
        return {**sent, "Ipv6Ranges": [{"CidrIpv6": peer}]}
    return {**sent, "IpRanges": [{"CidrIp": peer}]}

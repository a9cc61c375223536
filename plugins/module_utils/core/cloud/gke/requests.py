# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Calls of Google's REST APIs that find, create, change, list and delete an object.

Building a call changes nothing: the sender waits for its operation (operations.py) before the next call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..bodies import merged
from ..engine.compare import at, minors, numbers
from ..engine.diff import Change
from ..engine.kinds import Resource
from . import compare, policies
from .kinds import EVERY, VERSIONS

Found = Mapping[str, Any]


@dataclass(frozen=True)
class Request:
    """One call. `path` is added to the base URL of the `service`. `purpose`: its effect in messages."""

    service: str
    method: str
    path: str
    body: dict[str, Any] | None = None
    purpose: str = ""


def find(resource: Resource) -> Request:
    """Return the call that returns an object (404 if it does not exist), or the policy with the member."""
    if resource["kind"] == "iam-member":
        body = {"options": {"requestedPolicyVersion": policies.VERSION}}
        return _request(resource, "POST", f"{_base(resource)}:getIamPolicy", body)
    return _request(resource, "GET", path(resource))


def create(resource: Resource, actual: Found | None = None) -> Request:
    """Return the call that creates an object. `actual`: the policy for a new member."""
    kind, body = resource["kind"], merged(resource["body"], resource.get("initial") or {})
    purpose = f"create {title(resource)}"
    if kind == "service":
        return _request(resource, "POST", f"{path(resource)}:enable", {}, f"enable the API {resource['name']}")
    if kind == "iam-member":
        purpose = f"grant {body['role']} to {body['member']}"
        policy = policies.added(actual or {}, body["role"], body["member"])
        return _request(resource, "POST", f"{_base(resource)}:setIamPolicy", {"policy": policy}, purpose)
    kind_entry = EVERY[kind]
    sent = {key: value for key, value in body.items() if key not in kind_entry.update_only}
    if kind_entry.wrap:
        sent = {kind_entry.wrap: sent}
    if kind == "service-account":
        sent = {"accountId": resource["name"].partition("@")[0], **sent}
    return _request(resource, "POST", collection(resource), sent, purpose)


def updates(resource: Resource, actual: Found, changes: Sequence[Change]) -> Iterator[Request]:
    """Yield the calls that update an object to its desired state, in order. Immutable fields have no calls."""
    for name, update in _UPDATES.get(resource["kind"], {}).items():
        field_changes = [change for change in changes if change.update == name]
        if field_changes:
            for method, suffix, body, purpose in update(actual, resource["body"], field_changes):
                yield _request(resource, method, f"{path(resource)}{suffix}", body, f"{purpose} of {title(resource)}")


def delete(resource: Resource, actual: Found | None = None) -> Request:
    """Return the call that deletes an object. `actual`: the policy with the member."""
    if resource["kind"] == "iam-member":
        body = resource["body"]
        policy = policies.removed(actual or {}, body["role"], body["member"])
        purpose = f"revoke {body['role']} from {body['member']}"
        return _request(resource, "POST", f"{_base(resource)}:setIamPolicy", {"policy": policy}, purpose)
    return _request(resource, "DELETE", path(resource), None, f"delete {title(resource)}")


def under_way(resource: Resource) -> Request | None:
    """Return the call that lists the running operations in the scope of an object, under `items`.

    The call is None if an object is visible as soon as its creation starts. An object of Compute Engine is only visible
    after its creation, but its name is already in use.
    """
    if EVERY[resource["kind"]].service != "compute":
        return None
    purpose = f"list the operations of {resource['parent']}"
    return _request(resource, "GET", f"{_base(resource)}/operations?filter=status%21%3DDONE", None, purpose)


def siblings(resource: Resource) -> Request:
    """Return the call that lists the objects of a kind in the scope of an object.

    They are under the name of the collection. Objects of Compute Engine are under `items`.
    """
    return _request(resource, "GET", collection(resource))


def path(resource: Resource) -> str:
    """Return the path of an object."""
    return f"{collection(resource)}/{resource['name']}"


def collection(resource: Resource) -> str:
    """Return the path of the objects of a kind in the scope of an object."""
    return f"{_base(resource)}/{EVERY[resource['kind']].collection}"


def title(resource: Resource) -> str:
    """Return the name of an object in messages."""
    return f"{EVERY[resource['kind']].title} {resource['name']}"


def _base(resource: Resource) -> str:
    return f"{VERSIONS[EVERY[resource['kind']].service]}/{resource['parent']}"


def _request(
    resource: Resource, method: str, place: str, body: dict[str, Any] | None = None, purpose: str = ""
) -> Request:
    return Request(EVERY[resource["kind"]].service, method, place, body, purpose or f"read {title(resource)}")


# Updates: yield calls from the actual state, the desired state and the changes of this update. A call has a method, a
# path suffix, a body, and its effect.

_Call = tuple[str, str, dict[str, Any], str]
_Update = Callable[[Found, Found, Sequence[Change]], Iterator[_Call]]


def _set(purpose: Callable[[Any], str], method: str = "PUT", suffix: str = "") -> _Update:
    """Return the update that sends one field by its name. `purpose`: the effect of the update, from the new value."""

    def update(_actual: Found, _desired: Found, changes: Sequence[Change]) -> Iterator[_Call]:
        [change] = changes
        yield method, suffix, {_name(change): change.after}, purpose(change.after)

    return update


def _desired(purpose: str) -> _Update:
    """Return the update that sends one field of a cluster. GKE accepts only one field in a call."""

    def update(_actual: Found, _desired: Found, changes: Sequence[Change]) -> Iterator[_Call]:
        [change] = changes
        name = _name(change)
        yield "PUT", "", {"update": {f"desired{name[0].upper()}{name[1:]}": change.after}}, purpose

    return update


def _name(change: Change) -> str:
    return change.field.rpartition(".")[2]


def _ranges(actual: Found, desired: Found, _changes: Sequence[Change]) -> Iterator[_Call]:
    """Yield the update of secondary ranges. PATCH replaces the list, so the list also has the ranges of other
    owners."""
    held_ranges = [dict(entry) for entry in actual.get("secondaryIpRanges") or ()]
    names = {entry["rangeName"] for entry in held_ranges}
    missing = [dict(entry) for entry in desired["secondaryIpRanges"] if entry["rangeName"] not in names]
    body = {"secondaryIpRanges": [*held_ranges, *missing], "fingerprint": actual.get("fingerprint", "")}
    yield "PATCH", "", body, f"add the ranges {', '.join(entry['rangeName'] for entry in missing)}"


def _cluster_labels(actual: Found, desired: Found, _changes: Sequence[Change]) -> Iterator[_Call]:
    labels = {**(actual.get("resourceLabels") or {}), **desired["resourceLabels"]}
    body = {"resourceLabels": labels, "labelFingerprint": actual.get("labelFingerprint", "")}
    yield "POST", ":setResourceLabels", body, "set the labels"


def _cluster_version(actual: Found, desired: Found, _changes: Sequence[Change]) -> Iterator[_Call]:
    """Yield the updates of the cluster version: GKE requires one minor version after the other."""
    end = desired["initialClusterVersion"]
    for version in [*minors(actual["currentMasterVersion"], end)[:-1], end]:
        yield "PUT", "", {"update": {"desiredMasterVersion": version}}, f"upgrade the control plane to {version}"


def _pool_version(_actual: Found, desired: Found, _changes: Sequence[Change]) -> Iterator[_Call]:
    """Yield the update of the node version.

    A minor version becomes the version of the control plane. Its newest patch might be newer than the control plane,
    and nodes cannot be newer.
    """
    version = desired["version"]
    exact = len(numbers(version)) > 2
    yield "PUT", "", {"nodeVersion": version if exact else "-"}, f"upgrade the nodes to {version}"


def _machine(_actual: Found, _desired: Found, changes: Sequence[Change]) -> Iterator[_Call]:
    """Yield the update of the machines. Its fields are sent together because some machine types require certain
    accelerators."""
    body = {change.field.removeprefix("config."): change.after for change in changes}
    if "diskSizeGb" in body:
        # This call expects a 64-bit number (JSON text), although the creation of a pool expects a 32-bit number.
        body["diskSizeGb"] = str(body["diskSizeGb"])
    yield "PUT", "", body, "replace the nodes by other machines"


def _node_labels(actual: Found, desired: Found, _changes: Sequence[Change]) -> Iterator[_Call]:
    labels = compare.with_node_labels(at(actual, "config.labels"), desired["config"]["labels"])
    yield "PUT", "", {"labels": {"labels": labels}}, "set the labels of the nodes"


def _taints(actual: Found, desired: Found, _changes: Sequence[Change]) -> Iterator[_Call]:
    taints = compare.with_taints(at(actual, "config.taints"), desired["config"]["taints"])
    yield "PUT", "", {"taints": {"taints": taints}}, "set the taints of the nodes"


def _machine_labels(actual: Found, desired: Found, _changes: Sequence[Change]) -> Iterator[_Call]:
    labels = {**(at(actual, "config.resourceLabels") or {}), **desired["config"]["resourceLabels"]}
    yield "PUT", "", {"resourceLabels": {"labels": labels}}, "set the labels of the machines"


def _autoscaling(_actual: Found, desired: Found, _changes: Sequence[Change]) -> Iterator[_Call]:
    """Yield the update of the autoscaling bounds.

    The autoscaler does not move a pool into its bounds, so a pool with a fixed size is set to this size first. If a run
    stops after this call, the bounds still differ in the next run.
    """
    bounds = desired["autoscaling"]
    min_nodes, max_nodes = bounds.get("minNodeCount", 0), bounds.get("maxNodeCount", 0)
    if min_nodes == max_nodes:
        yield "POST", ":setSize", {"nodeCount": min_nodes}, f"set the size to {min_nodes} in each zone"
    purpose = f"let the autoscaler keep {min_nodes} to {max_nodes} nodes in each zone"
    yield "POST", ":setAutoscaling", {"autoscaling": dict(bounds)}, purpose


def _names(_actual: Found, _desired: Found, changes: Sequence[Change]) -> Iterator[_Call]:
    fields = {change.field: change.after for change in changes}
    yield "PATCH", "", {"serviceAccount": fields, "updateMask": ",".join(fields)}, f"set {', '.join(fields)}"


_UPDATES: dict[str, dict[str, _Update]] = {
    "subnetwork": {
        "expand": _set(lambda cidr: f"grow the range of nodes to {cidr}", "POST", "/expandIpCidrRange"),
        "ranges": _ranges,
        "private access": _set(
            lambda _access: "let nodes reach Google's APIs without addresses of their own",
            "POST",
            "/setPrivateIpGoogleAccess",
        ),
    },
    "router": {"nats": _set(lambda _nats: "set the NAT", "PATCH")},
    "cluster": {
        "labels": _cluster_labels,
        "channel": _desired("set the release channel"),
        "version": _cluster_version,
        "identity": _desired("set the identity pool"),
        "addons": _desired("set the addons"),
        "authorized networks": _desired("set the networks that reach the control plane"),
        "encryption": _desired("encrypt Secrets with the key"),
        "multi-networking": _desired("enable multi-networking"),
        "private nodes": _desired("set whether nodes of new pools are private"),
    },
    "node-pool": {
        "upgrade settings": _set(
            lambda settings: (
                f"set maxSurge {settings['maxSurge']} and maxUnavailable {settings['maxUnavailable']} for upgrades"
            )
        ),
        "labels of machines": _machine_labels,
        "version": _pool_version,
        "machine": _machine,
        "gvnic": _set(lambda gvnic: f"turn gVNIC {'on' if gvnic['enabled'] else 'off'} with other nodes"),
        "labels": _node_labels,
        "taints": _taints,
        # The zones are sent in a separate call, because a call with other changes does not apply them to existing
        # nodes.
        "locations": _set(lambda zones: f"set the zones to {', '.join(zones)}"),
        "autoscaling": _autoscaling,
    },
    "service-account": {"names": _names},
}
"""The updates of each kind, in order: updates that replace nodes are before updates of node properties."""

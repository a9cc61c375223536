# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Observed state of the clusters of a fleet: objects from API servers, and unreachable clusters.

The state contains the keys of Secrets with a value, but never the values. `parse` and `wire` convert the written form:

    control:
      unreachable: ""                            # reason for an unread cluster; its state is then unknown
      objects: [<Kubernetes object>, ...]
      secrets: [{namespace: ml-team, name: hf-token, keys: [HF_TOKEN]}, ...]  # labels: {...} if used
      unread: ""                                 # reason for unknown keys of callers, if any are possible
      known: {<InferenceCluster>: [<digest>]}    # digests of planned ModelReplicas; {} without an inventory
      controller: {ready: true, message: ""}     # addresses: [...] if the Gateway itself has none
    clusters:
      <InferenceCluster>:
        unreachable: ""                          # reason for no response; otherwise, objects are required
        declared: false                          # true, without other fields: file-based, unobserved
        provisioned: {ready: true, message: ""}  # only for a cluster that the fleet creates
        stack: {ready: true, message: ""}
        nodes: {<pool>: 3}                       # Ready nodes
        unavailable: {<pool>: [{name: gpu-0, reason: cordoned, closed: true, devices: {gpu: 2}}]}  # if read
        stranded: [{namespace: mp-ml, replica: chat-1, reason: ...}]  # replicas that could not start again there
        version: "1.36"                          # Kubernetes version
        openshift: true                          # only for OpenShift
        secrets: [{namespace: mp-ml, name: registry, keys: []}]  # Secrets of pods; no keys: missing Secret
        applied: {digest: ..., replicas: [...]}  # last applied ModelReplicas; {} without inventory, missing if unread
        objects: [<Kubernetes object>, ...]      # policies of others only with their targets
    accounts: [...]                              # core/accounts.py; the only field without observed clusters

Only the identity of an object is checked. `core/wire.py` reads all other fields, because they are untrusted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import api
from .accounts import MOST_ACCOUNTS, Account
from .text import count, entry_path, field_path, nearest_key, short_value, some
from .wire import LAST_APPLIED, Object, Objects, fields, identity

NOT_READY = "not Ready"
"""Reason of an unavailable node that is not Ready."""
NO_DEVICES = "no devices"
"""Start of the reason of an unavailable node without published devices."""
NOT_THIS_RUN = "not part of this run"
"""Message about a cluster that was not to be read."""


@dataclass(frozen=True)
class Component:
    """Readiness of a component, with a reason: a cloud cluster, a serving stack, or a controller of a gateway."""

    ready: bool = False
    message: str = ""
    addresses: tuple[str, ...] = ()
    """Addresses of the component in order of preference, if no object contains an address."""


@dataclass(frozen=True)
class ObservedBudget:
    """Use of a budget of a CallerPolicy at the gateway of a cluster."""

    namespace: str
    policy: str
    name: str
    used: Mapping[str, int] = field(default_factory=dict)
    """Used units by caller, or by "*" if all callers share the budget."""
    resets: str = ""
    """End of the window (RFC 3339)."""
    problem: str = ""
    """Reason for an unknown use, empty if the use is known."""


@dataclass(frozen=True)
class AppliedReplicas:
    """Last applied ModelReplicas of a cluster, with their digest. Empty if the cluster stores no ModelReplicas."""

    digest: str = ""
    replicas: tuple[Object, ...] = ()


@dataclass(frozen=True)
class UnavailableNode:
    """Node that is not schedulable, or that has free devices that new pods cannot use, with the reason."""

    name: str
    reason: str
    closed: bool = False
    """True if the node is not schedulable."""
    devices: Mapping[str, int] = field(default_factory=dict)
    """Number of these devices by their name in the InferenceClass."""

    def __str__(self) -> str:
        return f"{self.name} ({self.reason})"

    @property
    def wire(self) -> dict[str, Any]:
        """Return the written form."""
        devices = dict(sorted(self.devices.items()))
        return {"name": self.name, "reason": self.reason, "closed": self.closed, "devices": devices}


@dataclass(frozen=True)
class ObservedCluster:
    """Observed state of one inference cluster."""

    unreachable: str = ""
    """Reason for an unreachable cluster, empty if it is reachable. The last observed state of an unreachable cluster
    stays valid."""
    provisioned: Component | None = None
    """State of the cloud cluster, None if the fleet did not create the cluster."""
    stack: Component = field(default_factory=Component)
    """State of the serving stack."""
    objects: Objects = field(default_factory=Objects)
    """Observed objects."""
    nodes: Mapping[str, int] = field(default_factory=dict)
    """Number of Ready nodes of each pool."""
    declared: bool = False
    """No run observes the cluster, because its objects are files. Its manifest declares its state."""
    version: str = ""
    """Kubernetes version."""
    openshift: bool = False
    """True for an OpenShift cluster."""
    budgets: tuple[ObservedBudget, ...] = ()
    """Budget use of its gateway."""
    applied: AppliedReplicas | None = None
    """Applied ModelReplicas, None if the run did not read the cluster's inventory."""
    unavailable: Mapping[str, tuple[UnavailableNode, ...]] | None = None
    """Nodes of each pool with devices that new pods cannot use, None if the run did not read them."""
    stranded: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Reason of each replica (namespace and replica label of its pods) with pods that could not start again on their
    nodes."""
    secret_keys: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    """Keys with a value in each Secret (namespace, name) that replica pods reference. A Secret without keys does not
    exist. The state of other Secrets is unknown."""

    def existing(self, pool: str) -> int:
        """Return the number of nodes in a pool, Ready or not."""
        return self.nodes.get(pool, 0) + sum(node.reason == NOT_READY for node in self.unavailable_in(pool))

    def schedulable(self, pool: str) -> int:
        """Return the number of schedulable nodes in a pool."""
        return max(0, self.existing(pool) - sum(node.closed for node in self.unavailable_in(pool)))

    def unavailable_in(self, pool: str) -> tuple[UnavailableNode, ...]:
        """Return the unavailable nodes in a pool."""
        return (self.unavailable or {}).get(pool, ())

    @property
    def unavailable_message(self) -> str:
        """Return the unavailable nodes as text, "" without any."""
        return "; ".join(
            f"{len(nodes)} of {count(self.existing(pool), 'node')} of pool {pool} unavailable: {some(map(str, nodes))}"
            for pool, nodes in sorted((self.unavailable or {}).items())
            if nodes
        )


@dataclass(frozen=True)
class Observed:
    """Observed state of a fleet."""

    control: Objects = field(default_factory=Objects)
    secret_keys: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    """Keys with a value, by Secret (namespace, name) of the control cluster."""
    secret_labels: Mapping[tuple[str, str], Mapping[str, str]] = field(default_factory=dict)
    """Labels of the Secrets with keys of callers."""
    unread: str = ""
    """Reason for unread Secrets with keys of callers."""
    controller: Component = field(default_factory=Component)
    """Controller of the control gateway."""
    clusters: Mapping[str, ObservedCluster] = field(default_factory=dict)
    unreachable: str = ""
    """Reason for an unread control cluster, empty if it was read."""
    known: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Digests of the planned ModelReplicas of each cluster."""
    accounts: tuple[Account, ...] = ()
    """Cloud accounts."""

    @property
    def seen(self) -> Objects | None:
        """Return the objects of the control cluster, or None if it was not read."""
        return None if self.unreachable else self.control

    def lacks(self, namespace: str, name: str, key: str) -> bool:
        """Return True if a Secret of the control cluster is known to lack a key."""
        return not self.unreachable and key not in self.secret_keys.get((namespace, name), frozenset())


class ObservationError(Exception):
    """Error in an observation document.

    `path`: the field. `value`: its value in short form. `expected`: the expected value."""

    def __init__(self, path: str, value: str, expected: str) -> None:
        got = f" (got {value})" if value else ""
        super().__init__(f"{path or 'the observation'}: expected {expected}{got}")
        self.path = path
        self.value = value
        self.expected = expected


def parse(document: Any) -> Observed:
    """Return the observation of a document. Raise ObservationError."""
    top = _map(document, "", "control", "clusters", "accounts")
    control = _map(top.get("control"), "control", "unreachable", "objects", "secrets", "unread", "known", "controller")
    clusters = _map(top.get("clusters"), "clusters")
    return Observed(
        unreachable=_text(control.get("unreachable"), "control.unreachable"),
        control=_objects(control.get("objects"), "control.objects"),
        secret_keys=_secrets(control.get("secrets"), "control.secrets"),
        secret_labels=_secret_labels(control.get("secrets"), "control.secrets"),
        unread=_text(control.get("unread"), "control.unread"),
        controller=_component(control.get("controller"), "control.controller"),
        known=_known(control.get("known"), "control.known"),
        clusters={name: _cluster(clusters[name], field_path("clusters", name)) for name in sorted(clusters)},
        accounts=accounts(document),
    )


def is_of_clusters(document: Any) -> bool:
    """Return True if a document contains data of clusters. A document with only accounts does not."""
    return not isinstance(document, Mapping) or "accounts" not in document or len(document) > 1


def accounts(document: Any) -> tuple[Account, ...]:
    """Return the accounts of an observation document, without duplicates. Raise ObservationError."""
    section = _list(document.get("accounts") if isinstance(document, Mapping) else None, "accounts")
    if len(section) > MOST_ACCOUNTS:
        raise ObservationError("accounts", "", f"at most {MOST_ACCOUNTS} accounts")
    accounts_by_key: dict[tuple[str, str, str], Account] = {}
    for index, entry in enumerate(section):
        path = f"accounts[{index}]"
        account = _account(_map(entry, path), path)
        if account.key in accounts_by_key:
            raise ObservationError(path, "", f"each account once; {'/'.join(account.key)} is there twice")
        accounts_by_key[account.key] = account
    return tuple(accounts_by_key.values())


def _account(entry: Mapping[str, Any], path: str) -> Account:
    try:
        return api.read_part(entry, Account)
    except api.InvalidResource as error:
        problem = error.problems[0]
        expected = f"an account as check records it: {problem.message}"
        raise ObservationError(f"{path}.{problem.path}" if problem.path else path, problem.value, expected) from None


def wire(observed: Observed) -> dict[str, Any]:
    """Return the written form of an observation. `parse` converts it to an equal observation."""
    return {
        "control": {
            "unreachable": observed.unreachable,
            "objects": [dict(value) for value in observed.control],
            "secrets": [
                {"namespace": key[0], "name": key[1], "keys": sorted(keys), **_labels_wire(observed, key)}
                for key, keys in sorted(observed.secret_keys.items())
            ],
            **({"unread": observed.unread} if observed.unread else {}),
            **(
                {"known": {name: list(digests) for name, digests in sorted(observed.known.items())}}
                if observed.known
                else {}
            ),
            "controller": _component_wire(observed.controller),
        },
        "clusters": {name: _cluster_wire(cluster) for name, cluster in sorted(observed.clusters.items())},
        **({"accounts": accounts_wire(observed.accounts)} if observed.accounts else {}),
    }


def _secrets_wire(secrets: Mapping[tuple[str, str], frozenset[str]]) -> list[dict[str, Any]]:
    return [
        {"namespace": namespace, "name": name, "keys": sorted(keys)}
        for (namespace, name), keys in sorted(secrets.items())
    ]


def _labels_wire(observed: Observed, secret: tuple[str, str]) -> dict[str, Any]:
    labels = observed.secret_labels.get(secret)
    return {"labels": dict(sorted(labels.items()))} if labels else {}


def accounts_wire(observed: Sequence[Account]) -> list[dict[str, Any]]:
    """Return the written form of accounts."""
    return [api.wire(account) for account in observed]


def _component_wire(component: Component) -> dict[str, Any]:
    addresses = {"addresses": list(component.addresses)} if component.addresses else {}
    return {"ready": component.ready, "message": component.message, **addresses}


def _cluster_wire(cluster: ObservedCluster) -> dict[str, Any]:
    if cluster.declared:
        return {"declared": True}
    provisioned = {"provisioned": _component_wire(cluster.provisioned)} if cluster.provisioned else {}
    return {
        "unreachable": cluster.unreachable,
        **provisioned,
        "stack": _component_wire(cluster.stack),
        "nodes": dict(sorted(cluster.nodes.items())),
        **(
            {}
            if cluster.unavailable is None
            else {
                "unavailable": {
                    pool: [node.wire for node in nodes] for pool, nodes in sorted(cluster.unavailable.items())
                }
            }
        ),
        **(
            {
                "stranded": [
                    {"namespace": namespace, "replica": replica, "reason": reason}
                    for (namespace, replica), reason in sorted(cluster.stranded.items())
                ]
            }
            if cluster.stranded
            else {}
        ),
        "version": cluster.version,
        **({"openshift": True} if cluster.openshift else {}),
        **({"secrets": _secrets_wire(cluster.secret_keys)} if cluster.secret_keys else {}),
        **({"budgets": [budget_wire(budget) for budget in cluster.budgets]} if cluster.budgets else {}),
        **(_applied_wire(cluster.applied) if cluster.applied is not None else {}),
        "objects": [dict(value) for value in cluster.objects],
    }


def _applied_wire(applied: AppliedReplicas) -> dict[str, Any]:
    if not applied.digest:
        return {"applied": {}}
    return {"applied": {"digest": applied.digest, "replicas": [dict(value) for value in applied.replicas]}}


def budget_wire(budget: ObservedBudget) -> dict[str, Any]:
    """Return the written form of the use of a budget."""
    return {
        "namespace": budget.namespace,
        "policy": budget.policy,
        "name": budget.name,
        **({"used": dict(sorted(budget.used.items()))} if budget.used else {}),
        **({"resets": budget.resets} if budget.resets else {}),
        **({"problem": budget.problem} if budget.problem else {}),
    }


def _map(value: Any, path: str, *known_keys: str) -> Mapping[str, Any]:
    """Return a map with text keys, or {} for a missing map. `known_keys`: the allowed keys, if any."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ObservationError(path, short_value(value), "a mapping")
    for key in value:
        if not isinstance(key, str) or not key:
            raise ObservationError(path, short_value(key), "keys that are text")
        if known_keys and key not in known_keys:
            raise ObservationError(field_path(path, key), "", f"no such key. {nearest_key(key, known_keys)}")
    return value


def _list(value: Any, path: str) -> Sequence[Any]:
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)):
        raise ObservationError(path, short_value(value), "a list")
    return value


def _text(value: Any, path: str, *, required: bool = False) -> str:
    if value is None and not required:
        return ""
    if not isinstance(value, str) or (required and not value):
        raise ObservationError(path, short_value(value), "text")
    return value


def _flag(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise ObservationError(path, short_value(value), "true or false")
    return value


def _number(value: Any, path: str, expected: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ObservationError(path, short_value(value), expected)


def _component(value: Any, path: str) -> Component:
    mapping = _map(value, path, "ready", "message", "addresses")
    ready = _flag(mapping.get("ready", False), f"{path}.ready")
    addresses = tuple(
        _text(address, f"{path}.addresses[{index}]", required=True)
        for index, address in enumerate(_list(mapping.get("addresses"), f"{path}.addresses"))
    )
    return Component(ready, _text(mapping.get("message"), f"{path}.message"), addresses)


def _cluster(value: Any, path: str) -> ObservedCluster:
    mapping = _map(
        value,
        path,
        *("unreachable", "declared", "provisioned", "stack", "nodes", "unavailable", "stranded"),
        *("version", "openshift", "budgets"),
        *("secrets", "applied", "objects"),
    )
    declared = _flag(mapping.get("declared", False), f"{path}.declared")
    openshift = _flag(mapping.get("openshift", False), f"{path}.openshift")
    if declared:
        if filled := sorted(key for key in mapping if key != "declared" and mapping[key]):
            expected = "nothing beside declared, which says that the cluster was not read"
            raise ObservationError(f"{path}.{filled[0]}", "", expected)
        return ObservedCluster(declared=True)
    provisioned = mapping.get("provisioned")
    nodes = _map(mapping.get("nodes"), f"{path}.nodes")
    for pool, ready in nodes.items():
        _number(ready, entry_path(f"{path}.nodes", pool), "a number of nodes")
    cluster = ObservedCluster(
        unreachable=_text(mapping.get("unreachable"), f"{path}.unreachable"),
        provisioned=None if provisioned is None else _component(provisioned, f"{path}.provisioned"),
        stack=_component(mapping.get("stack"), f"{path}.stack"),
        objects=_objects(mapping.get("objects"), f"{path}.objects"),
        nodes=dict(nodes),
        unavailable=_unavailable(mapping["unavailable"], f"{path}.unavailable") if "unavailable" in mapping else None,
        stranded=_stranded(mapping.get("stranded"), f"{path}.stranded"),
        version=_text(mapping.get("version"), f"{path}.version"),
        openshift=openshift,
        secret_keys=_secrets(mapping.get("secrets"), f"{path}.secrets"),
        budgets=_budgets(mapping.get("budgets"), f"{path}.budgets"),
        applied=_applied(mapping["applied"], f"{path}.applied") if "applied" in mapping else None,
    )
    if not cluster.unreachable and mapping.get("objects") is None:
        # A cluster that was never read must not count as "nothing runs there".
        expected = "what was seen, [] for nothing; or write in unreachable why the cluster did not answer"
        raise ObservationError(f"{path}.objects", "", expected)
    return cluster


def _unavailable(value: Any, path: str) -> dict[str, tuple[UnavailableNode, ...]]:
    return {
        pool: tuple(
            _unavailable_node(node, f"{entry_path(path, pool)}[{index}]")
            for index, node in enumerate(_list(nodes, entry_path(path, pool)))
        )
        for pool, nodes in _map(value, path).items()
    }


def _stranded(value: Any, path: str) -> dict[tuple[str, str], str]:
    stranded = {}
    for index, entry in enumerate(_list(value, path)):
        item_path = f"{path}[{index}]"
        mapping = _map(entry, item_path, "namespace", "replica", "reason")
        namespace, replica, reason = (
            _text(mapping.get(key), f"{item_path}.{key}", required=True) for key in ("namespace", "replica", "reason")
        )
        stranded[namespace, replica] = reason
    return stranded


def _unavailable_node(value: Any, path: str) -> UnavailableNode:
    node = _map(value, path, "name", "reason", "closed", "devices")
    devices = _map(node.get("devices"), f"{path}.devices")
    for device, number in devices.items():
        _number(number, entry_path(f"{path}.devices", device), "a number of devices")
    name, reason = (_text(node.get(key), f"{path}.{key}", required=True) for key in ("name", "reason"))
    return UnavailableNode(name, reason, _flag(node.get("closed", False), f"{path}.closed"), dict(devices))


def _applied(value: Any, path: str) -> AppliedReplicas:
    mapping = _map(value, path, "digest", "replicas")
    replicas = _objects(mapping.get("replicas"), f"{path}.replicas")
    return AppliedReplicas(_text(mapping.get("digest"), f"{path}.digest"), tuple(replicas))


def _known(value: Any, path: str) -> dict[str, tuple[str, ...]]:
    return {
        name: tuple(
            _text(digest, f"{entry_path(path, name)}[{index}]", required=True)
            for index, digest in enumerate(_list(digests, entry_path(path, name)))
        )
        for name, digests in _map(value, path).items()
    }


def _budgets(value: Any, path: str) -> tuple[ObservedBudget, ...]:
    budgets: dict[tuple[str, str, str], ObservedBudget] = {}
    for index, entry in enumerate(_list(value, path)):
        entry_location = f"{path}[{index}]"
        budget = _map(entry, entry_location, "namespace", "policy", "name", "used", "resets", "problem")
        namespace, policy, name = (
            _text(budget.get(field), f"{entry_location}.{field}", required=True)
            for field in ("namespace", "policy", "name")
        )
        used = _map(budget.get("used"), f"{entry_location}.used")
        for caller, number in used.items():
            _number(number, entry_path(f"{entry_location}.used", caller), "a number")
        resets, problem = (_text(budget.get(field), f"{entry_location}.{field}") for field in ("resets", "problem"))
        if (namespace, policy, name) in budgets:
            raise ObservationError(entry_location, "", f"each budget once; {namespace}/{policy}/{name} is there twice")
        budgets[namespace, policy, name] = ObservedBudget(namespace, policy, name, dict(used), resets, problem)
    return tuple(budgets.values())


def _secrets(value: Any, path: str) -> dict[tuple[str, str], frozenset[str]]:
    keys_by_secret: dict[tuple[str, str], frozenset[str]] = {}
    for index, entry in enumerate(_list(value, path)):
        entry_location = f"{path}[{index}]"
        secret = _map(entry, entry_location, "namespace", "name", "keys", "labels")
        key = (
            _text(secret.get("namespace"), f"{entry_location}.namespace", required=True),
            _text(secret.get("name"), f"{entry_location}.name", required=True),
        )
        if key in keys_by_secret:
            raise ObservationError(entry_location, "", f"each Secret once; {'/'.join(key)} is there twice")
        keys = secret.get("keys") or ()
        # What is written here by mistake may be a value of the Secret, so the message does not repeat it.
        if not isinstance(keys, (list, tuple)) or not all(isinstance(name, str) and name for name in keys):
            raise ObservationError(
                f"{entry_location}.keys", "", "a list of the names of the keys, without their values"
            )
        keys_by_secret[key] = frozenset(keys)
    return keys_by_secret


def _secret_labels(value: Any, path: str) -> dict[tuple[str, str], Mapping[str, str]]:
    """Return the labels of Secrets with labels. The other fields of these Secrets are already valid."""
    labels_by_secret: dict[tuple[str, str], Mapping[str, str]] = {}
    for index, entry in enumerate(_list(value, path)):
        entry_location = f"{path}[{index}].labels"
        labels = {
            name: _text(text, f"{entry_location}.{name}")
            for name, text in _map(entry.get("labels"), entry_location).items()
        }
        if labels:
            labels_by_secret[entry["namespace"], entry["name"]] = labels
    return labels_by_secret


def _objects(value: Any, path: str) -> Objects:
    objects: dict[tuple[str, str, str, str], Object] = {}
    for index, entry in enumerate(_list(value, path)):
        entry_location = f"{path}[{index}]"
        if not isinstance(entry, Mapping):
            raise ObservationError(entry_location, short_value(entry), "a Kubernetes object")
        _check_object(entry, entry_location)
        key = identity(entry)
        if objects.setdefault(key, entry) != entry:
            __, kind, namespace, name = key
            full = f"{namespace}/{name}" if namespace else name
            raise ObservationError(
                entry_location, "", f"each object once; {kind} {full} is there twice, with different content"
            )
    return Objects(objects.values())


def _check_object(value: Object, path: str) -> None:
    kind = _text(value.get("kind"), f"{path}.kind", required=True)
    _text(value.get("apiVersion"), f"{path}.apiVersion", required=True)
    if kind.endswith("List") and isinstance(value.get("items"), (list, tuple)):
        raise ObservationError(path, "", f"single objects; give the items of the {kind}")
    metadata = value.get("metadata")
    if not isinstance(metadata, Mapping):
        raise ObservationError(f"{path}.metadata", short_value(metadata), "a mapping")
    _text(metadata.get("name"), f"{path}.metadata.name", required=True)
    _text(metadata.get("namespace"), f"{path}.metadata.namespace")
    if kind == "Secret":
        secret_fields = [key for key in ("data", "stringData") if value.get(key)]
        if LAST_APPLIED in fields(metadata, "annotations"):
            secret_fields.append(f"metadata.annotations[{LAST_APPLIED}]")
        if secret_fields:
            raise ObservationError(
                f"{path}.{secret_fields[0]}", "", "no values of Secrets; name the keys that have one in control.secrets"
            )

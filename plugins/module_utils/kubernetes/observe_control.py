# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Snapshot of the control cluster: `control` of an observation (`core/observation.py`). Nothing is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..core import api, names
from ..core.applying.inventory import KNOWN_NOTE
from ..core.applying.managed_fields import owned
from ..core.compose import constants
from ..core.compose.gateway import backend_of
from ..core.status.expected import Expected, SecretKeys, expected
from ..core.status.inference_gateway import node_addresses
from ..core.status.projection import trim
from ..core.status.workloads import any_availability, pod_failures, unsettled
from ..core.wire import Object, entries, fields, identity, text
from .client import FIELD_MANAGER, Client
from .errors import Forbidden
from .inventory import CONTROL_SCOPE
from .labelled_objects import label_selector
from .observe import (
    clock,
    deletion_warnings,
    failing_pods,
    listed,
    listed_if_allowed,
    read_inventory,
    reason,
    selectors,
    troubled_pods,
)

_KINDS = (
    ("apps/v1", "Deployment"),
    ("v1", "Service"),
    ("discovery.k8s.io/v1", "EndpointSlice"),
    (f"{constants.GATEWAY_GROUP}/v1", "HTTPRoute"),
    (f"{constants.GATEWAY_GROUP}/v1", "BackendTLSPolicy"),
)
"""Kinds of objects on the control cluster with a status that runs read."""
_GATEWAY = (f"{constants.GATEWAY_GROUP}/v1", "Gateway")
_GATEWAY_CLASS = (f"{constants.GATEWAY_GROUP}/v1", "GatewayClass")
_UNKNOWN = "callers keep the rights that they have, as it is not known which of them have keys: {}"
_CHART_LABEL = "app.kubernetes.io/name"


@dataclass(frozen=True)
class ControlSnapshot:
    """Snapshot of the control cluster."""

    entry: Mapping[str, Any]
    """Content of `control` in an observation."""
    version: str = ""
    failing_pods: Sequence[Mapping[str, Any]] = ()
    warnings: Sequence[str] = ()
    """Warnings for users."""
    requests: int = 0
    resources: Sequence[Object] = field(default=(), repr=False)
    secret_versions: Mapping[str, str] = field(default_factory=dict)
    """The resourceVersions of Secrets, to detect new values without reading them."""


def observe_control(client: Client, desired: Expected, fleet: str = "") -> ControlSnapshot:
    """Read the control cluster. Raise ApiError if it does not respond, or if permissions for fleet objects are missing.

    `desired`: the expected objects of known resources. Expected objects of discovered resources are added."""
    version = client.version()
    resources = [
        value for kind in api.KINDS.values() for value in listed(client, kind.group_version(), kind.KIND, labels="")
    ]
    expected_objects = expected(resources)
    applied_objects = [
        trim(as_applied(value)) for api_version, kind in _KINDS for value in listed(client, api_version, kind)
    ]
    endpoints = {
        text(value, "metadata", "labels", names.ENDPOINT_LABEL)
        for value in applied_objects
        if value["kind"] == "Deployment" and unsettled(value)
    }
    pods = troubled_pods(client, selectors(names.ENDPOINT_LABEL, endpoints), clock)
    kinds = (("v1", "Namespace"), ("apiextensions.k8s.io/v1", "CustomResourceDefinition"))
    cluster_scoped = [value for kind in kinds for value in listed_if_allowed(client, *kind)]
    deletions = deletion_warnings([*resources, *applied_objects, *cluster_scoped])
    gateway = desired.gateway or expected_objects.gateway
    at_gateway, controller, warnings = observe_gateway(client, gateway)
    versions: dict[str, str] = {}
    inventory, unread_inventory = read_inventory(client, fleet, CONTROL_SCOPE)
    digests = inventory.notes.get(KNOWN_NOTE) if inventory else None
    secrets, unread = _secrets(client, _merged(desired.secrets, expected_objects.secrets), versions)
    callers, unknown = _caller_keys(client, [*desired.caller_keys, *expected_objects.caller_keys], versions)
    objects = [*(trim(as_applied(value)) for value in resources), *applied_objects, *pods, *at_gateway]
    return ControlSnapshot(
        entry={
            "objects": sorted(objects, key=identity),
            "secrets": _listed_once([*secrets, *callers]),
            **({"unread": unknown} if unknown else {}),
            **({"known": digests} if digests else {}),
            "controller": controller,
        },
        version=".".join(map(str, version)),
        failing_pods=failing_pods(pods),
        warnings=[
            *client.warnings,
            *warnings,
            *unread,
            *unread_inventory,
            *deletions,
            *([_UNKNOWN.format(unknown)] if unknown else []),
        ],
        requests=sum(client.requests.values()),
        resources=resources,
        secret_versions=versions,
    )


def as_applied(value: Object) -> Object:
    """Return a composed object with only its applied fields and its status.

    Default values of the server are left out, because the next run would report them as differences. Copies of
    manifests are unchanged, because other managers can write to them."""
    labels = fields(value, "metadata", "labels")
    applied = owned(value, FIELD_MANAGER)
    if applied is None or labels.get(names.MANAGED_BY_LABEL) != names.MANAGED_BY or names.PUBLISHED_LABEL in labels:
        return value
    identity_and_status = {key: value[key] for key in ("apiVersion", "kind", "status") if key in value}
    metadata = {**fields(value, "metadata"), "labels": fields(applied, "metadata", "labels")}
    return {**applied, **identity_and_status, "metadata": metadata}


def no_control() -> ControlSnapshot:
    """Return the snapshot of a control cluster without a connection."""
    return ControlSnapshot({"unreachable": "the control cluster was not read"})


def observe_gateway(
    client: Client, desired: api.InferenceGateway | None
) -> tuple[list[Object], dict[str, Any], list[str]]:
    """Return the objects, the controller, and the read errors of the control gateway of an InferenceGateway.

    The controller is a Component in wire form. Raise ApiError."""
    objects = _gateway(client)
    controller, warnings = _controller(client, desired)
    if desired and objects and not entries(objects[0], "status", "addresses"):
        try:
            addresses = _node_addresses(client, desired)
        except Forbidden as error:
            warnings = [*warnings, f"the address of the gateway was not read: {reason(error)}"]
        else:
            controller |= {"addresses": addresses} if addresses else {}
    return [trim(value) for value in objects], controller, warnings


def _node_addresses(client: Client, desired: api.InferenceGateway) -> list[str]:
    """Return the addresses of the controller at node ports, or none for a Service of another type."""
    service_reference = backend_of(desired).own_service
    service = client.get("v1", "Service", service_reference.name, service_reference.namespace)
    if text(service, "spec", "type") != "NodePort":
        return []
    return list(node_addresses(service, client.list("v1", "Node").items, service_reference.port))


def _gateway(client: Client) -> list[Object]:
    """Return the Gateway and its GatewayClass."""
    gateway = client.get(*_GATEWAY, constants.CONTROL_GATEWAY, constants.SYSTEM_NAMESPACE)
    if gateway is None:
        return []
    class_name = text(gateway, "spec", "gatewayClassName")
    kind = client.get(*_GATEWAY_CLASS, class_name) if class_name else None
    return [gateway, *([kind] if kind else [])]


def _controller(client: Client, gateway: api.InferenceGateway | None) -> tuple[dict[str, Any], list[str]]:
    """Return the readiness of all installed components of the gateway, and read errors.

    The Deployments of a chart are found by the label that charts set (Helm documentation, "Labels and Annotations").
    """
    if gateway is None:
        return {"ready": False, "message": "there is no InferenceGateway"}, []
    missing = []
    for release in backend_of(gateway).releases(gateway):
        labels = f"{_CHART_LABEL}={release.chart}"
        try:
            deployments = client.list("apps/v1", "Deployment", namespace=release.namespace, labels=labels).items
            if not deployments:
                missing.append(f"{release.chart} is not installed in namespace {release.namespace}")
            unready = [message for value in deployments if (message := any_availability(value, value).message)]
            missing += unready
            if unready:
                pods = client.list("v1", "Pod", namespace=release.namespace, labels=labels).items
                missing += [why] if (why := pod_failures(pods)) else []
        except Forbidden as error:
            message = f"{release.chart} was not read: {reason(error)}"
            return {"ready": False, "message": message}, [message]
    return {"ready": not missing, "message": "; ".join(missing)}, []


def _merged(one: SecretKeys, other: SecretKeys) -> SecretKeys:
    return {key: one.get(key, frozenset()) | other.get(key, frozenset()) for key in {*one, *other}}


def _secrets(client: Client, desired: SecretKeys, versions: dict[str, str]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the keys of Secrets with a value, and the unreadable Secrets. Add the versions of Secrets to `versions`.

    An unreadable Secret is assumed to have the expected keys, because a missing permission must not withdraw a running
    endpoint."""
    key_entries, unread = [], []
    for key, keys in sorted(desired.items()):
        namespace, name = key
        try:
            secret = client.get("v1", "Secret", name, namespace)
        except Forbidden as error:
            unread.append(f"Secret {namespace}/{name} is taken to have {', '.join(sorted(keys))}: {reason(error)}")
            key_entries.append(_secret(key, keys))
            continue
        if secret is not None:
            key_entries.append(_secret(key, {entry for entry, value in fields(secret, "data").items() if value}))
            versions[f"{namespace}/{name}"] = text(secret, "metadata", "resourceVersion")
    return key_entries, unread


def _caller_keys(
    client: Client, callers: Iterable[Mapping[str, str]], versions: dict[str, str]
) -> tuple[list[dict[str, Any]], str]:
    """Return the labels and the names of the keys of Secrets with keys of callers, or why they could not be read. Add
    the versions of these Secrets."""
    entries_by_name: dict[str, dict[str, Any]] = {}
    for labels in sorted({label_selector(selector_labels) for selector_labels in callers}):
        try:
            listing = client.list("v1", "Secret", namespace=names.SYSTEM_NAMESPACE, labels=labels)
        except Forbidden as error:
            return [], reason(error)
        for secret in listing.items:
            name = text(secret, "metadata", "name")
            keys = {entry for entry, value in fields(secret, "data").items() if value}
            entry = _secret((names.SYSTEM_NAMESPACE, name), keys)
            entries_by_name[name] = {**entry, "labels": dict(sorted(fields(secret, "metadata", "labels").items()))}
            versions[f"{names.SYSTEM_NAMESPACE}/{name}"] = text(secret, "metadata", "resourceVersion")
    return [entries_by_name[name] for name in sorted(entries_by_name)], ""


def _listed_once(secrets: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the Secrets, sorted and without duplicates. The last entry of a Secret has priority."""
    secrets_by_key = {(entry["namespace"], entry["name"]): entry for entry in secrets}
    return [secrets_by_key[secret_key] for secret_key in sorted(secrets_by_key)]


def _secret(key: tuple[str, str], keys: Any) -> dict[str, Any]:
    namespace, name = key
    return {"namespace": namespace, "name": name, "keys": sorted(keys)}

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Snapshot of a cluster before an installation, for `core/checks`. Nothing is written.

Forbidden kinds are recorded, because they are one of the findings. Permissions are checked with the authorizer of the
API server, by reviews (authorization.k8s.io/v1) that are not stored.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ..core.checks.components import single_definitions
from ..core.checks.secrets import secrets_on_cluster
from ..core.checks.snapshot import DEFINITION, EVERYTHING, Desired, Right, Snapshot
from ..core.compose.openshift import CONSTRAINTS
from ..core.wire import Object, text
from .client import Client
from .errors import Forbidden, NotServed
from .helm_releases import definitions, recorded, releases
from .model_gateway import has_model_gateway
from .observe import reason, secret_keys, taint_rules
from .openshift import constraint_names, is_openshift

T = TypeVar("T")

_DEVICES = "resource.k8s.io/v1"
_POLICIES = "admissionregistration.k8s.io/v1"
_STORAGE = "storage.k8s.io/v1"
_GATEWAYS = "gateway.networking.k8s.io/v1"
_AT_A_TIME = 8
"""Reviews that are on their way at once, of the hundred that a credential of the fleet needs."""


def take_snapshot(client: Client, desired: Desired, recorded_in: str = "") -> Snapshot:
    """Return a snapshot with all data for the checks. `recorded_in`: as in the module helm_release_info."""
    read = _Reading(client)
    slices = [
        value
        for driver in desired.expected.drivers
        for value in read.all(_DEVICES, "ResourceSlice", fields=f"spec.driver={driver}")
    ]
    denied = _denied(client, desired.rights)
    return Snapshot(
        version=client.version(),
        devices=client.serves(_DEVICES, "ResourceClaim"),
        nodes=read.all("v1", "Node"),
        storage_classes=read.all(_STORAGE, "StorageClass"),
        services=[service for service in read.all("v1", "Service") if text(service, "spec", "type") == "LoadBalancer"],
        workloads=[*read.all("apps/v1", "Deployment"), *read.all("apps/v1", "DaemonSet")],
        gateway_classes=read.all(_GATEWAYS, "GatewayClass"),
        device_classes=read.all(_DEVICES, "DeviceClass"),
        slices=slices,
        taint_rules=read.try_to("DeviceTaintRule", lambda: taint_rules(client), ()),
        namespaces=read.all("v1", "Namespace"),
        policies=read.all(_POLICIES, "ValidatingAdmissionPolicy"),
        releases=read.try_to("Secret", lambda: releases(client, time.time(), ()), []),
        definitions=read.try_to(DEFINITION, lambda: definitions(client), {}),
        recorded=read.try_to("ConfigMap", lambda: recorded(client, recorded_in), []),
        # Without permission to read Gateways, component versions stay unchanged anyway.
        has_model_gateway=read.try_to("Gateway", lambda: has_model_gateway(client), False),
        objects=read.try_to(DEFINITION, lambda: _single(client, single_definitions(desired.planned)), {}),
        denied=denied,
        openshift=_constraints(client, read) if is_openshift(client) else None,
        secrets=secret_keys(client, secrets_on_cluster(desired)),
        unread=read.unread,
    )


class _Reading:
    """Lists of one cluster, and its read errors."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.unread: dict[str, str] = {}

    def all(self, api_version: str, kind: str, **selection: str) -> Sequence[Object]:
        """Return the objects of a kind, or none if it is not served or is forbidden."""
        return self.try_to(kind, lambda: self._client.list(api_version, kind, **selection).items, ())

    def try_to(self, kind: str, action: Callable[[], T], otherwise: T) -> T:
        try:
            return action()
        except NotServed:
            return otherwise
        except Forbidden as error:
            self.unread.setdefault(kind, reason(error).partition(". ")[0])
            return otherwise


def _single(client: Client, names: Iterable[str]) -> dict[str, Object]:
    objects_by_name = {name: client.get("apiextensions.k8s.io/v1", DEFINITION, name) for name in names}
    return {name: value for name, value in objects_by_name.items() if value is not None}


def _denied(client: Client, rights: Sequence[Right]) -> frozenset[Right]:
    """Return the rights that are denied. Where everything is allowed, single rights are not asked for."""
    if _may(client, EVERYTHING):
        return frozenset()
    with ThreadPoolExecutor(max_workers=_AT_A_TIME) as pool:
        allowed = list(pool.map(lambda right: _may(client, right), rights))
    return frozenset({EVERYTHING, *(right for right, may in zip(rights, allowed, strict=True) if not may)})


def _may(client: Client, right: Right) -> bool:
    resource, _slash, subresource = right.resource.partition("/")
    attributes = {"group": right.group, "resource": resource, "subresource": subresource, "verb": right.verb}
    attributes |= {"namespace": right.namespace, "name": right.name}
    resource_attributes = {key: value for key, value in attributes.items() if value}
    return client.allowed("SelfSubjectAccessReview", {"resourceAttributes": resource_attributes})


def _constraints(client: Client, read: _Reading) -> frozenset[str]:
    none: frozenset[str] = frozenset()
    return read.try_to(CONSTRAINTS[1], lambda: constraint_names(client), none)

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A controller of GatewayClasses, Gateways, HTTPRoutes and InferencePools for clusters that have none: it says what a
real one says of them, and no request ever passes.

Gateways are Programmed and get their address. A parent that is there accepts every HTTPRoute and InferencePool;
references to what is not there are not resolved (Gateway API reference, RouteConditionReason BackendNotFound), until it
is.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.modelplane.fleet.tests.kube.client import PASSING, Objects
from ansible_collections.modelplane.fleet.tests.kube.control_plane import TESTS, ControlPlane

GATEWAY = "gateway.networking.k8s.io/v1"
POOL = "inference.networking.k8s.io/v1"
KINDS_OF_CONTROL = ((GATEWAY, "GatewayClass"), (GATEWAY, "Gateway"), (GATEWAY, "HTTPRoute"))
KINDS = (*KINDS_OF_CONTROL, (POOL, "InferencePool"))
ROUTE = ("route.openshift.io/v1", "Route")
"""Of OpenShift, whose router admits every Route."""

_CONTROLLER = "test.modelplane.ai/gateways"
_SINCE = "2026-01-01T00:00:00Z"
_POOL_PARENT = {
    "group": "gateway.networking.k8s.io",
    "kind": "Gateway",
    "name": "inference-gateway",
    "namespace": "modelplane-system",
}
_PAUSE = 0.2
_OBSERVE_AGAIN = 1.0
_WATCH = 30.0
"""Seconds: after the end of a watch, and of one while something is missing that something else refers to."""

Object = dict[str, Any]


class GatewayController:
    """Acts on one cluster in threads of its own until `stop`. API servers may come and go meanwhile."""

    def __init__(self, plane: ControlPlane, address: str, kinds: Sequence[tuple[str, str]] = KINDS) -> None:
        """`kinds`: those of KINDS that the cluster serves. `delay`: seconds before each route is accepted. `addresses`:
        of Gateways, by name, that have another one."""
        self.delay = 0.0
        self.addresses: dict[str, str] = {}
        self._plane = plane
        self._address = address
        self._stopped = threading.Event()
        for each in kinds:
            threading.Thread(target=self._run, args=each, name=f"{plane.name} {each[1]}", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _run(self, api_version: str, kind: str) -> None:
        kubeconfig = self._plane.folder / f"gateways-{kind}.kubeconfig"
        shutil.copy(self._plane.folder / f"{TESTS}.kubeconfig", kubeconfig)
        objects: Objects | None = None
        unresolved = False
        while not self._stopped.wait(_PAUSE):
            # What the server refuses or does not answer now, it is asked again.
            with contextlib.suppress(*PASSING):
                objects = objects or Objects(kubeconfig)
                seconds = _OBSERVE_AGAIN if unresolved else _WATCH
                unresolved = False
                for value in objects.watch(api_version, kind, seconds):
                    if self._stopped.is_set():
                        return
                    unresolved |= not self._act(objects, value)

    def _act(self, objects: Objects, value: Object) -> bool:
        """Return whether everything is there that an object refers to."""
        if value["kind"] == "HTTPRoute":
            self._stopped.wait(self.delay)
        metadata = value["metadata"]
        missing = [reference for reference in _references(value) if objects.get(*reference) is None]
        desired = value["spec"].get("parentRefs") or () if value["kind"] == "HTTPRoute" else ()
        namespace = metadata.get("namespace", "")
        # No one reports for a Gateway that is not there.
        parents = [
            each
            for each in desired
            if objects.get(GATEWAY, "Gateway", each["name"], each.get("namespace") or namespace)
        ]
        status = self._status(value, parents, f"{missing[0][1]} {missing[0][2]} is not there" if missing else "")
        if status != value.get("status"):
            change = {"status": status}
            objects.patch(
                value["apiVersion"],
                value["kind"],
                metadata["name"],
                change,
                namespace,
                subresource="status",
            )
        return not missing and len(parents) == len(desired)

    def _status(self, value: Object, parents: Sequence[Object], message: str) -> Object:
        metadata = value["metadata"]
        generation = metadata["generation"]
        if value["kind"] == "GatewayClass":
            return {"conditions": [_condition("Accepted", generation)]}
        if value["kind"] == "Gateway":
            return {
                "addresses": [{"type": "IPAddress", "value": self.addresses.get(metadata["name"], self._address)}],
                "conditions": [_condition(kind, generation) for kind in ("Accepted", "Programmed")],
            }
        if value["kind"] == "Route":
            host = value["spec"].get("host", "gateway.apps.example.com")
            admitted = {"type": "Admitted", "status": "True", "lastTransitionTime": _SINCE}
            return {"ingress": [{"host": host, "routerName": "default", "conditions": [admitted]}]}
        conditions = [_condition("Accepted", generation), _condition("ResolvedRefs", generation, message)]
        if value["kind"] == "InferencePool":
            return {"parents": [{"parentRef": _POOL_PARENT, "conditions": conditions}]}
        return {
            "parents": [
                {"parentRef": parent, "controllerName": _CONTROLLER, "conditions": conditions} for parent in parents
            ]
        }


def _references(value: Object) -> Iterator[tuple[str, str, str, str]]:
    """Yield what an HTTPRoute or an InferencePool leads to: API version, kind, name, namespace."""
    namespace = value["metadata"].get("namespace", "")
    if value["kind"] == "InferencePool":
        yield "v1", "Service", value["spec"]["endpointPickerRef"]["name"], namespace
        return
    for rule in value["spec"].get("rules") or ():
        for reference in rule.get("backendRefs") or ():
            kind = reference.get("kind", "Service")
            version = POOL if kind == "InferencePool" else "v1"
            yield version, kind, reference["name"], reference.get("namespace") or namespace


def _condition(kind: str, generation: int, message: str = "") -> Mapping[str, Any]:
    return {
        "type": kind,
        "status": "False" if message else "True",
        "reason": "BackendNotFound" if message else kind,
        "message": message,
        "lastTransitionTime": _SINCE,
        "observedGeneration": generation,
    }

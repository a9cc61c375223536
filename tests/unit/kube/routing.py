# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Routes on a real API server, policies on them, and what controllers would make of them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.change.routes import weighted_backends
from ansible_collections.modelplane.fleet.plugins.module_utils.core.progress import Progress, Seen
from ansible_collections.modelplane.fleet.tests.kube.control_plane import GATEWAY_API
from ansible_collections.modelplane.fleet.tests.kube.model_gateways import definitions
from ansible_collections.modelplane.fleet.tests.unit.kube.places import SYSTEM, Object, Place, thing

GATEWAY = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "gateway"}
BACKEND = {"group": "gateway.envoyproxy.io", "kind": "Backend"}
BEHIND = [{"name": "cluster-gateway", "namespace": SYSTEM}]
WEB = {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "web"}


@pytest.fixture
def routed(place: Place) -> Place:
    place.plane.install_crds(GATEWAY_API)
    place.client.forget_discovery()
    return place


@pytest.fixture
def ai_routed(routed: Place, tmp_path: Path) -> Iterator[Place]:
    for each in definitions():
        if each["spec"]["names"]["kind"] in ("AIGatewayRoute", "BackendTrafficPolicy", "SecurityPolicy"):
            (tmp_path / f"{each['metadata']['name']}.json").write_text(json.dumps(each))
    routed.plane.install_crds(tmp_path)
    routed.client.forget_discovery()
    yield routed
    # As the garbage collector does after AIGatewayRoutes.
    for name in ("web", "behind"):
        routed.plane.objects.delete("gateway.networking.k8s.io/v1", "HTTPRoute", name, routed.namespace)


def ai_route(place: Place, *to: str, name: str = "web", **spec: Any) -> Object:
    """Return an AIGatewayRoute with a rule for these backends."""
    spec = {"rules": [{"backendRefs": [{"name": each, "weight": 1} for each in to]}] if to else [], **spec}
    return thing("aigateway.envoyproxy.io/v1beta1", "AIGatewayRoute", name, place.namespace, spec=spec)


def way(place: Place, *to: str, name: str = "behind") -> Object:
    """Return an AIGatewayRoute behind the cluster gateway."""
    return ai_route(place, *to, name=name, parentRefs=BEHIND)


def write(place: Place, *to: str, name: str = "web", **spec: Any) -> None:
    """Write the HTTPRoute of the AI gateway, without our label, for a version with these serving backends."""
    live = place.get(ai_route(place, name=name))
    slots = weighted_backends(live) if live and leads_to(place, name) == [*to] else [(each, 1) for each in to]
    written = route(place, backendRefs=[{**BACKEND, "name": each, "weight": weight} for each, weight in slots])
    del written["metadata"]["labels"]
    written["metadata"]["name"] = name
    written["spec"].update(spec)
    place.plane.objects.apply(written)


def route(place: Place, to: str = "web", **rule: Any) -> Object:
    rules = [{"backendRefs": [{"name": to, "port": 80}], **rule}]
    spec = {"parentRefs": [{"name": "gateway", "namespace": SYSTEM}], "rules": rules}
    return thing("gateway.networking.k8s.io/v1", "HTTPRoute", "web", place.namespace, spec=spec)


def following(work: Callable[[], None]) -> tuple[Progress, list[str]]:
    """A gateway's controller that works as soon as it is waited for, and what that was."""
    waited: list[str] = []

    @contextlib.contextmanager
    def progress(_cluster: str, awaited: str, _usual: str = "") -> Iterator[Seen]:
        waited.append(awaited)

        def seen(_text: str) -> None:
            if waited[-1] == awaited:
                work()
            waited.append("asked")

        yield seen

    return progress, waited


def report(place: Place, name: str = "web") -> None:
    """Report as a controller does that it has processed a route as it is."""
    there = place.plane.objects.get("gateway.networking.k8s.io/v1", "HTTPRoute", name, place.namespace)
    assert there
    common = {"status": "True", "message": "", "lastTransitionTime": "2026-03-05T10:00:00Z"}
    common["observedGeneration"] = there["metadata"]["generation"]
    parent = {
        "parentRef": there["spec"]["parentRefs"][0],
        "controllerName": "example.com/gateway",
        "conditions": [{"type": kind, "reason": kind, **common} for kind in ("Accepted", "ResolvedRefs")],
    }
    place.plane.objects.patch(
        "gateway.networking.k8s.io/v1",
        "HTTPRoute",
        name,
        {"status": {"parents": [parent]}},
        place.namespace,
        subresource="status",
    )


def leads_to(place: Place, name: str = "web") -> list[str]:
    """Return the backends to which an AIGatewayRoute sends requests."""
    there = place.get(ai_route(place, name=name))
    assert there
    return [backend for backend, weight in weighted_backends(there) if weight]


def limits(place: Place, *units: str, requests: int = 5) -> Object:
    """Return a policy on the route with a limit for each of these units of time."""
    rules = [{"limit": {"requests": requests, "unit": unit}} for unit in units]
    spec: Object = {"targetRefs": [WEB], "mergeType": "StrategicMerge", "retry": {"numRetries": 2}}
    spec |= {"rateLimit": {"type": "Global", "global": {"rules": rules}}} if rules else {}
    return thing("gateway.envoyproxy.io/v1alpha1", "BackendTrafficPolicy", "web", place.namespace, spec=spec)


def limited(place: Place) -> list[str]:
    there = place.get(limits(place))
    rules = there["spec"].get("rateLimit", {"global": {"rules": []}})["global"]["rules"] if there else []
    return [f"{rule['limit']['requests']} per {rule['limit']['unit']}" for rule in rules]

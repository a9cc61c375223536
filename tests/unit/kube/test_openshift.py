# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Kinds of OpenShift on a real API server: what is recognised, who may use which constraints, the host of a Route."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks.snapshot import desired_of
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.openshift import (
    engine_bindings,
    engine_rights,
    stack_bindings,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.workload_cluster import workload_namespace
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.workload_gateway import (
    GatewayChoices,
    gateway_objects,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import parse
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.expected import ExpectedCluster
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.inference_cluster import (
    gateway_address,
    gateway_url,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import Connection, connect
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import Forbidden
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.observe import (
    ClusterSnapshot,
    observe_cluster,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.snapshot import take_snapshot
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.waiting import wait_ready
from ansible_collections.modelplane.fleet.tests.kube.control_plane import GATEWAY_API, ControlPlane
from ansible_collections.modelplane.fleet.tests.unit.kube.places import Place, actions, written
from ansible_collections.modelplane.fleet.tests.unit.kube.rights import given

DEFINITIONS = Path(__file__).parents[2] / "data" / "openshift"
GATEWAY = ("gateway.networking.k8s.io/v1", "Gateway", "inference-gateway", "modelplane-system")
ROUTE = ("route.openshift.io/v1", "Route", "inference-gateway", "envoy-gateway-system")
HOST = "inference-gateway-envoy-gateway-system.apps.example.com"
SPACE = str(workload_namespace("ml-team")["metadata"]["name"])


def may_use(client: Client, constraint: str, namespace: str, account: str = "default") -> bool:
    """Return the answer to what the admission of OpenShift asks about the ServiceAccount of a pod."""
    accounts = "system:serviceaccounts"
    review = {
        "user": f"system:serviceaccount:{namespace}:{account}",
        "groups": [accounts, f"{accounts}:{namespace}", "system:authenticated"],
        "resourceAttributes": {
            "group": "security.openshift.io",
            "resource": "securitycontextconstraints",
            "verb": "use",
            "name": constraint,
            "namespace": namespace,
        },
    }
    return client.allowed("SubjectAccessReview", review)


def observed(client: Client) -> ClusterSnapshot:
    return observe_cluster(client, ExpectedCluster("east"))


def address(found: ClusterSnapshot) -> tuple[str, str]:
    """The address and the URL that the status of the cluster gets."""
    cluster = parse({"clusters": {"east": dict(found.entry)}}).clusters["east"]
    return gateway_address(None, cluster), gateway_url(None, cluster)


def named(namespace: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}


def routed(**choices: Any) -> list[dict[str, Any]]:
    """The Gateway and the Route; Envoy Gateway has kinds of its own for the rest."""
    found = gateway_objects(GatewayChoices(exposure="Route", **choices))
    return [value for value in found if value["kind"] in ("Gateway", "Route")]


def test_other_clusters_get_no_request_for_kinds_of_openshift(cluster: ControlPlane, client: Client) -> None:
    since = cluster.audit_position()
    assert take_snapshot(client, desired_of("east", ())).openshift is None
    assert "openshift" not in observed(client).entry
    assert not [each for each in cluster.requests(since) if "openshift" in each.group]


@pytest.fixture(scope="module")
def openshift(cluster: ControlPlane) -> Iterator[ControlPlane]:
    cluster.install_crds(DEFINITIONS, GATEWAY_API / "gateways.gateway.networking.k8s.io.json")
    for name in ("nonroot-v2", "privileged"):
        constraint, role = engine_rights("modelplane-engines")
        cluster.apply({**constraint, "metadata": {"name": name}})
        (rule,) = role["rules"]
        role = {**role, "metadata": {"name": f"system:openshift:scc:{name}"}}
        cluster.apply({**role, "rules": [{**rule, "resourceNames": [name]}]})
    yield cluster
    for name in ("routes.route.openshift.io", "securitycontextconstraints.security.openshift.io"):
        cluster.objects.delete("apiextensions.k8s.io/v1", "CustomResourceDefinition", name)
    for name in ("nonroot-v2", "privileged"):
        cluster.objects.delete("rbac.authorization.k8s.io/v1", "ClusterRole", f"system:openshift:scc:{name}")


@pytest.fixture(scope="module")
def fresh(openshift: ControlPlane, client: Client) -> Client:
    del openshift
    client.forget_discovery()
    return client


def test_it_is_recognised_and_lists_its_constraints(fresh: Client) -> None:
    assert take_snapshot(fresh, desired_of("east", ())).openshift == {"nonroot-v2", "privileged"}
    assert observed(fresh).entry["openshift"] is True


def test_engines_may_use_their_constraint_in_their_namespace_alone(place: Place, fresh: Client) -> None:
    space = str(workload_namespace(place.namespace)["metadata"]["name"])
    objects = [named(space), *engine_rights("modelplane-engines"), *engine_bindings([place.namespace])]
    place.apply(objects, check_mode=True)
    assert place.plane.get("rbac.authorization.k8s.io/v1", "ClusterRole", "modelplane-engines") is None
    applied = place.apply(objects)
    assert actions(applied)["RoleBinding/modelplane-engines"] == "created"
    assert actions(applied)["SecurityContextConstraints/modelplane-engines"] == "created"
    place.plane.wait_for("it counts", lambda: may_use(fresh, "modelplane-engines", space) or None)
    assert not may_use(fresh, "modelplane-engines", space, "picker")
    assert not may_use(fresh, "modelplane-engines", "kube-system")
    assert not may_use(fresh, "privileged", space)
    assert take_snapshot(fresh, desired_of("east", ())).openshift == {"modelplane-engines", "nonroot-v2", "privileged"}

    since = place.plane.audit_position()
    assert not place.apply(objects).changed
    assert written(place, since) == {}
    removed = actions(place.apply([]))
    assert {removed[name] for name in removed if name.endswith("modelplane-engines")} == {"deleted"}
    assert place.plane.get("security.openshift.io/v1", "SecurityContextConstraints", "modelplane-engines") is None


def test_pods_of_the_stack_may_use_one_constraint_each(place: Place, fresh: Client) -> None:
    other = f"{place.namespace}-nodes"
    place.apply([*map(named, (place.namespace, other)), *stack_bindings((place.namespace, other), {other})])
    place.plane.wait_for("it counts", lambda: may_use(fresh, "privileged", other, "driver") or None)
    place.plane.wait_for("that too", lambda: may_use(fresh, "nonroot-v2", place.namespace, "controller") or None)
    assert not may_use(fresh, "privileged", place.namespace, "controller")
    assert not may_use(fresh, "nonroot-v2", other, "driver")


def test_the_rights_of_the_fleet_let_it_bind_the_constraint_of_engines_and_no_other(openshift: ControlPlane) -> None:
    config = openshift.user_kubeconfig("fleet", groups=["modelplane:workload-cluster"])
    with given(openshift, "workload-cluster"):
        with connect(Connection("east", kubeconfig=str(config), retries=1), write_cache=False) as fleet:
            namespace = workload_namespace("ml-team")
            (binding,) = engine_bindings(["ml-team"])
            openshift.wait_for("the rights count", lambda: fleet.allowed(*_ask("create", "namespaces")) or None)
            fleet.apply(namespace)
            fleet.apply(binding)
            with pytest.raises(Forbidden):
                fleet.apply({**binding, "metadata": {**binding["metadata"], "name": "more"}} | _role("privileged"))
            assert fleet.allowed(*_ask("get", "routes", "route.openshift.io"))
            assert not fleet.allowed(*_ask("create", "routes", "route.openshift.io"))
        openshift.objects.delete("v1", "Namespace", SPACE)


def _ask(verb: str, resource: str, group: str = "") -> tuple[str, dict[str, Any]]:
    return "SelfSubjectAccessReview", {"resourceAttributes": {"verb": verb, "resource": resource, "group": group}}


def _role(constraint: str) -> dict[str, Any]:
    name = f"system:openshift:scc:{constraint}"
    return {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}}


def test_the_host_of_an_admitted_route_is_the_address_of_the_gateway(place: Place, fresh: Client) -> None:
    plane = place.plane
    namespace = named("envoy-gateway-system")
    objects = [namespace, *routed()]
    assert actions(place.apply(objects, check_mode=True))["Route/inference-gateway"] == "created"
    assert plane.get(*ROUTE) is None
    place.apply(objects)
    # As Envoy Gateway does for a Service without a load balancer.
    status = {"status": {"addresses": [{"type": "IPAddress", "value": "172.30.0.10"}]}}
    plane.objects.patch(*GATEWAY[:3], status, GATEWAY[3], subresource="status")
    found = observed(fresh)
    assert (found.gateway, address(found)) == ("", ("", ""))
    where = "Route envoy-gateway-system/inference-gateway"
    assert f"{where}: no router has admitted it yet" in found.entry["stack"]["message"]

    plane.objects.patch(*ROUTE[:3], admission("False", "HostAlreadyClaimed"), ROUTE[3], subresource="status")
    (state,) = wait_ready(fresh, [value for value in objects if value["kind"] == "Route"], 0).values()
    assert (state.ready, state.message) == (False, "a router refuses it (HostAlreadyClaimed)")

    plane.objects.patch(*ROUTE[:3], admission("True"), ROUTE[3], subresource="status")
    (state,) = wait_ready(fresh, [value for value in objects if value["kind"] == "Route"], 0).values()
    assert state.ready
    found = observed(fresh)
    assert (found.gateway, address(found)) == (HOST, (HOST, ""))
    assert not place.apply(objects).changed

    tls = routed(route={"tls": {"termination": "edge", "certificate": "PEM"}})
    place.apply([namespace, *tls])
    found = observed(fresh)
    assert address(found) == (HOST, f"https://{HOST}")
    assert "PEM" not in str(found.entry)

    kept = [value for value in objects if value["kind"] != "Route"]
    assert actions(place.apply(kept))["Route/inference-gateway"] == "deleted"
    assert plane.get(*ROUTE) is None
    assert f"{where}: it is not there" in observed(fresh).entry["stack"]["message"]


def admission(status: str, reason: str = "") -> dict[str, Any]:
    condition = {"type": "Admitted", "status": status, **({"reason": reason} if reason else {})}
    return {"status": {"ingress": [{"host": HOST, "routerName": "default", "conditions": [condition]}]}}

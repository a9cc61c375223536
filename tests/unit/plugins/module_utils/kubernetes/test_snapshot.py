# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Snapshots of a cluster before anything is installed: what is asked, and what becomes of refusals."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks.snapshot import EVERYTHING, Right
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import (
    ApiError,
    ConnectionInvalid,
    Forbidden,
    Unreachable,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.snapshot import take_snapshot
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.checks.places import (
    NVIDIA,
    RIGHTS,
    balancer,
    desired,
    node,
    resource_slice,
    thing,
)
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.kubernetes.memory import MemoryClient
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.kubernetes.scripted import (
    Reply,
    Request,
    Server,
    status,
)

OPENSHIFT = ("SecurityContextConstraints",)
AUTHORIZATION = {
    "kind": "APIResourceList",
    "groupVersion": "authorization.k8s.io/v1",
    "resources": [
        {"name": f"{kind.lower()}s", "kind": kind, "namespaced": False, "verbs": ["create"]}
        for kind in ("SelfSubjectAccessReview", "SubjectAccessReview")
    ],
}


class Authorizing(MemoryClient):
    """Answers reviews as well: `refused` are (verb, resource) of our own."""

    def __init__(
        self,
        objects: Iterable[Object] = (),
        refused: Iterable[tuple[str, str]] = (),
        unserved: Iterable[str] = OPENSHIFT,
        failures: Mapping[str, ApiError] | None = None,
    ) -> None:
        super().__init__(objects, unserved, failures)
        self.refused = set(refused)
        self.reviews: list[tuple[str, Mapping[str, Any]]] = []

    def allowed(self, kind: str, spec: Mapping[str, Any]) -> bool:
        self.reviews.append((kind, spec))
        if kind in self.failures:
            raise self.failures[kind]
        attributes = spec["resourceAttributes"]
        return (attributes["verb"], attributes["resource"]) not in self.refused


def forbidden(kind: str) -> Forbidden:
    return Forbidden(f"may not list {kind}. Ask the admin", cluster="east", action=f"list {kind}")


def test_what_is_there_is_seen() -> None:
    definition = thing(
        "CustomResourceDefinition",
        "gateways.gateway.networking.k8s.io",
        "apiextensions.k8s.io/v1",
        annotations={"meta.helm.sh/release-name": "mesh", "meta.helm.sh/release-namespace": "mesh"},
    )
    record = thing("ConfigMap", "stack", namespace="modelplane-system", data={"releases": "mp-lws\nmp-x"})
    cluster = Authorizing(
        [
            node("gpu-0", "gpu"),
            balancer("web", "192.0.2.1"),
            thing("Service", "plain", namespace="web", spec={"type": "ClusterIP"}),
            resource_slice("gpu-0"),
            resource_slice("gpu-0", driver="other.example.com"),
            definition,
            record,
        ]
    )
    snapshot = take_snapshot(cluster, desired(), "modelplane-system/stack")
    assert snapshot.version == (1, 36)
    assert [value["metadata"]["name"] for value in snapshot.services] == ["web"]
    assert [value["spec"]["driver"] for value in snapshot.slices] == [NVIDIA]
    assert snapshot.definitions == {"gateways.gateway.networking.k8s.io": "mesh/mesh"}
    assert snapshot.objects["gateways.gateway.networking.k8s.io"] == definition
    assert snapshot.recorded == ["mp-lws", "mp-x"]
    assert (snapshot.openshift, snapshot.unread, snapshot.denied) == (None, {}, frozenset())


def test_who_may_do_everything_is_asked_once() -> None:
    cluster = Authorizing()
    take_snapshot(cluster, desired())
    (review,) = cluster.reviews
    everything = {"group": "*", "resource": "*", "verb": "*"}
    assert review == ("SelfSubjectAccessReview", {"resourceAttributes": everything})


def test_others_are_asked_for_each_right() -> None:
    cluster = Authorizing(refused=[("*", "*"), ("bind", "clusterroles")])
    snapshot = take_snapshot(cluster, desired())
    assert len(cluster.reviews) == len(RIGHTS) + 1
    bind = {
        Right("rbac.authorization.k8s.io", "clusterroles", "bind", "", name)
        for name in ("modelplane-engines", "modelplane-workload-cluster-secrets")
    }
    assert snapshot.denied == {EVERYTHING, *bind}
    asked = [spec["resourceAttributes"] for _, spec in cluster.reviews]
    assert {"resource": "configmaps", "verb": "update", "namespace": "modelplane-system"} in asked


def test_a_subresource_is_asked_for_as_one() -> None:
    cluster = Authorizing(refused=[("*", "*")])
    take_snapshot(cluster, desired(rights=(Right("", "pods/log", "get"),)))
    assert cluster.reviews[1][1] == {"resourceAttributes": {"resource": "pods", "subresource": "log", "verb": "get"}}


@pytest.mark.parametrize("kind", ["Node", "Secret", "StorageClass", "CustomResourceDefinition", "ResourceSlice"])
def test_what_may_not_be_read_is_noted_and_the_rest_is_seen(kind: str) -> None:
    cluster = Authorizing([node("gpu-0", "gpu"), balancer("web")], failures={kind: forbidden(kind)})
    snapshot = take_snapshot(cluster, desired())
    assert snapshot.unread == {kind: f"list {kind}: may not list {kind}"}
    assert len(snapshot.services) == 1


def test_kinds_that_are_not_served_are_none() -> None:
    snapshot = take_snapshot(
        Authorizing(unserved=[*OPENSHIFT, "GatewayClass", "ResourceSlice", "ResourceClaim"]), desired()
    )
    assert (snapshot.devices, snapshot.unread) == (False, {})


def test_a_cluster_that_does_not_answer_is_no_finding() -> None:
    with pytest.raises(Unreachable):
        take_snapshot(Authorizing(failures={"Node": Unreachable("gone", cluster="east")}), desired())


def test_openshift_is_recognised_by_its_api_group() -> None:
    constraint = thing("SecurityContextConstraints", "anyuid", "security.openshift.io/v1")
    assert take_snapshot(Authorizing([constraint], unserved=()), desired()).openshift == {"anyuid"}
    assert take_snapshot(Authorizing(), desired()).openshift is None


def test_constraints_that_may_not_be_read_are_noted() -> None:
    kind = "SecurityContextConstraints"
    snapshot = take_snapshot(Authorizing(unserved=(), failures={kind: forbidden(kind)}), desired())
    assert (snapshot.openshift, list(snapshot.unread)) == (frozenset(), [kind])


def test_a_missing_package_is_an_error_on_openshift_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    # Python refuses to import what is None there.
    monkeypatch.setitem(sys.modules, "openshift.dynamic.client", None)
    with pytest.raises(ConnectionInvalid, match=r"package openshift cannot be imported .* requirements\.txt"):
        take_snapshot(Authorizing(unserved=()), desired())
    assert take_snapshot(Authorizing(), desired()).openshift is None


@pytest.mark.integration
@pytest.mark.parametrize(("message", "allowed"), [({"allowed": True}, True), ({"allowed": False}, False), ({}, False)])
def test_reviews_are_posts_without_a_name(client: Client, server: Server, message: Any, allowed: bool) -> None:
    server.served["/apis/authorization.k8s.io/v1"] = AUTHORIZATION
    sent: list[Request] = []

    def answer(request: Request) -> Reply:
        sent.append(request)
        return Reply(201, {**request.body, "status": message})

    server.always = answer
    spec = {"resourceAttributes": {"verb": "get", "resource": "pods"}}
    assert client.allowed("SelfSubjectAccessReview", spec) is allowed
    (request,) = sent
    assert (request.method, request.path) == ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
    assert request.body == {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": spec,
    }
    assert client.requests["review"] == 1


@pytest.mark.integration
def test_a_review_that_is_refused_is_reported(client: Client, server: Server) -> None:
    server.served["/apis/authorization.k8s.io/v1"] = AUTHORIZATION
    server.script.append(Reply(403, status(403, "Forbidden", "no")))
    with pytest.raises(Forbidden, match="ask what is allowed"):
        client.allowed("SubjectAccessReview", {})

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of what a credential has to be allowed, and what is checked on OpenShift."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks import check
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks.finding import report
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks.rights import bound, needed
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks.snapshot import EVERYTHING, Right
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.expected import ExpectedCluster
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.checks.places import (
    RIGHTS,
    balancer,
    desired,
    seen,
    thing,
)

RBAC = "rbac.authorization.k8s.io/v1"
ALL = frozenset({"anyuid", "modelplane-engines", "nonroot-v2", "privileged", "restricted-v2"})
# OpenShift's own node exporter is beside the point here.
QUIET = {"values": {"prometheus": {"nodeExporter": {"enabled": False}}}}


def test_the_rights_of_the_fleet_are_those_of_its_file() -> None:
    assert Right("apps", "deployments", "patch") in RIGHTS
    assert Right("", "configmaps", "update", "modelplane-system") in RIGHTS
    assert (
        Right("rbac.authorization.k8s.io", "clusterroles", "bind", "", "modelplane-workload-cluster-secrets") in RIGHTS
    )
    # The role for Secrets is bound later, in each namespace of the fleet.
    assert not [right for right in RIGHTS if right.resource == "secrets"]


def test_rights_for_gateways_in_mode_model_are_asked_for_where_a_fleet_has_one() -> None:
    everywhere = needed(RIGHTS, ExpectedCluster("east"))
    kinds = {(right.group, right.resource) for right in RIGHTS} - {
        (right.group, right.resource) for right in everywhere
    }
    assert ("", "services/proxy") in kinds
    assert {group for group, __ in kinds if group} == {
        "aigateway.envoyproxy.io",
        "cert-manager.io",
        "discovery.k8s.io",
        "gateway.envoyproxy.io",
        "trust.cert-manager.io",
    }
    gateways = [right.verb for right in everywhere if right.resource == "gateways"]
    assert gateways == ["get", "list"]
    assert needed(RIGHTS, ExpectedCluster("east", has_cluster_gateway=True)) == RIGHTS


def test_a_role_that_is_bound_nowhere_gives_nothing() -> None:
    rules = [{"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get"]}]
    role = thing("Role", "reader", RBAC, "here", rules=rules)
    assert bound([role]) == ()
    binding = thing("RoleBinding", "reader", RBAC, "here", roleRef={"kind": "Role", "name": "reader"})
    assert bound([role, binding]) == (Right("", "pods", "get", "here"), Right("", "pods/log", "get", "here"))


@pytest.mark.parametrize(
    ("denied", "severity"),
    [
        ((), ""),
        ((EVERYTHING,), "warning"),
        ((EVERYTHING, Right("apps", "deployments", "patch")), "error"),
        (RIGHTS, ""),
    ],
    ids=["administrator", "the fleet", "less", "never without the first"],
)
def test_permissions(denied: tuple[Right, ...], severity: str) -> None:
    found = check(seen(denied=frozenset(denied)), desired())
    assert [each.severity for each in found] == ([severity] if severity else [])
    if severity == "error":
        assert "patch deployments.apps" in found[0].message


def test_who_may_not_install_need_not_where_nothing_is_installed() -> None:
    found = check(seen(denied=frozenset({EVERYTHING})), desired(planned=()))
    assert [each.check for each in found] == ["devices"]


@pytest.mark.parametrize(
    ("right", "text"),
    [
        (Right("apps", "deployments", "patch"), "patch deployments.apps"),
        (Right("", "configmaps", "update", "modelplane-system"), "update configmaps in modelplane-system"),
        (Right("a.io", "things", "bind", "", "one"), "bind things.a.io one"),
    ],
)
def test_rights_in_words(right: Right, text: str) -> None:
    assert str(right) == text


def reported(there: frozenset[str] | None, **given: Any) -> list[str]:
    found = check(seen(openshift=there), desired(choices=given.pop("choices", QUIET), **given))
    return [f"{each.severity} {each.where}: {each.message}" for each in found if each.check == "openshift"]


def test_constraints_of_engines_are_missed_until_they_are_created() -> None:
    assert reported(None) == []
    assert reported(ALL) == []
    (found,) = reported(ALL - {"modelplane-engines"})
    assert found == "error SecurityContextConstraints modelplane-engines: it is not there, and pods of engines need it"
    assert reported(ALL - {"modelplane-engines"}, grants=True) == []
    assert reported(ALL - {"modelplane-engines"}, engine_constraint="") == []


def test_constraints_of_openshift_cannot_be_created() -> None:
    own = {"engine_constraint": "anyuid", "grants": True}
    (found,) = reported(ALL - {"anyuid"}, **own)
    assert found == "error SecurityContextConstraints anyuid: it is not there, and pods of engines need it"
    assert reported(ALL, **own) == []
    (found,) = reported(ALL - {"privileged"}, grants=True)
    assert found.endswith("it is not there, and pods of node-feature-discovery, dra-driver need it")


def test_what_may_not_be_read_is_not_missed() -> None:
    found = check(seen(openshift=frozenset(), unread={"SecurityContextConstraints": "no"}), desired(choices=QUIET))
    assert not [each for each in found if each.check == "openshift"]


def test_a_route_needs_openshift_and_no_load_balancer() -> None:
    route = thing("Route", "inference-gateway", "route.openshift.io/v1", "envoy-gateway-system")
    plain = desired(choices=QUIET).planned
    routed = [{**entry, "objects": [route]} if entry["key"] == "gateway" else entry for entry in plain]
    (found,) = reported(None, planned=routed)
    assert found == "error serving_stack_gateway_exposure: it is Route, and the cluster is not OpenShift"
    assert reported(ALL, planned=routed) == []

    def warned(planned: Any) -> bool:
        found = check(seen(openshift=ALL, services=()), desired(planned=planned))
        return "load-balancer" in {each.check for each in found}

    assert (warned(plain), warned(routed)) == (True, False)


def test_openshift_has_a_node_exporter_already() -> None:
    (found,) = reported(ALL, choices={})
    assert found.startswith("error prometheus: OpenShift's own node exporter has port 9100")
    assert reported(ALL, choices={"states": {"prometheus": "provided"}}) == []


def test_the_report_has_errors_first_and_what_to_do_below_each() -> None:
    found = check(seen(version=(1, 33), services=[balancer("web")]), desired())
    assert report("onprem", found) == [
        "onprem: 1 error, 1 warning",
        "  error: API server: it is Kubernetes 1.33 and serves resource.k8s.io/v1",
        f"    {found[0].hint}",
        "  warning: Service web/web: no Service of type LoadBalancer has an address",
        f"    {found[1].hint}",
    ]
    assert report("onprem", ()) == ["onprem: nothing stands in the way"]

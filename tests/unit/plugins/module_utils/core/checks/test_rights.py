# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of what a credential has to be allowed, and what pods on OpenShift have to be."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks import check, openshift
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks.finding import report
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks.openshift import Need, bindings, needs
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks.rights import bound
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks.snapshot import EVERYTHING, OpenShift, Right
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.checks.places import (
    RIGHTS,
    balancer,
    desired,
    seen,
    thing,
)

RBAC = "rbac.authorization.k8s.io/v1"
ALL = frozenset({"anyuid", "nonroot-v2", "privileged", "restricted-v2"})
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


NEEDED = {
    ("modelplane-engines", "mp-ml-team-51733", "default"),
    ("nonroot-v2", "cert-manager", ""),
    ("nonroot-v2", "envoy-ai-gateway-system", ""),
    ("nonroot-v2", "envoy-gateway-system", ""),
    ("nonroot-v2", "lws-system", ""),
    ("nonroot-v2", "monitoring", ""),
    ("privileged", "dra-driver-nvidia-gpu", ""),
    ("privileged", "node-feature-discovery", ""),
}


def test_what_pods_need_on_openshift() -> None:
    found = needs(desired())
    assert {(need.constraint, need.namespace, need.account) for need in found} == NEEDED
    assert needs(desired(planned=(), engine_constraint="")) == ()


def test_bindings_give_what_is_needed_and_no_more() -> None:
    given = bindings(needs(desired()))
    found = {value["metadata"]["name"]: value for value in given if value["kind"] == "ClusterRoleBinding"}
    assert sorted(found) == ["modelplane-engines", "modelplane-nonroot-v2", "modelplane-privileged"]
    assert found["modelplane-privileged"]["roleRef"]["name"] == "system:openshift:scc:privileged"
    engines = found["modelplane-engines"]
    assert engines["roleRef"]["name"] == "modelplane-engines"
    assert engines["subjects"] == [{"kind": "ServiceAccount", "name": "default", "namespace": "mp-ml-team-51733"}]
    groups = {subject["name"] for subject in found["modelplane-privileged"]["subjects"]}
    assert groups == {"system:serviceaccounts:dra-driver-nvidia-gpu", "system:serviceaccounts:node-feature-discovery"}


def test_engines_may_run_as_any_user_with_what_their_pods_say() -> None:
    """As `anyuid`, which refuses pods that name a seccomp profile, so that they would run as another user."""
    given = bindings(needs(desired()))
    (constraint,) = [value for value in given if value["kind"] == "SecurityContextConstraints"]
    (role,) = [value for value in given if value["kind"] == "ClusterRole"]
    assert constraint["metadata"]["name"] == role["metadata"]["name"] == "modelplane-engines"
    assert role["rules"][0]["resourceNames"] == ["modelplane-engines"]
    assert constraint["runAsUser"] == {"type": "RunAsAny"}
    assert constraint["seccompProfiles"] == ["runtime/default"]
    assert "IPC_LOCK" in constraint["allowedCapabilities"]
    assert not any(value for key, value in constraint.items() if key.startswith("allowHost") or "Privileged" in key)
    assert not any(
        value["kind"] != "ClusterRoleBinding" for value in bindings(needs(desired(engine_constraint="anyuid")))
    )


def test_a_review_asks_for_the_account_and_its_groups() -> None:
    review = Need("anyuid", "mp-team", "default").review()
    assert review["user"] == "system:serviceaccount:mp-team:default"
    assert "system:serviceaccounts:mp-team" in review["groups"]
    assert (review["resourceAttributes"]["verb"], review["resourceAttributes"]["name"]) == ("use", "anyuid")


def reported(there: OpenShift | None, **given: Any) -> list[str]:
    found = check(seen(openshift=there), desired(choices=given.pop("choices", QUIET), **given))
    return [f"{each.severity} {each.where}: {each.message}" for each in found if each.check == "openshift"]


REFUSED = frozenset({("mp-ml-team-51733", "default", "modelplane-engines"), ("lws-system", "", "nonroot-v2")})


def test_constraints_that_pods_may_not_use_are_errors_until_they_are_granted() -> None:
    assert reported(None) == []
    assert reported(OpenShift(ALL)) == []
    assert reported(OpenShift(ALL, REFUSED)) == [
        "error SecurityContextConstraints modelplane-engines: ServiceAccounts of mp-ml-team-51733 (engines) may not "
        "use it, so their pods are refused",
        "error SecurityContextConstraints nonroot-v2: ServiceAccounts of lws-system (leader-worker-set) may not use "
        "it, so their pods are refused",
    ]
    assert reported(OpenShift(ALL, REFUSED), grants=True) == []


def test_constraints_that_are_not_there_cannot_be_granted() -> None:
    own = {"engine_constraint": "anyuid", "grants": True}
    (found,) = reported(OpenShift(ALL - {"anyuid"}), **own)
    assert found == "error SecurityContextConstraints anyuid: it is not there, and pods of engines need it"
    assert reported(OpenShift(ALL), **own) == []


def test_openshift_has_a_node_exporter_already() -> None:
    (found,) = reported(OpenShift(ALL), choices={})
    assert found.startswith("error prometheus: OpenShift's own node exporter has port 9100")
    assert reported(OpenShift(ALL), choices={"states": {"prometheus": "provided"}}) == []


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
    assert openshift.CONSTRAINTS[1] == "SecurityContextConstraints"

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""SecurityContextConstraints: who may use which, and what those of engines allow."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.openshift import (
    engine_bindings,
    engine_rights,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.workload_cluster import workload_namespace

ENGINES = "modelplane-engines"


def test_the_default_account_of_each_namespace_is_bound_to_the_role_of_engines() -> None:
    found = engine_bindings(["research", "ml-team", "research"])
    namespaces = [workload_namespace(name)["metadata"]["name"] for name in ("ml-team", "research")]
    assert [value["metadata"]["namespace"] for value in found] == namespaces
    assert {value["roleRef"]["name"] for value in found} == {ENGINES}
    for value in found:
        (subject,) = value["subjects"]
        assert (subject["name"], subject["namespace"]) == ("default", value["metadata"]["namespace"])
    assert found[0]["metadata"]["labels"]["modelplane.ai/namespace"] == "ml-team"


def test_engines_may_run_as_any_user_with_what_their_pods_say() -> None:
    """As `anyuid`, which refuses pods that name a seccomp profile, so that they would run as another user."""
    constraint, role = engine_rights(ENGINES)
    assert constraint["metadata"]["name"] == role["metadata"]["name"] == ENGINES
    assert constraint["runAsUser"] == {"type": "RunAsAny"}
    assert constraint["seccompProfiles"] == ["runtime/default"]
    assert "IPC_LOCK" in constraint["allowedCapabilities"]
    assert not any(value for key, value in constraint.items() if key.startswith("allowHost") or "Privileged" in key)
    # It is used by a binding alone.
    assert not {"users", "groups"} & set(constraint)


@pytest.mark.parametrize(
    ("constraint", "created"),
    [
        (ENGINES, {"SecurityContextConstraints", "ClusterRole"}),
        ("anyuid", {"ClusterRole"}),
        ("", set()),
    ],
)
def test_another_constraint_is_used_as_it_is(constraint: str, created: set[str]) -> None:
    found: dict[str, Any] = {value["kind"]: value for value in engine_rights(constraint)}
    assert set(found) == created
    if created:
        assert found["ClusterRole"]["metadata"]["name"] == ENGINES
        assert found["ClusterRole"]["rules"][0]["resourceNames"] == [constraint]

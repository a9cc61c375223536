# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The outage guard."""

from __future__ import annotations

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.change.outage import (
    DeploymentChange,
    ServiceChange,
    outages,
)


def deployment(serving: str, stopping: str, accepted: str = "") -> DeploymentChange:
    reasons = dict.fromkeys(stopping, "cluster west is gone")
    return DeploymentChange("team", "chat", frozenset(serving), reasons, frozenset(accepted))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (deployment("abcd", "ab"), ""),
        (deployment("abcd", "abc"), "3 of 4 serving replicas would stop serving: cluster west is gone (a, b, c)"),
        (deployment("abcd", "abc", "a"), ""),
        (deployment("a", "a"), "the only serving replica would stop serving: cluster west is gone (a)"),
        (deployment("a", "a", "a"), ""),
        (deployment("ab", "ab"), "2 of 2 serving replicas would stop serving: cluster west is gone (a, b)"),
        (deployment("", ""), ""),
    ],
)
def test_a_deployment_keeps_half_of_its_replicas(change: DeploymentChange, message: str) -> None:
    assert [outage.message for outage in outages([change], ())] == ([message] if message else [])


@pytest.mark.parametrize(
    ("before", "after", "more", "is_outage"),
    [
        ("ab", "a", {}, False),
        ("ab", "", {}, True),
        ("ab", "", {"is_accepted": True}, False),
        ("", "", {}, False),
        ("", "", {"was_routed": True}, True),
        ("", "x", {"was_routed": True}, False),
    ],
)
def test_a_service_keeps_an_endpoint(before: str, after: str, more: dict[str, bool], is_outage: bool) -> None:
    change = ServiceChange("team", "chat", frozenset(before), frozenset(after), **more)  # type: ignore[arg-type]
    violations = list(outages((), [change]))
    assert len(violations) == is_outage
    assert all(outage.kind == "ModelService" for outage in violations)

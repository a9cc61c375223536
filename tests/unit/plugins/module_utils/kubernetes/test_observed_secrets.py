# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Secrets of workload clusters that pods refer to: an observation has the names of their keys and no values."""

from __future__ import annotations

from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import parse
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Ref
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.expected import ExpectedCluster
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.secret_references import SecretReference
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import Forbidden
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.observe import observe_cluster
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.kubernetes.memory import MemoryClient

NAMESPACE = names.workload_namespace("team")
DENIED = Forbidden("it is forbidden", cluster="east", action="get", code=403)


def reference(name: str) -> SecretReference:
    user = Ref("ModelDeployment", "team", "qwen")
    return SecretReference("east", NAMESPACE, name, frozenset(), "docker-registry", user, "imagePullSecrets")


def secret(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": NAMESPACE}, "data": data}


EAST = ExpectedCluster("east", secrets=(reference("there"), reference("gone"), reference("empty")))


def test_an_observation_has_the_keys_of_the_secrets_that_pods_name() -> None:
    client = MemoryClient(
        [secret("there", config="aHVudGVyMg=="), secret("empty", config=""), secret("other", x="eA==")]
    )
    entry = observe_cluster(client, EAST).entry
    assert entry["secrets"] == [
        {"namespace": NAMESPACE, "name": "empty", "keys": []},
        {"namespace": NAMESPACE, "name": "gone", "keys": []},
        {"namespace": NAMESPACE, "name": "there", "keys": ["config"]},
    ]
    assert "aHVudGVyMg" not in str(entry)
    assert parse({"clusters": {"east": entry}}).clusters["east"].secret_keys[NAMESPACE, "there"] == {"config"}


def test_secrets_that_may_not_be_read_are_left_out() -> None:
    snapshot = observe_cluster(MemoryClient([secret("there", config="eA==")], failures={"Secret": DENIED}), EAST)
    assert "secrets" not in snapshot.entry
    assert not [line for line in snapshot.warnings if "Secret" in line]


def test_no_secret_is_read_without_a_reference() -> None:
    client = MemoryClient([])
    assert "secrets" not in observe_cluster(client, ExpectedCluster("east")).entry
    assert not [asked for asked in client.asked if asked[1] == "Secret"]

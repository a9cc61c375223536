# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.secret_access import SecretAccess
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.write import Sender
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.kubernetes.scripted import (
    Reply,
    Server,
    config_map,
    status,
)

pytestmark = pytest.mark.integration


def test_a_run_does_not_wait_for_an_object_that_is_stuck(server: Server, client: Client) -> None:
    deletion = {"deletionTimestamp": "2020-01-01T00:00:00Z", "finalizers": ["example.com/held"], "uid": "1"}
    desired = config_map("web")
    live = {**desired, "metadata": {**desired["metadata"], **deletion}}
    server.script = [Reply(200, live)]
    result = Sender(client, SecretAccess(client, check_mode=False)).send(desired, live)
    assert result.action == "failed"
    assert "has been terminating since 2020-01-01T00:00:00Z" in result.message
    assert "example.com/held" in result.message
    assert len(server.asked) == 1


def test_an_object_whose_deletion_is_stuck_is_not_recreated(server: Server, client: Client) -> None:
    metadata = {"name": "web", "namespace": "team", "uid": "1"}
    live = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {}}
    held = {**metadata, "deletionTimestamp": "2020-01-01T00:00:00Z", "finalizers": ["example.com/held"]}
    server.served["/apis/batch/v1"] = {
        "kind": "APIResourceList",
        "groupVersion": "batch/v1",
        "resources": [{"name": "jobs", "kind": "Job", "namespaced": True, "verbs": ["get", "patch", "delete"]}],
    }
    server.script = [
        Reply(422, status(422, "Invalid", "field is immutable")),
        Reply(200, live),
        Reply(200, live),
        Reply(200, {**live, "metadata": held}),
    ]
    result = Sender(client, SecretAccess(client, check_mode=False)).send(live, live)
    assert result.action == "failed", result
    assert "example.com/held" in result.message

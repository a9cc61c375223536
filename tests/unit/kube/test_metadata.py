# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Metadata of manifests is valid only if a real API server accepts it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api import KINDS
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.crd import crd
from ansible_collections.modelplane.fleet.plugins.module_utils.core.load import Source
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases.fleet_inputs import read_manifests
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane
from kubernetes import config

KIND = KINDS["ModelEndpoint"]
OWNER = {"apiVersion": "v1", "kind": "A", "name": "a", "uid": "u"}
MANAGER = {"manager": "a", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}
TIMES = ["2026-01-31T12:00:00Z", "2026-01-31T12:00:00.5+01:00", "x", "", "2026-01-31", "2026-01-31T12:00:00", 1, None]
VALUES: dict[str, list[Any]] = {
    "name": ["a", "a.b", "A", "a_b", "", "-a", 1, None, "x" * 254, "x" * 63, "a..b"],
    "namespace": ["default", "", 1, None, "A", "a.b", "x" * 64],
    "labels": [
        *({"a": "b"}, {"A.b/c": "d"}, {"a": 1}, {"a": True}, {"a": "x" * 64}, {"a b": "c"}, {"/a": "b"}, {"": "b"}),
        *({"a": "-"}, [], "a", None, {}, {"a": []}, {"a": "b c"}, {"x" * 64: "a"}, {"a/b/c": "d"}),
    ],
    "annotations": [
        *(
            {"a": "b c"},
            {"a": 1},
            {"a b": "c"},
            {"a": "x" * 262144},
            {"a": "x" * 262143},
            [],
            "a",
            {"a": []},
            {"": "a"},
        ),
    ],
    "generateName": ["a-", "a.b-", "", "A", "a_", "x" * 300, 1, "-a", "a.", "a..b", None],
    "finalizers": [["a.b/c"], ["a"], [1], "a", [""], ["a b"], {}, ["A_b/c"], ["a/b/c"], ["x" * 300], []],
    "ownerReferences": [
        *([OWNER], [{**OWNER, "controller": True}], [{**OWNER, "controller": None}], [], [{}], [1], "a"),
        *([{**OWNER, "uid": 1}], [{**OWNER, "uid": ""}], [{**OWNER, "kind": ""}], [{**OWNER, "name": None}]),
        *([{**OWNER, "controller": "x"}], [{**OWNER, "blockOwnerDeletion": 1}], [{**OWNER, "x": 1}]),
        *([{**OWNER, "apiVersion": "a/b/c"}], [{**OWNER, "apiVersion": ""}]),
    ],
    "managedFields": [[], [MANAGER], [1], "a"],
    "creationTimestamp": TIMES,
    "deletionTimestamp": TIMES,
    "generation": [1, 0, "1", 1.5, {}],
    "deletionGracePeriodSeconds": [1, "a", 1.5],
    "uid": [1, {}],
    "selfLink": ["a", 1],
    "unknown": [1, "a"],
}


@pytest.fixture(scope="module")
def served(cluster: ControlPlane) -> Any:
    """A client of an API server that serves ModelEndpoints."""
    cluster.apply(crd(KIND))
    cluster.wait_for("the kind is served", lambda: cluster.objects.knows(KIND.group_version(), KIND.KIND))
    return config.new_client_from_config(str(cluster.kubeconfig))


def rejected(client: Any, value: Mapping[str, Any]) -> str:
    """Return why the API server rejects an object, at the path of its namespace: without a namespace there is none."""
    namespace = value["metadata"].get("namespace")
    if not isinstance(namespace, str) or not namespace:
        return "it has no namespace"
    path = f"/apis/{KIND.group_version()}/namespaces/{namespace}/modelendpoints?dryRun=All&fieldValidation=Strict"
    headers = {**client.default_headers, "Content-Type": "application/json"}
    answer = client.rest_client.request("POST", client.configuration.host + path, headers=headers, body=dict(value))
    content = json.loads(answer.read())
    return "" if answer.status in range(200, 300) else str(content["message"])


def invalid(value: Mapping[str, Any]) -> str:
    source = Source("a.yaml", yaml.safe_dump(value).encode())
    found = read_manifests([], extra_sources=[source], namespaces=True)
    return "; ".join(f"{each.path} {each.message}" for each in found.problems if each.severity == "error")


@pytest.mark.integration
@pytest.mark.parametrize("field", VALUES)
def test_what_an_api_server_rejects_is_invalid(served: Any, field: str) -> None:
    verdicts = []
    for given in VALUES[field]:
        value = {
            "apiVersion": KIND.group_version(),
            "kind": KIND.KIND,
            "metadata": {"name": "a", "namespace": "default", field: given},
            "spec": {"url": "https://api.example.com/v1"},
        }
        verdicts.append((str(given)[:60], rejected(served, value), invalid(value)))
    assert [each for each in verdicts if each[1] and not each[2]] == []
    assert [each for each in verdicts if each[1]]

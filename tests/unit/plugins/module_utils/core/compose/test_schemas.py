# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Composed objects against the schemas that Kubernetes publishes, unknown fields refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kubernetes_validate
import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import replica_objects

Make = Callable[..., dict[str, Any]]

VERSIONS = ("1.34", "1.35", "1.36")
CUSTOM_KINDS = {"LeaderWorkerSet", "InferencePool", "HTTPRoute"}
POD_FIELDS: dict[str, Any] = {
    "args": ["--model=m"],
    "env": [
        {"name": "A", "value": "{{ x }}"},
        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}},
    ],
    "resources": {"requests": {"cpu": "8", "memory": "64Gi"}, "limits": {"memory": "64Gi"}},
}


def check(document: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_built_in_kinds(make_replica: Make, pair: tuple[Any, ...], version: str) -> None:
    replicas = [
        make_replica(container=POD_FIELDS, modelCacheRef={"name": "weights"}),
        make_replica(*pair, serving={"mode": "PrefillDecode"}),
    ]
    for each in (document for replica in replicas for document in replica_objects(replica)):
        if each["kind"] not in CUSTOM_KINDS:
            check(each, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_pods_of_a_gang(make_replica: Make, make_member: Make, make_engine: Make, version: str) -> None:
    gang = make_engine("main", make_member("Leader", **POD_FIELDS), make_member("Worker", **POD_FIELDS), phase="Decode")
    replica = make_replica(gang, serving={"mode": "PrefillDecode"}, modelCacheRef={"name": "weights"})
    workload = next(each for each in replica_objects(replica) if each["kind"] == "LeaderWorkerSet")
    for template in ("leaderTemplate", "workerTemplate"):
        pod = workload["spec"]["leaderWorkerTemplate"][template]
        check({"apiVersion": "v1", "kind": "Pod", **pod}, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_check_refuses_unknown_fields(make_replica: Make, version: str) -> None:
    deployment = next(each for each in replica_objects(make_replica()) if each["kind"] == "Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["resources"]["claim"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        check(deployment, version)

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Checks of the Secrets that a cluster needs."""

from __future__ import annotations

import sys
from pathlib import Path

from ansible_collections.modelplane.fleet.plugins.module_utils.core import names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks import secrets
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks.snapshot import Snapshot, desired_of

sys.path.insert(0, str(Path(__file__).parent))

from places import MODELS, Object, inference_cluster, thing

TEAM = names.workload_namespace("team")


def deployment() -> Object:
    pod = {"containers": [{"name": "engine", "image": "vllm"}], "imagePullSecrets": [{"name": "registry"}]}
    selector = {"devices": [{"name": "gpu", "selectors": [{"cel": "true"}]}]}
    members = [{"role": "Standalone", "nodeSelector": selector, "template": {"spec": pod}}]
    template = {"spec": {"engines": [{"name": "main", "members": members}]}}
    return thing("ModelDeployment", "qwen", MODELS, "team", spec={"replicas": 1, "template": template})


def cache() -> Object:
    source = {"repo": "a/b", "sizeGiB": 4, "authSecret": {"name": "hf"}}
    return thing("ModelCache", "weights", MODELS, "team", spec={"source": "HuggingFace", "huggingFace": source})


def test_missing_secrets_are_warnings_with_the_command() -> None:
    pool = {"name": "gpu", "className": "h100", "nodeCount": 1}
    resources = [inference_cluster(pool), deployment(), cache()]
    name = resources[0]["metadata"]["name"]
    desired = desired_of(name, resources, control_secrets={("team", "hf"): frozenset()})
    found = list(secrets.findings(Snapshot(secrets={(TEAM, "registry"): frozenset()}), desired))
    assert [(each.severity, each.where) for each in found] == [
        ("warning", "Secret team/hf"),
        ("warning", f"Secret {TEAM}/registry"),
    ]
    assert found[0].message.startswith("does not exist on the control cluster, and ModelCache team/weights")
    assert "kubectl -n team create secret generic hf --from-file=HF_TOKEN=FILE" in found[0].hint
    assert f"kubectl -n {TEAM} create secret docker-registry registry" in found[1].hint


def test_unread_and_existing_secrets_have_no_finding() -> None:
    pool = {"name": "gpu", "className": "h100", "nodeCount": 1}
    resources = [inference_cluster(pool), deployment(), cache()]
    name = resources[0]["metadata"]["name"]
    there = {(TEAM, "registry"): frozenset({".dockerconfigjson"})}
    for snapshot in (Snapshot(), Snapshot(secrets=there)):
        assert not list(secrets.findings(snapshot, desired_of(name, resources)))

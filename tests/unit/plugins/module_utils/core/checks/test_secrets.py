# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Checks of the Secrets that a cluster needs."""

from __future__ import annotations

from ansible_collections.modelplane.fleet.plugins.module_utils.core import names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks import secrets
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks.snapshot import Snapshot, desired_of
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.checks.places import (
    MODELS,
    Object,
    desired,
    inference_cluster,
    seen,
    thing,
)

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


PLANNED = [
    {"key": "cert-manager", "why": "", "namespace": "cert-manager"},
    {"key": "prometheus", "why": "disabled", "namespace": "monitoring"},
    {
        "key": "gateway",
        "why": "",
        "objects": [
            thing(
                "Gateway",
                "inference-gateway",
                "gateway.networking.k8s.io/v1",
                "modelplane-system",
                spec={
                    "listeners": [
                        {"name": "http", "port": 80, "protocol": "HTTP"},
                        {
                            "name": "https",
                            "port": 443,
                            "protocol": "HTTPS",
                            "tls": {"certificateRefs": [{"name": "own"}, {"name": "shared", "namespace": "tls"}]},
                        },
                    ]
                },
            )
        ],
    },
]


def test_certificates_of_the_gateway_of_the_stack_are_checked() -> None:
    cluster = desired(planned=PLANNED)
    places = {("modelplane-system", "own"), ("tls", "shared")}
    assert secrets.secrets_on_cluster(cluster) == places
    (own, shared) = secrets.findings(seen(secrets=dict.fromkeys(places, frozenset())), cluster)
    assert own.message.startswith("does not exist on cluster onprem, and Gateway modelplane-system/inference-gateway")
    assert "`kubectl -n modelplane-system create secret tls own --cert=FILE --key=FILE`" in own.hint
    assert (shared.where, "kubectl -n tls create secret tls shared" in shared.hint) == ("Secret tls/shared", True)


def test_image_pull_secrets_of_the_stack_are_checked_in_all_its_namespaces() -> None:
    cluster = desired(planned=PLANNED[:2], pull_secrets=["mirror"])
    namespaces = ("cert-manager", "default", "modelplane-system")
    assert secrets.secrets_on_cluster(cluster) == {(namespace, "mirror") for namespace in namespaces}
    missing = {(namespace, "mirror"): frozenset[str]() for namespace in namespaces}
    missing["default", "mirror"] = frozenset({".dockerconfigjson"})
    (found,) = secrets.findings(seen(secrets=missing), cluster)
    assert (found.severity, found.where) == ("warning", "Secret mirror")
    assert found.message == (
        "does not exist in cert-manager, modelplane-system, and serving_stack_image_pull_secrets refers to it"
    )
    assert found.hint == (
        "Set serving_stack_image_pull_config to create it, or create it in each namespace: "
        "`kubectl -n cert-manager create secret docker-registry mirror --from-file=.dockerconfigjson=FILE`"
    )
    assert not list(secrets.findings(seen(), cluster))


def test_without_a_stack_no_image_pull_secret_is_checked() -> None:
    assert not secrets.secrets_on_cluster(desired(planned=(), pull_secrets=["mirror"]))

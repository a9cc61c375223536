# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""References to Secrets, and the commands that create missing Secrets."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api, names, observation
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.expected import expected
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.secret_references import (
    MissingSecret,
    control_references,
    missing_secrets,
    observed_keys,
    replica_references,
)

TEAM = names.workload_namespace("team")
SYSTEM = "modelplane-system"


def resource(kind: str, name: str, spec: dict[str, Any], namespace: str = "", **labels: str) -> dict[str, Any]:
    metadata = {
        "name": name,
        **({"namespace": namespace} if namespace else {}),
        **({"labels": labels} if labels else {}),
    }
    return {"apiVersion": "modelplane.ai/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


CACHE = resource(
    "ModelCache",
    "weights",
    {"source": "HuggingFace", "huggingFace": {"repo": "a/b", "sizeGiB": 4, "authSecret": {"name": "hf"}}},
    "team",
)
KEY = {"apiKey": {"secretRef": {"name": "together", "key": "apiKey"}}}
ENDPOINT = resource("ModelEndpoint", "together", {"url": "https://api.example.com/", "credential": KEY}, "team")
MODEL = resource("InferenceGateway", "edge", {"clusterName": "east", "tls": {"certificateRefs": [{"name": "chat"}]}})
LISTENERS = [
    {
        "name": "https",
        "protocol": "HTTPS",
        "tls": {"certificateRefs": [{"name": "own"}, {"name": "x", "namespace": "y"}]},
    }
]
PATH = resource(
    "InferenceGateway", "default", {"backend": "Traefik", "traefik": {"version": "40.2.0"}, "listeners": LISTENERS}
)
TOKEN = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "tools", "key": "token"}}}
LENIENT = {"name": "MAYBE", "valueFrom": {"secretKeyRef": {"name": "maybe", "key": "k", "optional": True}}}
PLAIN = {"name": "PLAIN", "value": "x"}


def pod(*variables: dict[str, Any], pull: str = "registry") -> dict[str, Any]:
    container = {"name": "engine", "image": "vllm", "env": list(variables)}
    return {"spec": {"containers": [container], **({"imagePullSecrets": [{"name": pull}]} if pull else {})}}


def replica(template: dict[str, Any], **labels: str) -> dict[str, Any]:
    requests = [{"name": "gpu", "deviceClassName": "gpu.nvidia.com", "count": 1}]
    members = [{"nodePoolName": "gpu", "deviceRequests": requests, "template": template}]
    spec = {"clusterName": "east", "engines": [{"name": "main", "members": members}]}
    return resource("ModelReplica", "qwen-1", spec, "team", **labels)


def deployment(template: dict[str, Any], **labels: str) -> dict[str, Any]:
    selector = {"devices": [{"name": "gpu", "selectors": [{"cel": "true"}]}]}
    engines = [{"name": "main", "members": [{"role": "Standalone", "nodeSelector": selector, "template": template}]}]
    chosen = {"clusterSelector": {"matchLabels": labels}} if labels else {}
    return resource(
        "ModelDeployment", "qwen", {"replicas": 1, "template": {"spec": {"engines": engines, **chosen}}}, "team"
    )


def cluster(name: str, **labels: str) -> dict[str, Any]:
    existing = {"source": "Existing", "existing": {"secretRef": {"name": name}}}
    spec = {"cluster": existing, "nodePools": [{"name": "gpu", "className": "l4", "nodeCount": 1}]}
    return resource("InferenceCluster", name, spec, **labels)


def missing(document: dict[str, Any], **control: list[str]) -> list[MissingSecret]:
    """The missing Secrets of a resource, if these Secrets of namespace team are on the control cluster."""
    secrets = [{"namespace": "team", "name": name, "keys": keys} for name, keys in control.items()]
    empty = [{"namespace": TEAM, "name": name, "keys": []} for name in ("registry", "tools", "maybe")]
    clusters = {"east": {"objects": [], "secrets": empty}}
    observed = observation.parse({"control": {"objects": [], "secrets": secrets}, "clusters": clusters})
    parsed = api.parse(document)
    references = replica_references(parsed) if isinstance(parsed, api.ModelReplica) else control_references(parsed)
    return missing_secrets(references, observed_keys(observed))


@pytest.mark.parametrize(
    ("document", "command", "user"),
    [
        (
            CACHE,
            "kubectl -n team create secret generic hf --from-file=HF_TOKEN=FILE",
            "ModelCache team/weights (spec.huggingFace.authSecret)",
        ),
        (
            ENDPOINT,
            "kubectl -n team create secret generic together --from-file=apiKey=FILE",
            "ModelEndpoint team/together (spec.credential.apiKey.secretRef)",
        ),
        (
            MODEL,
            f"kubectl -n {SYSTEM} create secret tls chat --cert=FILE --key=FILE",
            "InferenceGateway edge (spec.tls.certificateRefs)",
        ),
        (
            PATH,
            f"kubectl -n {SYSTEM} create secret tls own --cert=FILE --key=FILE",
            "InferenceGateway default (spec.listeners[].tls.certificateRefs)",
        ),
        (
            replica(pod(PLAIN)),
            f"kubectl -n {TEAM} create secret docker-registry registry --from-file=.dockerconfigjson=FILE",
            "ModelReplica team/qwen-1 (imagePullSecrets)",
        ),
        (
            replica(pod(TOKEN, LENIENT, pull=""), **{"modelplane.ai/deployment": "qwen"}),
            f"kubectl -n {TEAM} create secret generic tools --from-file=token=FILE",
            "ModelDeployment team/qwen (env TOKEN)",
        ),
    ],
)
def test_a_missing_secret_has_the_command_that_creates_it(document: dict[str, Any], command: str, user: str) -> None:
    (found,) = missing(document)
    assert (found.command, found.users, found.existing_keys) == (command, (user,), ())
    place = "cluster east" if document["kind"] == "ModelReplica" else "the control cluster"
    assert str(found) == (
        f"Secret {found.namespace}/{found.name} does not exist on {place}, and {user} needs it. "
        f"Create it on {place}: `{command}`"
    )


def test_a_secret_without_the_key_is_edited() -> None:
    assert missing(CACHE, hf=["HF_TOKEN"]) == []
    (found,) = missing(CACHE, hf=["token"])
    assert found.message.startswith("Secret team/hf has no key HF_TOKEN on the control cluster")
    assert found.hint == "Add the key (`kubectl -n team edit secret hf`), or refer to an existing key: token"


def test_the_state_of_other_secrets_is_unknown() -> None:
    references = [*control_references(api.parse(CACHE)), *replica_references(api.parse(replica(pod(TOKEN))))]
    unread = observation.parse({"control": {"unreachable": "no route"}, "clusters": {"east": {"objects": []}}})
    silent = observation.parse(
        {"control": {"unreachable": "no route"}, "clusters": {"east": {"unreachable": "no route"}}}
    )
    for observed in (unread, silent):
        assert missing_secrets(references, observed_keys(observed)) == []


def test_several_keys_of_a_secret_are_created_together() -> None:
    other = {**TOKEN, "name": "SECOND", "valueFrom": {"secretKeyRef": {"name": "tools", "key": "second"}}}
    (found,) = missing(replica(pod(TOKEN, other, pull="")))
    assert found.command.endswith("create secret generic tools --from-file=second=FILE --from-file=token=FILE")


def test_a_key_in_place_of_a_name_is_not_repeated() -> None:
    key = "hf_abcdefghijklmnopqrstuvwxyz0123456789"
    (found,) = missing(
        {
            **CACHE,
            "spec": {**CACHE["spec"], "huggingFace": {**CACHE["spec"]["huggingFace"], "authSecret": {"name": key}}},
        }
    )
    assert key not in str(found)


def test_secrets_are_read_where_replicas_may_be() -> None:
    fleet = [
        *(cluster("east", tier="gold"), cluster("west")),
        deployment(pod(TOKEN), tier="gold"),
        replica(pod(TOKEN, pull="old")),
    ]
    found = expected([*fleet, CACHE, ENDPOINT])
    places = {(each.namespace, each.name) for each in found.cluster("east").secrets}
    assert places == {(TEAM, "registry"), (TEAM, "tools"), (TEAM, "old")}
    assert found.cluster("west").secrets == ()
    assert found.secrets == {("team", "hf"): {"HF_TOKEN"}, ("team", "together"): {"apiKey"}}
    assert [each.name for each in found.cluster("west").control_secrets] == ["hf"]


def test_an_observation_keeps_the_secrets_of_a_cluster() -> None:
    secrets = [{"namespace": TEAM, "name": "registry", "keys": []}]
    document = {"clusters": {"east": {"objects": [], "secrets": secrets}}}
    observed = observation.parse(document)
    assert observed.clusters["east"].secret_keys == {(TEAM, "registry"): frozenset()}
    assert observation.parse(observation.wire(observed)) == observed

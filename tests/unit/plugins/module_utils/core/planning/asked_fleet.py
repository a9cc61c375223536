# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Fleets of a few clusters with one GPU per node, written shortly, to ask what would be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning import Plan, plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.question import read_question
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.what_if import Added, Answer, answer
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import Options

ANY = 'device.driver == "gpu.nvidia.com"'
CLASS = api.parse(
    {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "InferenceClass",
        "metadata": {"name": "l4"},
        "spec": {
            "devices": [
                {
                    "name": "gpu",
                    "driver": "gpu.nvidia.com",
                    "deviceClassName": "gpu.nvidia.com",
                    "capacity": {"memory": {"value": "23034Mi"}},
                }
            ]
        },
    }
)


def resource(kind: str, name: str, spec: Mapping[str, Any], **metadata: Any) -> api.Resource:
    document = {"apiVersion": "modelplane.ai/v1alpha1", "kind": kind, "metadata": {"name": name, **metadata}}
    return api.parse({**document, "spec": spec})


def cluster(name: str, region: str = "west", **pools: int | tuple[int, list[str]]) -> api.Resource:
    """A cluster with pools: their nodes, or nodes and zones."""
    written = []
    for pool, given in pools.items():
        nodes, zones = given if isinstance(given, tuple) else (given, [])
        written.append({"name": pool, "className": "l4", "nodeCount": nodes, **({"zones": zones} if zones else {})})
    source = {"source": "Existing", "existing": {"secretRef": {"name": name}}}
    spec = {"cluster": source, **({"nodePools": written} if written else {})}
    return resource("InferenceCluster", name, spec, labels={"region": region})


def deployment(
    name: str, replicas: int, region: str = "", priority: int = 0, available: int = 0, **spec_: Any
) -> api.Resource:
    """A deployment whose pods claim a GPU each; `spec_`: more of its spec."""
    member = {
        "nodeSelector": {"devices": [{"name": "gpu", "selectors": [{"cel": ANY}]}]},
        "template": {"spec": {"containers": [{"name": "engine", "image": "vllm"}]}},
    }
    body: dict[str, Any] = {"engines": [{"name": "main", "members": [member]}]}
    if region:
        body["clusterSelector"] = {"matchLabels": {"region": region}}
    annotations = {"modelplane.ai/priority": str(priority)}
    spec: dict[str, Any] = {"replicas": replicas, "template": {"spec": body}, **spec_}
    if available:
        spec["minAvailable"] = [{"replicas": available}]
    return resource("ModelDeployment", name, spec, namespace="team", annotations=annotations)


def service(name: str, *deployments: str, survive: Mapping[str, Any] | None = None) -> api.Resource:
    endpoints = [{"selector": {"matchLabels": {"modelplane.ai/deployment": each}}} for each in deployments]
    spec = {"endpoints": endpoints, **({"survive": survive} if survive else {})}
    return resource("ModelService", name, spec, namespace="team")


def provider(name: str) -> api.Resource:
    """An endpoint outside of the fleet, with the labels of a replica of a deployment of this name."""
    labels = {"modelplane.ai/deployment": name}
    return resource("ModelEndpoint", name, {"url": "https://api.example.com/"}, namespace="team", labels=labels)


def planned(*resources: api.Resource) -> Plan:
    return plan([CLASS, *resources])


def ask(fleet: Plan, question: Any, *added: api.Resource) -> Answer:
    """The answer to a question, given as a value or as text; `added` are what it adds."""
    known = [CLASS, *fleet.context.fleet.clusters.values(), *fleet.context.fleet.deployments.values()]
    known += fleet.context.fleet.services.values()
    return answer(fleet, read_question(question), Options(), Added([*known, *added]) if added else None)


def moves(found: Answer) -> list[tuple[str, str, str]]:
    """Deployment, old and new cluster of each replica that moves, "" for none."""
    return [
        (move.deployment, move.gone.cluster if move.gone else "", move.new.cluster if move.new else "")
        for move in found.moves
    ]


def numbers(counts: Any) -> dict[str, tuple[int, int, int]]:
    return {each.name: (each.before, each.at_once, each.after) for each in counts}


def as_text(question: Any) -> str:
    return json.dumps(question)

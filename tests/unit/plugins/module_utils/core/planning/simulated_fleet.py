# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Simulated fleet that executes plans step by step: control cluster, routes, and engines that start, fail, or are
unschedulable."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from random import Random
from typing import Any

import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api, names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import Options
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.constants import SPEC_HASH_ANNOTATION
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import (
    Component,
    Observed,
    ObservedCluster,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning import Plan, plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.fleet import written
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Objects

Object = dict[str, Any]
Key = tuple[str, str]

MOST_ROUNDS = 40
IMAGE_FAILURE = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}}


class NeverEndsError(Exception):
    """A run does not converge."""


def resources(text: str) -> list[api.Resource]:
    """Return the resources of a manifest."""
    return [api.parse(document) for document in yaml.safe_load_all(text) if document]


@dataclass
class Engine:
    """A Deployment of engines on a cluster. `up`: ready pods of the applied or an older revision."""

    value: Object
    up: int = 0
    old: int = 0

    @property
    def copies(self) -> int:
        return int(self.value["spec"].get("replicas", 1))

    @property
    def template(self) -> Object:
        template: Object = self.value["spec"]["template"]
        return template

    @property
    def pool(self) -> str:
        return str(self.template["spec"].get("nodeSelector", {}).get("modelplane.ai/pool", ""))

    @property
    def is_bad(self) -> bool:
        return any(container["image"].endswith(":missing") for container in self.template["spec"]["containers"])


@dataclass
class SimulatedFleet:
    """A fleet of two clusters.

    pools: node pools with nodes.
    nodes: number of nodes of each node pool.
    broken: replicas whose engines do not start.
    silent: unreachable clusters.
    failure: status of containers that do not start.
    replicas, endpoints: resources on the control cluster.
    routes: endpoints of each service.
    engines: workloads on each cluster.
    """

    resources: list[api.Resource]
    pools: Collection[str] = ("gpu", "large")
    nodes: Mapping[str, int] = field(default_factory=lambda: {"gpu": 3, "large": 2})
    broken: set[str] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)
    replicas: dict[Key, api.ModelReplica] = field(default_factory=dict)
    endpoints: dict[Key, api.ModelEndpoint] = field(default_factory=dict)
    routes: dict[str, frozenset[str]] = field(default_factory=dict)
    engines: dict[str, dict[Key, Engine]] = field(default_factory=dict)
    composing: Options = field(default_factory=Options)
    log: list[str] = field(default_factory=list)
    failure: Mapping[str, Any] = field(default_factory=lambda: IMAGE_FAILURE)

    @property
    def clusters(self) -> list[str]:
        return [resource.name for resource in self.resources if isinstance(resource, api.InferenceCluster)]

    def plan(self) -> Plan:
        """Return a plan of the observed fleet."""
        observed = Observed(clusters={name: self._observed(name) for name in self.clusters})
        statuses = {
            resource.ref: {"gateway": {"address": f"192.0.2.{number}"}, "conditions": _true("Ready", "BackendReady")}
            for number, resource in enumerate(self.resources)
            if isinstance(resource, api.InferenceCluster)
        }
        serving = self.serving()
        statuses |= {
            replica.ref: {"conditions": _true("Ready", "ModelReady", "ModelAccepted")}
            for replica in self.replicas.values()
            if names.label_value(replica.name) in serving
        }
        existing = [*map(_stored, self.replicas.values()), *map(_stored, self.endpoints.values())]
        return plan(self.resources, existing, observed=observed, statuses=statuses, composing=self.composing)

    def _observed(self, cluster: str) -> ObservedCluster:
        if cluster in self.silent:
            return ObservedCluster(unreachable="connection refused")
        engines = self.engines.get(cluster, {}).values()
        objects = [status(engine) for engine in engines]
        return ObservedCluster(
            objects=Objects([*objects, *(pod for engine in engines for pod in self._pods(engine))]),
            nodes=self.nodes,
            stack=Component(ready=True),
        )

    def _pods(self, engine: Engine) -> Iterator[Object]:
        """Yield a pod that does not start."""
        if engine.up + engine.old >= engine.copies or not (engine.is_bad or engine.pool not in ("", *self.pools)):
            return
        metadata = engine.value["metadata"]
        shown: Object = {"phase": "Pending"}
        if engine.is_bad:
            shown["containerStatuses"] = [{"name": "engine", "ready": False, **self.failure}]
        else:
            message = "0/6 nodes are available: 6 node(s) didn't match Pod's node affinity/selector."
            shown["conditions"] = [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
            ]
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{metadata['name']}-0",
                "namespace": metadata["namespace"],
                "labels": engine.template["metadata"]["labels"],
            },
            "status": shown,
        }

    def apply_control(self, decided: Plan) -> None:
        """Apply a plan to the control cluster, and update the routes."""
        self.replicas = {(replica.namespace, replica.name): replica for replica in decided.composed}
        self.endpoints = {(endpoint.namespace, endpoint.name): endpoint for endpoint in decided.traffic.endpoints}
        self.routes = {
            service.name: frozenset(member.endpoint.name for member in service.resolution.members)
            for service in decided.traffic.services
        }

    def apply_cluster(self, decided: Plan, cluster: str) -> None:
        """Apply a plan to an inference cluster. Changed engines with several pods restart a single pod at a time."""
        if cluster in self.silent:
            return
        frozen = {names.label_value(replica.name) for replica in decided.frozen}
        before, after = self.engines.get(cluster, {}), {}
        for value in decided.workloads[cluster]:
            if value["kind"] != "Deployment":
                continue
            key = (value["metadata"]["namespace"], value["metadata"]["name"])
            engine = before.get(key)
            if engine is None:
                after[key] = Engine(deepcopy(value))
            elif _hash(engine.value) == _hash(value) or replica_of(value) in frozen:
                after[key] = engine
            else:
                changed = Engine(deepcopy(value))
                serving = engine.up + engine.old
                changed.old = min(serving, changed.copies - 1) if is_engine(value) else 0
                after[key] = changed
        self.engines[cluster] = after

    def settle(self, random: Random | None = None) -> None:
        """Start all engines that can start, with `random` only some engines."""
        for engines in self.engines.values():
            for engine in engines.values():
                can_start = not engine.is_bad and engine.pool in ("", *self.pools)
                if is_engine(engine.value) and replica_of(engine.value) in self.broken:
                    engine.up = engine.old = 0
                elif can_start and (random is None or random.random() < 0.7):
                    engine.up, engine.old = engine.copies, 0

    def serving(self) -> set[str]:
        """Return the replicas with a ready pod."""
        return {
            replica_of(engine.value)
            for engines in self.engines.values()
            for engine in engines.values()
            if is_engine(engine.value) and engine.up + engine.old
        }

    def revisions(self) -> dict[str, str]:
        """Return the revision of the engine of each replica."""
        return {
            replica_of(engine.value): _hash(engine.value)
            for engines in self.engines.values()
            for engine in engines.values()
            if is_engine(engine.value)
        }

    def services(self) -> dict[str, set[str]]:
        """Return the serving endpoints of each service."""
        serving = self.serving()
        return {
            name: {endpoint for endpoint in routed if names.label_value(endpoint) in serving}
            for name, routed in self.routes.items()
        }

    def run(self, random: Random, *, allow: bool = False, rounds: int = MOST_ROUNDS) -> Iterator[Plan]:
        """Run, and yield the plan after each change of a cluster. A refused run changes nothing."""
        for __ in range(rounds):
            decided = self.plan()
            if decided.outages and not allow:
                self.log.extend(f"refused: {outage.name}: {outage.message}" for outage in decided.outages)
                return
            before = self._state()
            for rollout in decided.rollouts:
                self.log.append(
                    f"{rollout.key[1]}: {rollout.bounds}; "
                    f"{[(v.name, v.cluster, v.is_current, v.health, v.fits) for v in rollout.views]}; "
                    f"removed {dict(rollout.placing.removed)}, new {rollout.placed}/{rollout.placing.new}, "
                    f"updated {sorted(rollout.updating.updated)}, waiting {dict(rollout.updating.waiting)}"
                )
            self.log.extend(f"dropped {entry.replica.name}: {entry.reason}" for entry in decided.schedule.dropped)
            self.apply_control(decided)
            self.log.append(f"  routes { ({k: sorted(v) for k, v in self.routes.items()}) }")
            yield decided
            for cluster in random.sample(self.clusters, len(self.clusters)):
                self.apply_cluster(decided, cluster)
                self.log.append(f"  {cluster} applied: serving {sorted(self.serving())}")
                yield decided
            self.settle(random)
            if self._state() == before:
                self.settle()
                return
        raise NeverEndsError

    def _state(self) -> str:
        engines = {
            f"{cluster}/{'/'.join(key)}": (_hash(engine.value), engine.up, engine.old)
            for cluster, workloads in self.engines.items()
            for key, engine in workloads.items()
        }
        return str((sorted(engines.items()), sorted(self.routes.items()), sorted(map(str, self.replicas.values()))))


def _true(*conditions: str) -> list[Object]:
    return [{"type": condition, "status": "True", "reason": "Known", "message": ""} for condition in conditions]


def _stored(resource: Any) -> api.Resource:
    return api.parse(written(resource))


def _hash(value: Mapping[str, Any]) -> str:
    return str(value["metadata"]["annotations"][SPEC_HASH_ANNOTATION])


def replica_of(value: Mapping[str, Any]) -> str:
    """Return the replica of a workload."""
    return str(value["metadata"]["labels"][names.REPLICA_LABEL])


def is_engine(value: Mapping[str, Any]) -> bool:
    """Return whether a workload is an engine, which claims devices."""
    return bool(value["spec"]["template"]["spec"].get("resourceClaims"))


def status(engine: Engine) -> Object:
    """Return a Deployment with its status."""
    up = engine.up + engine.old
    available = up >= max(1, engine.copies - 1)
    return {
        **engine.value,
        "status": {
            "replicas": engine.copies,
            "updatedReplicas": engine.copies if not engine.old else engine.copies - engine.old,
            "readyReplicas": up,
            "availableReplicas": up,
            "conditions": [{"type": "Available", "status": str(available)}],
        },
    }

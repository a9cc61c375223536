# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The whole decision: resources, what was there and what was seen in; every object of every cluster out."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api, names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import Options as Composing
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import (
    model_replica,
    replica_objects,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.constants import SYSTEM_NAMESPACE
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.control import system_namespace
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.endpoint import http_url
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.pod_security import laxer
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import Observed
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Ref
from ansible_collections.modelplane.fleet.plugins.module_utils.core.reconcile import (
    caches,
    clusters,
    drain,
    mounts,
    rollout,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.reconcile.caches import Staged
from ansible_collections.modelplane.fleet.plugins.module_utils.core.reconcile.clusters import Site
from ansible_collections.modelplane.fleet.plugins.module_utils.core.reconcile.context import Situation
from ansible_collections.modelplane.fleet.plugins.module_utils.core.reconcile.fleet import (
    Earlier,
    Key,
    Object,
    nothing_earlier,
    sort_out,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.reconcile.traffic import (
    Traffic,
    composed_endpoints,
    traffic,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.reconcile.volumes import Volumes, reference
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling import adapters
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.budget import SelectorBudgetError
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Cluster,
    Deployment,
    Options,
    Placement,
    Replica,
    Schedule,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.placement import schedule
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.model_replica import (
    DECLARED,
    ReplicaState,
    remember,
    replica_state,
)

_INVALID = "its manifest has errors"


class PlanError(Exception):
    """The resources contradict each other or ask for too much; the text says which and what to do."""


@dataclass(frozen=True)
class Plan:
    """What the fleet should be.

    `control` are the objects of the control cluster, `clusters` those of each workload cluster by its name (a cluster
    without any is there too), `replicas` the ModelReplica of each placement, in the order of `schedule.placements`,
    `edited` names (namespace, name) those of them that stay with other content than before, `waiting` those that keep
    the old content until other clusters have the new one. `manual` are ModelReplicas that users wrote themselves,
    `unplanned` replicas that go away as their deployment did. `capacity` is what the scheduler was told of the
    clusters, `states` how each replica is doing (None: nobody looks).
    """

    situation: Situation
    schedule: Schedule
    replicas: tuple[Object, ...]
    control: tuple[Object, ...]
    clusters: Mapping[str, tuple[Object, ...]]
    edited: frozenset[Key]
    waiting: frozenset[Key]
    manual: tuple[Object, ...]
    unplanned: tuple[Replica, ...]
    capacity: tuple[Cluster, ...]
    sites: Mapping[str, Site]
    caches: tuple[Staged, ...]
    traffic: Traffic
    states: Mapping[Key, ReplicaState] = field(default_factory=dict)
    leaving: tuple[Object, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What people should know of the decision: pools that hold more than they can, pods that claim nothing where
        another pool would give them devices, edits that cannot be made."""
        return (
            *map(str, self.schedule.overcommitted),
            *map(str, self.schedule.stranded),
            *(str(problem) for staged in self.caches for problem in staged.warnings),
        )

    @property
    def strangers(self) -> tuple[str, ...]:
        """Clusters that somebody observed and that are not of the fleet; sorted."""
        observed = self.situation.observed
        return tuple(sorted(set(observed.clusters if observed else ()) - {cluster.name for cluster in self.capacity}))


def plan(
    resources: Iterable[api.Resource],
    existing: Iterable[Mapping[str, Any]] = (),
    invalid: Iterable[Ref] = (),
    options: Options | None = None,
    *,
    composing: Composing | None = None,
    observed: Observed | None = None,
    earlier: Earlier = nothing_earlier,
    statuses: Mapping[Ref, Mapping[str, Any]] | None = None,
    rollout_width: int = 1,
) -> Plan:
    """Decide where everything runs and compose it.

    `existing` are the ModelReplicas and ModelEndpoints (wire form) of the last run. `invalid` names resources that were
    written but cannot be used: what was made of them, for which `earlier` is asked, stays exactly as it is. Without
    `observed` everything counts as being as it should be. `statuses` are those of the last run. Raises PlanError.
    """
    situation = Situation(
        sort_out(resources, existing, invalid),
        observed,
        earlier,
        statuses or {},
        composing or Composing(),
        rollout_width,
    )
    fleet = situation.fleet
    sites = clusters.sites(situation)
    deployments, capacity = _inputs(situation, sites)
    running, unplanned = _by_deployment(fleet.replicas.values(), {deployment.key for deployment in deployments})
    volumes = Volumes(situation)
    manual = {key: _manual(key, wire, volumes) for key, wire in fleet.manual.items() if _placed(wire, capacity)}
    replicas_there = [*running, *(adapters.replica(wire) for wire in manual.values())]
    try:
        decided = schedule(deployments, capacity, replicas_there, options)
    except SelectorBudgetError as error:
        raise PlanError(str(error)) from error
    wanted = tuple(_replica(placement, volumes) for placement in decided.placements)
    _refuse_equal_names(wanted, manual)
    waiting = _waiting(situation, decided, wanted)
    replicas = tuple(fleet.replicas[_key(wire)] if _key(wire) in waiting else wire for wire in wanted)
    evicted = drain.evicted(situation, decided)
    candidates = [*replicas, *manual.values(), *evicted]
    objects = {_key(wire): replica_objects(wire, situation.composing) for wire in candidates}
    states = _states(situation, candidates, objects)
    leaving = drain.leaving(situation, decided, evicted, states)
    composed = [*replicas, *manual.values(), *leaving]
    staged = caches.stage(volumes, {name: site.resource for name, site in sites.items()}, composed)
    flow = traffic(situation, _endpoints(situation, composed, capacity, states))
    return Plan(
        situation=situation,
        schedule=decided,
        replicas=replicas,
        control=_control(situation, composed, sites, flow),
        clusters=_workloads([cluster.name for cluster in capacity], composed, objects, staged),
        edited=_edited(situation, decided, replicas),
        waiting=waiting,
        manual=tuple(manual[key] for key in sorted(manual)),
        leaving=leaving,
        unplanned=unplanned,
        capacity=tuple(sorted(capacity, key=lambda cluster: cluster.name)),
        sites=sites,
        caches=staged,
        traffic=flow,
        states=states,
    )


def _by_deployment(wires: Iterable[Object], known: Container[Key]) -> tuple[tuple[Replica, ...], tuple[Replica, ...]]:
    """Existing replicas whose deployment is still there, and those whose deployment is gone."""
    replicas = [adapters.replica(wire) for wire in wires]
    running = tuple(replica for replica in replicas if (replica.namespace, replica.deployment) in known)
    return running, tuple(replica for replica in replicas if (replica.namespace, replica.deployment) not in known)


def _edited(situation: Situation, decided: Schedule, replicas: Sequence[Object]) -> frozenset[Key]:
    """Those of the replicas that stay where they are with other content than in the last run."""
    before = situation.fleet.replicas
    return frozenset(
        _key(wire)
        for placement, wire in zip(decided.placements, replicas, strict=True)
        if placement.state == "kept" and before[(placement.namespace, placement.replica)] != wire
    )


def _key(wire: Mapping[str, Any]) -> Key:
    return wire["metadata"]["namespace"], wire["metadata"]["name"]


def _placed(wire: Object, clusters: Iterable[Cluster]) -> bool:
    """Whether the cluster that a hand-written replica names is there."""
    return any(cluster.name == wire["spec"]["clusterName"] for cluster in clusters)


def _refuse_equal_names(replicas: Iterable[Object], manual: Mapping[Key, Object]) -> None:
    for wire in replicas:
        metadata = wire["metadata"]
        if (metadata["namespace"], metadata["name"]) in manual:
            raise PlanError(
                f"the hand-written ModelReplica {metadata['namespace']}/{metadata['name']} has the name of a replica "
                f"of deployment {metadata['labels'][names.DEPLOYMENT_LABEL]}: rename it"
            )


def _inputs(situation: Situation, sites: Mapping[str, Site]) -> tuple[list[Deployment], list[Cluster]]:
    fleet = situation.fleet
    deployments = [adapters.deployment(resource, fleet.caches) for resource in fleet.deployments.values()]
    catalogue = adapters.DeviceCatalogue()
    capacity = [
        replace(
            adapters.cluster(
                site.resource,
                fleet.classes,
                catalogue,
                assumed_gateway=situation.declared_gateway if situation.declared(name) else None,
            ),
            silent=_silent(situation, name),
        )
        for name, site in sites.items()
    ]
    for ref in fleet.held:
        if ref.kind == "ModelDeployment":
            deployments.append(Deployment(ref.namespace, ref.name, replicas=0, invalid=_INVALID))
        elif ref.kind == "InferenceCluster":
            capacity.append(Cluster(ref.name, unknown=_INVALID))
    return deployments, capacity


def _silent(situation: Situation, cluster: str) -> bool:
    seen = situation.seen(cluster)
    return seen is not None and bool(seen.unreachable)


def _manual(key: Key, wire: Object, volumes: Volumes) -> Object:
    """A hand-written ModelReplica with the volume it mounts, unless it names one or its manifest has errors."""
    if Ref("ModelReplica", *key) in volumes.situation.fleet.held or reference(wire).get("volume"):
        return wire
    there = volumes.situation.fleet.manual_before.get(key)
    stays = there is not None and there["spec"]["clusterName"] == wire["spec"]["clusterName"]
    return mounts.remount(volumes, wire, there if stays else None)


def _replica(placement: Placement, volumes: Volumes) -> Object:
    fleet = volumes.situation.fleet
    there = fleet.replicas.get((placement.namespace, placement.replica))
    if placement.state == "held" and there:
        return there
    deployment = fleet.deployments[(placement.namespace, placement.deployment)]
    wire = model_replica(api.wire(deployment, set_only=True), placement.cluster, placement.index, placement.engines)
    return mounts.remount(volumes, wire, there, stays=placement.state == "kept")


def _waiting(situation: Situation, decided: Schedule, wanted: Iterable[Object]) -> frozenset[Key]:
    there = situation.fleet.replicas
    return rollout.waiting(
        situation,
        [
            (placement, there[(placement.namespace, placement.replica)], wire)
            for placement, wire in zip(decided.placements, wanted, strict=True)
            if placement.state == "kept"
        ],
    )


def _states(
    situation: Situation, composed: Iterable[Object], objects: Mapping[Key, tuple[Object, ...]]
) -> dict[Key, ReplicaState]:
    if situation.observed is None:
        return {}
    found = {}
    for wire in composed:
        cluster = wire["spec"]["clusterName"]
        if situation.declared(cluster):
            found[_key(wire)] = DECLARED
            continue
        state = replica_state(wire, objects[_key(wire)], situation.seen(cluster))
        found[_key(wire)] = remember(state, situation.statuses.get(Ref("ModelReplica", *_key(wire))))
    return found


def _endpoints(
    situation: Situation, composed: Iterable[Object], capacity: Iterable[Cluster], states: Mapping[Key, ReplicaState]
) -> tuple[Object, ...]:
    urls = {
        cluster.name: cluster.gateway_address and (cluster.gateway_url or http_url(cluster.gateway_address))
        for cluster in capacity
        if cluster.unknown != _INVALID and (cluster.gateway_address or situation.answered(cluster.name))
    }
    serving = {key: state.serving for key, state in states.items()}
    return composed_endpoints(situation, composed, urls, serving)


def _control(
    situation: Situation, composed: Iterable[Object], sites: Mapping[str, Site], flow: Traffic
) -> tuple[Object, ...]:
    built = [value for site in sites.values() for value in site.objects] + clusters.held_objects(situation)
    objects = [*composed, *flow.endpoints, *flow.objects, *built]
    if any(value["metadata"].get("namespace") == SYSTEM_NAMESPACE for value in objects):
        objects.append(system_namespace())
    return _distinct(objects)


def _workloads(
    clusters_known: Iterable[str],
    composed: Iterable[Object],
    objects: Mapping[Key, tuple[Object, ...]],
    staged: Iterable[Staged],
) -> dict[str, tuple[Object, ...]]:
    found: dict[str, list[Object]] = {name: [] for name in sorted(clusters_known)}
    for wire in composed:
        found[wire["spec"]["clusterName"]].extend(objects[_key(wire)])
    for cache in staged:
        for name, values in cache.objects.items():
            if name in found:
                found[name].extend(values)
    return {name: _distinct(values) for name, values in found.items()}


def _distinct(objects: Iterable[Object]) -> tuple[Object, ...]:
    """Each object once: several replicas compose the same Namespace, which has to let in the pods of all."""
    found: dict[tuple[str, str, str], Object] = {}
    for value in objects:
        metadata = value["metadata"]
        key = (value["kind"], metadata.get("namespace", ""), metadata["name"])
        found[key] = laxer(found[key], value) if key in found and key[0] == "Namespace" else found.get(key, value)
    return tuple(found.values())

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Changes of a run: actions on replicas, and the number of changed objects on each cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, Protocol

from ..._pydantic import Field
from .. import api, names
from ..planning import Plan
from ..text import count
from ..wire import is_being_deleted, label

_REMAINS = "the cluster still has its objects, but the fleet has no such ModelReplica"

Action = Literal["new", "changed", "replaced", "removed", "leaving"]


class ReplicaChange(api.Model):
    """A replica that the next run changes."""

    namespace: str = Field(description="Its namespace.")
    deployment: str = Field(description="Its ModelDeployment.")
    replica: str = Field(description="Its name.")
    cluster: str = Field(description="Its cluster.")
    action: Action = Field(description="What becomes of it.")
    reason: str = Field(description="Why; empty for what the manifest asks for.")


class ObjectChanges(api.Model):
    """Objects of a cluster that a run changes."""

    cluster: str = Field(description="The cluster; empty for the control cluster.")
    created: int = Field(description="Objects that are new.")
    changed: int = Field(description="Objects that change.")
    removed: int = Field(description="Objects that are removed.")

    @property
    def numbers(self) -> tuple[int, int, int]:
        """Return the three numbers."""
        return self.created, self.changed, self.removed


class Changes(Protocol):
    """Files of the build directory that a run adds, changes, and removes."""

    @property
    def added(self) -> Sequence[str]: ...
    @property
    def changed(self) -> Sequence[str]: ...
    @property
    def removed(self) -> Sequence[str]: ...


def replica_changes(plan: Plan) -> list[ReplicaChange]:
    """Return the replicas that a plan creates, edits, or removes, sorted by name.

    For a `replaced` replica, the run also creates a replica with the same name. A `leaving` replica is removed when
    other replicas serve."""
    stay = {(replica.namespace, replica.name) for replica in plan.leaving}
    dropped = [(entry.replica, entry.reason) for entry in plan.schedule.dropped]
    dropped += [(replica, "its deployment was deleted") for replica in plan.unplanned]
    departures = {
        (replica.namespace, replica.name): (replica, reason)
        for replica, reason in sorted(dropped, key=lambda entry: (entry[0].namespace, entry[0].name))
    }
    changes = []
    for placement, replica in zip(plan.schedule.placements, plan.replicas, strict=True):
        key = (placement.namespace, replica.name)
        departed = None if key in stay else departures.pop(key, None)
        action: Action | None = "new" if placement.state == "new" else "changed" if key in plan.edited else None
        if departed:
            action = "replaced"
        if action:
            location = (placement.namespace, placement.deployment, replica.name, placement.cluster)
            changes.append(_change(*location, action, departed[1] if departed else ""))
    for key, (old, reason) in departures.items():
        location = (old.namespace, old.deployment, old.name, old.cluster)
        changes.append(_change(*location, "leaving" if key in stay else "removed", reason))
    return [*changes, *_remaining_replicas(plan)]


def _remaining_replicas(plan: Plan) -> Iterator[ReplicaChange]:
    """Yield removed replicas that have objects on a cluster, but no ModelReplica in the state of the fleet.

    An earlier run might have stopped before it deleted the objects."""
    context = plan.context
    held_replicas = [(ref.namespace, ref.name) for ref in context.fleet.held if ref.kind == api.ModelReplica.KIND]
    composed = [(replica.namespace, replica.name) for replica in plan.composed]
    known_replicas = {
        tuple(map(names.label_value, key)) for key in (*context.fleet.replicas, *composed, *held_replicas)
    }
    for cluster in sorted(cluster.name for cluster in plan.clusters if context.answered(cluster.name)):
        observed = context.observed_cluster(cluster)
        objects = [value for value in (observed.objects if observed else ()) if not is_being_deleted(value)]
        deployments = {
            (label(value, names.NAMESPACE_LABEL), label(value, names.REPLICA_LABEL)): label(
                value, names.DEPLOYMENT_LABEL
            )
            for value in objects
            if value["kind"] != "Pod" and label(value, names.REPLICA_LABEL)
        }
        for (namespace, replica), deployment in sorted(deployments.items()):
            if (namespace, replica) not in known_replicas:
                yield _change(namespace, deployment, replica, cluster, "removed", _REMAINS)


def _change(namespace: str, deployment: str, replica: str, cluster: str, action: Action, reason: str) -> ReplicaChange:
    return api.construct(
        ReplicaChange,
        namespace=namespace,
        deployment=deployment,
        replica=replica,
        cluster=cluster,
        action=action,
        reason=reason,
    )


def object_changes(changes: Changes) -> list[ObjectChanges]:
    """Return the number of objects that change on each cluster, from the names of their files."""
    counts: dict[str, Counter[str]] = {}
    for kind, files in (("created", changes.added), ("changed", changes.changed), ("removed", changes.removed)):
        for name in files:
            top, __, file_path = name.partition("/")
            if top in ("control", "clusters"):
                counts.setdefault(file_path.partition("/")[0] if top == "clusters" else "", Counter())[kind] += 1
    return [counted(cluster, numbers) for cluster, numbers in sorted(counts.items())]


def counted(cluster: str, counts: Mapping[str, int]) -> ObjectChanges:
    """Return numbers of objects that are `created`, `changed` and `removed` on a cluster."""
    created, changed, removed = (counts.get(kind, 0) for kind in ("created", "changed", "removed"))
    return api.construct(ObjectChanges, cluster=cluster, created=created, changed=changed, removed=removed)


def place_of(changes: ObjectChanges) -> str:
    """Return the name of a cluster for messages."""
    return f"cluster {changes.cluster}" if changes.cluster else "control cluster"


def changes_text(changes: ObjectChanges, verb: str = "") -> str:
    """Return numbers of objects as text: `12 objects created, 3 changed, 1 removed`.

    `verb` is the text before the first participle."""
    counts = {"created": changes.created, "changed": changes.changed, "removed": changes.removed}
    phrases = [f"{number} {kind}" for kind, number in counts.items() if number]
    if not phrases:
        return f"no object {verb}changed"
    number, __, kind = phrases[0].partition(" ")
    return ", ".join([f"{count(int(number), 'object')} {verb}{kind}", *phrases[1:]])

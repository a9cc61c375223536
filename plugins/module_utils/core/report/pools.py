# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Node pools in the HTML report: their devices and their replicas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..output.pools import PoolPods
from . import words
from .links import Links, Sender
from .views import DeviceView, PoolView, ReplicaView


@dataclass(frozen=True)
class ClaimedDevices:
    """Devices of one name in a pool, and the number of them that pods claim."""

    device: str
    claimed: int
    total: int

    def __str__(self) -> str:
        more = self.claimed - self.total
        rest = f"{more:,} more than there are" if more > 0 else f"{-more:,} free"
        return f"{self.claimed:,} of {self.total:,} {self.device} in use, {rest}"


@dataclass(frozen=True)
class Tenant:
    """Replica in a pool.

    number: number of the replica in the drawing of the pool.
    pods: pods of each member of its engines.
    id: ID of the element of the replica, empty without an element.
    replica: its row in the report, None without a row.
    """

    number: int
    namespace: str
    deployment: str
    name: str
    pods: Sequence[PoolPods]
    color: int
    id: str
    replica: ReplicaView | None
    senders: Sequence[Sender]

    @property
    def owner(self) -> str:
        return f"{self.namespace}/{self.deployment}" if self.deployment else self.namespace

    @property
    def pods_text(self) -> str:
        return "; ".join(f"{pods.engine} {pods.role}: {words.pods_text(pods.pods, pods.devices)}" for pods in self.pods)


def tenants(pool: PoolView, links: Links) -> list[Tenant]:
    """Return the replicas in a pool, by namespace, deployment, and name."""
    pods_by_replica: dict[tuple[str, str, str], list[PoolPods]] = {}
    for pods in pool.occupied:
        pods_by_replica.setdefault((pods.namespace, pods.deployment, pods.replica), []).append(pods)
    return [
        Tenant(
            number=number,
            namespace=namespace,
            deployment=deployment,
            name=name,
            pods=pods_by_replica[namespace, deployment, name],
            color=links.colors[namespace, deployment],
            id=links.replica_ids[namespace, name],
            replica=links.replicas.get((namespace, name)),
            senders=links.senders.get((namespace, name), ()),
        )
        for number, (namespace, deployment, name) in enumerate(sorted(pods_by_replica), 1)
    ]


def claimed_devices(pool: PoolView, device: DeviceView) -> ClaimedDevices:
    """Return the devices of one name in a pool."""
    claimed = sum(pods.pods * pods.devices.get(device.name, 0) for pods in pool.occupied)
    return ClaimedDevices(device.name, claimed, device.count * pool.status.nodes)


def main_devices(pool: PoolView) -> ClaimedDevices | None:
    """Return the devices that most pods of the pool claim, to represent the pool. None if pods can claim no devices."""
    devices = [device for device in pool.devices if device.claim == "DRA"]
    if not devices:
        return None
    pods = {
        device.name: sum(entry.pods for entry in pool.occupied if entry.devices.get(device.name)) for device in devices
    }
    return claimed_devices(pool, max(devices, key=lambda device: pods[device.name]))

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A control cluster and workload clusters on one etcd, started at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from .control_plane import CONTROL, WORKLOAD, ControlPlane, Etcd

CONTROL_CLUSTER = "control"


class Fleet:
    """One control cluster and `workloads` by name. `control`: the components of the former, by default those for
    objects, namespaces and garbage collection, without pods; `components`: those of the others, by default what runs
    pods. `token_reviews`: of workloads by name, what ControlPlane has as token_review.

    Starts when it is entered as a context manager. Logs are below `folder`.
    """

    def __init__(
        self,
        programs: Mapping[str, Path],
        folder: Path,
        workloads: Sequence[str] = ("east", "west"),
        *,
        control: Sequence[str] = CONTROL,
        components: Sequence[str] = WORKLOAD,
        token_reviews: Mapping[str, str] | None = None,
    ) -> None:
        self._etcd = Etcd(programs, folder / "etcd")

        def cluster(name: str, components: Sequence[str], webhook: str = "") -> ControlPlane:
            return ControlPlane(
                programs, name, folder / name, etcd=self._etcd, components=components, token_review=webhook
            )

        self.control = cluster(CONTROL_CLUSTER, control)
        self.workloads = {name: cluster(name, components, (token_reviews or {}).get(name, "")) for name in workloads}

    @property
    def all(self) -> list[ControlPlane]:
        return [self.control, *self.workloads.values()]

    def __enter__(self) -> Self:
        try:
            with ThreadPoolExecutor(len(self.all)) as pool:
                list(pool.map(ControlPlane.start, self.all))
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        for plane in self.all:
            plane.stop()
        self._etcd.stop()

    def remove_nodes(self) -> None:
        """Remove all nodes of all clusters, and the devices that are published for them."""
        for plane in self.all:
            plane.remove_nodes()

    def pause(self) -> None:
        """Stop all processes where they are."""
        for plane in self.all:
            plane.pause()
        self._etcd.process.pause()

    def resume(self) -> None:
        """Let paused processes go on; returns when all API servers answer."""
        self._etcd.process.resume()
        for plane in self.all:
            plane.resume()

    def memory(self) -> dict[str, dict[str, int]]:
        """Resident bytes of each process of each cluster, and of etcd."""
        each = {plane.name: plane.memory() for plane in self.all}
        return {**each, "etcd": {"etcd": self._etcd.process.memory()}}

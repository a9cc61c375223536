# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Use case: watch a fleet for events (`core/incidents.py`) in the results of runs and by queries to clusters.

An iteration reads only the changed files, or two lists on the control cluster. It also sends one request to each
queried cluster.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from ..core import api, incidents
from ..kubernetes.client import Client
from ..kubernetes.connection import Connection, connect
from ..kubernetes.errors import ApiError
from ..kubernetes.fanout import fan_out
from ..kubernetes.observe import reason
from ..stores.built import Build
from ..stores.directory import PLAN_FILE, StoreError
from ..stores.event_memory import read_memory, write_memory

_CLUSTER_STATUSES = "cluster-scoped"
_ENDINGS = (".json", ".yaml")
_MODELS = f"{api.GROUP_MODELS}/{api.VERSION}"


@dataclass(frozen=True)
class Settings:
    """Settings of a watch."""

    build: str = ""
    """Build directory with the statuses, if they are not read from `control`."""
    control: Connection | None = None
    """Control cluster with the statuses."""
    clusters: Sequence[Connection] = ()
    """Clusters that the watch queries directly."""
    state: str = ""
    """File with the reported incidents."""
    delays: Mapping[str, float] = field(default_factory=dict)
    """Minimum duration of an incident before its report, in seconds by type."""
    width: int = 32


class _Reader(Protocol):
    """Reads statuses. Raise StoreError or ApiError when they cannot be read."""

    def read(self) -> incidents.Reading: ...


class Watch:
    """Watch of a fleet. A context manager that closes its connections."""

    def __init__(self, settings: Settings, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        """Raise StoreError for a state that cannot be read, ApiError for a connection that cannot be right."""
        self._settings = settings
        self._now = now
        self._open = ExitStack()
        self._memory = read_memory(settings.state) if settings.state else {}
        self._written = self._memory
        control = self._open.enter_context(connect(settings.control)) if settings.control else None
        self._reader: _Reader | None = None
        if settings.build:
            self._reader = _BuildReader(settings.build)
        elif control:
            self._reader = _ControlReader(control)
        self._clients = {
            cluster.name: self._open.enter_context(connect(cluster, control)) for cluster in settings.clusters
        }

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_error: object) -> None:
        self._open.close()

    def turn(self) -> tuple[tuple[incidents.Event, ...], str]:
        """Read the fleet once. Return the new events, and the reason for unread statuses, or "".

        Events are new until `remember` is called after them. A process that ends before this call reports them again.
        """
        answers = fan_out({name: client.version for name, client in self._clients.items()}, self._settings.width)
        reading = incidents.of_answers(
            {name: reason(answer) if isinstance(answer, ApiError) else "" for name, answer in answers.items()}
        )
        problem = ""
        try:
            reading += self._reader.read() if self._reader else incidents.Reading()
        except (StoreError, ApiError) as error:
            problem = str(error)
        turn = incidents.advance(self._memory, reading, self._now(), self._settings.delays)
        self._memory = turn.memory
        return turn.events, problem

    def remember(self) -> None:
        """Write the reported incidents, if they changed. Raise StoreError."""
        if self._settings.state and self._memory != self._written:
            write_memory(self._settings.state, self._memory)
        self._written = self._memory


class _BuildReader:
    """Reader of a changed plan.json, and of changed statuses of clusters, in a build directory."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._files: Sequence[tuple[str, int, int]] = ()
        self._reading = incidents.Reading()

    def read(self) -> incidents.Reading:
        files = self._stat()
        if not files or files != self._files:
            build = Build(self._folder)
            plan_time = datetime.fromtimestamp(os.stat(os.path.join(self._folder, PLAN_FILE)).st_mtime, UTC)
            statuses = build.statuses(_CLUSTER_STATUSES)
            clusters = [value for value in statuses if value["kind"] == "InferenceCluster"]
            self._reading = incidents.of_plan(build.plan, plan_time) + incidents.of_clusters(clusters)
            self._files = files
        return self._reading

    def _stat(self) -> list[tuple[str, int, int]]:
        """Return the names, modification times, and sizes of the files to read."""
        file_states = []
        for path in (self._folder, os.path.join(self._folder, "status", _CLUSTER_STATUSES)):
            try:
                with os.scandir(path) as entries:
                    stats = [(entry.name, entry.stat()) for entry in entries if entry.name.endswith(_ENDINGS)]
            except OSError:
                continue
            file_states += [(name, stat.st_mtime_ns, stat.st_size) for name, stat in stats]
        return sorted(file_states)


class _ControlReader:
    """Reads the statuses of clusters and deployments on the control cluster."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def read(self) -> incidents.Reading:
        clusters = self._client.list(_MODELS, "InferenceCluster").items
        deployments = self._client.list(_MODELS, "ModelDeployment").items
        return incidents.of_clusters(clusters) + incidents.of_deployments(deployments)

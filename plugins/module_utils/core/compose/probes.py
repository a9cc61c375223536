# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Startup, readiness and liveness probes of engines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import api
from ..api.engine import Stall
from ..api.model_replica import PlacedEngine
from ..api.pod_template import Container
from ..servers.command_line import CommandLine
from . import constants
from .engine_scripts import stall_command
from .member import Member
from .workload import member_template

_STARTUP_MINUTES = 60
_PERIOD_SECONDS = 10
_RESTART_SECONDS = 30
"""Grace period of a container that restarts. The engine serves nothing, so its streams need no more time."""
_STALL_PERIOD_SECONDS = 30
_STALL_PATIENCE_SECONDS = 20
_STALL_TIMEOUT_SECONDS = 25
_STALL_FAILURES = 3
_NO_RESTART = 2**31 - 1
"""Highest failureThreshold, because the kubelet counts a check that it cannot run, or that times out, as failed."""


def health_probe(port: int, path: str) -> dict[str, Any]:
    """Return a probe of a container that serves the API on this port, and its health at this path."""
    return {
        "httpGet": {"path": path, "port": port},
        "periodSeconds": _PERIOD_SECONDS,
        "timeoutSeconds": 5,
    }


def add_probes(workload: dict[str, Any], members: Sequence[Member], engine: PlacedEngine) -> None:
    """Add the probes of an engine to the containers of its workload, in place.

    Probes in a template replace composed probes. Only the serving member has composed probes.
    """
    for member in members:
        container = member_template(workload, member.role)["spec"]["containers"][0]
        if member.serves:
            port = container["ports"][0]["containerPort"]
            path = health_path(member.container, engine)
            container["readinessProbe"] = health_probe(port, path)
            container["startupProbe"] = _startup_probe(port, path, startup_seconds(member, engine))
            # Other servers have other metrics.
            if has_request_metrics(member.container):
                container["livenessProbe"] = _stall_probe(port, engine.stall or Stall())
        for field, probe in (
            ("livenessProbe", member.container.liveness_probe),
            ("readinessProbe", member.container.readiness_probe),
            ("startupProbe", member.container.startup_probe),
        ):
            if probe:
                container[field] = api.wire(probe)


def health_path(container: Container, engine: PlacedEngine) -> str:
    """Return the path of the probes of an engine with this serving container."""
    server = CommandLine.of(container).server
    return engine.health_path or (server.health if server else constants.HEALTH_PATH)


def has_request_metrics(container: Container) -> bool:
    """Return True if the drain hook and the stall probe can read the metrics of a container's inference server."""
    server = CommandLine.of(container).server
    return server is not None and bool(server.running)


def startup_seconds(member: Member, engine: PlacedEngine) -> int:
    """Return the maximum startup time of the container of an engine's serving member, in seconds."""
    probe = member.container.startup_probe
    if probe is None:
        return (engine.startup_minutes or _STARTUP_MINUTES) * 60
    # The defaults of Kubernetes.
    return (probe.initial_delay_seconds or 0) + (probe.failure_threshold or 3) * (probe.period_seconds or 10)


def _startup_probe(port: int, path: str, seconds: int) -> dict[str, Any]:
    return {
        **health_probe(port, path),
        "failureThreshold": seconds // _PERIOD_SECONDS,
        "terminationGracePeriodSeconds": _RESTART_SECONDS,
    }


def _stall_probe(port: int, stall: Stall) -> dict[str, Any]:
    command = stall_command(port, stall.seconds, stall.action, patience=_STALL_PATIENCE_SECONDS)
    return {
        "exec": {"command": command},
        "periodSeconds": _STALL_PERIOD_SECONDS,
        "timeoutSeconds": _STALL_TIMEOUT_SECONDS,
        "failureThreshold": _STALL_FAILURES if stall.action == "Restart" else _NO_RESTART,
        "terminationGracePeriodSeconds": _RESTART_SECONDS,
    }

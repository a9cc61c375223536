# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Startup, readiness and liveness probes of engines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.engine import Stall
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.model_replica import PlacedEngine
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import constants, engine_flags
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.engine_flags import CommandLine
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.engine_scripts import stall_command
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.member import Member
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.workload import member_template

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


def health_probe(port: int) -> dict[str, Any]:
    """Return a probe of a container that serves the API on this port."""
    return {
        "httpGet": {"path": constants.HEALTH_PATH, "port": port},
        "periodSeconds": _PERIOD_SECONDS,
        "timeoutSeconds": 5,
    }


def add_probes(workload: dict[str, Any], parts: Sequence[Member], engine: PlacedEngine) -> None:
    """Add the probes of an engine to the containers of its workload, in place. Probes in a template replace composed
    ones. Only the serving member has composed probes."""
    for member in parts:
        container = member_template(workload, member.role)["spec"]["containers"][0]
        if member.serves:
            port = container["ports"][0]["containerPort"]
            container["readinessProbe"] = health_probe(port)
            container["startupProbe"] = _startup_probe(port, startup_seconds(member, engine))
            # Other servers have other metrics.
            if engine_flags.program(CommandLine.of(member.container)):
                container["livenessProbe"] = _stall_probe(port, engine.stall or Stall())
        for field, probe in (
            ("livenessProbe", member.container.liveness_probe),
            ("startupProbe", member.container.startup_probe),
        ):
            if probe:
                container[field] = api.wire(probe)


def startup_seconds(member: Member, engine: PlacedEngine) -> int:
    """Return the maximum startup time of the container of an engine's serving member, in seconds."""
    probe = member.container.startup_probe
    if probe is None:
        return (engine.startup_minutes or _STARTUP_MINUTES) * 60
    # The defaults of Kubernetes.
    return (probe.initial_delay_seconds or 0) + (probe.failure_threshold or 3) * (probe.period_seconds or 10)


def _startup_probe(port: int, seconds: int) -> dict[str, Any]:
    return {
        **health_probe(port),
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

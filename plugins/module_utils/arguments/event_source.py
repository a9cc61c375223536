# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Arguments of the event source `modelplane.fleet.fleet`, and their conversion to the settings of a watch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ..core import incidents
from ..core.text import cut
from ..usecases.incidents import Settings
from . import cluster_options

OPTIONS: dict[str, Any] = {
    **{name: cluster_options.CLUSTERS[name] for name in ("clusters", "control", "forks", "answer_limit")},
    "build": {"type": "path"},
    "state": {"type": "path"},
    "interval": {"type": "float", "default": 30.0},
    "cluster_lost_after": {"type": "float", "default": 60.0},
    "deployment_pending_after": {"type": "float", "default": 600.0},
    "timeout": {"type": "float", "default": 10.0},
    "retries": {"type": "int", "default": 2},
}
_SOURCES = ("build", "control", "clusters")
# Arguments that ansible-rulebook adds for every source.
_FOREIGN = ("eda_feedback_queue",)


class SourceError(Exception):
    """Invalid arguments. The message has one line for each problem."""


def parse(args: Mapping[str, Any]) -> tuple[Settings, float]:
    """Return the settings of a watch, and the seconds between two readings. Raise SourceError."""
    # Templates of a rulebook result in empty values for unset options. An empty `control` has a meaning.
    set_arguments = {
        name: value for name, value in args.items() if name not in _FOREIGN and value not in ("", None, [])
    }
    result = ArgumentSpecValidator(OPTIONS, mutually_exclusive=[("build", "control")]).validate(set_arguments)
    if result.error_messages:
        raise SourceError("\n".join(map(cut, result.error_messages)))
    params: Mapping[str, Any] = result.validated_parameters
    limits = {"interval": 1.0, "cluster_lost_after": 0.0, "deployment_pending_after": 0.0}
    problems = [] if set_arguments.keys() & set(_SOURCES) else [f"one of {', '.join(_SOURCES)} is required"]
    problems += [
        f"{name} is {params[name]}, and must be at least {minimum:g} (seconds)"
        for name, minimum in limits.items()
        if not minimum <= params[name] < float("inf")
    ]
    if problems:
        raise SourceError("\n".join(problems))
    try:
        settings = Settings(
            build=params["build"] or "",
            control=cluster_options.control_connection(params),
            clusters=list(cluster_options.connections(params).values()),
            state=params["state"] or "",
            delays={
                incidents.CLUSTER_LOST: params["cluster_lost_after"],
                incidents.DEPLOYMENT_PENDING: params["deployment_pending_after"],
            },
            width=cluster_options.forks(params),
        )
    except cluster_options.ArgumentsError as error:
        raise SourceError(str(error)) from None
    return settings, params["interval"]

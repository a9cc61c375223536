# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Arguments of modules for connections to clusters, and their conversion to connections."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..cloud.clusters import CloudConnection
from ..cloud.registry import LOGINS
from ..kubernetes.connection import Connection, SecretRef
from ..kubernetes.errors import CONTROL
from .connections import OPTIONS

__all__ = ["CONTROL"]


LIMITS: dict[str, Any] = {
    "timeout": {"type": "float", "default": 30.0},
    "retries": {"type": "int", "default": 5},
    "answer_limit": {"type": "int", "default": 64},
}
CLUSTER: dict[str, Any] = {"cluster": {"type": "dict", "options": OPTIONS}, **LIMITS}
# Part of an Ansible argument spec: the counterpart of the doc fragment `clusters`.
CLUSTERS: dict[str, Any] = {
    "clusters": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {"name": {"type": "str", "required": True}, **OPTIONS},
    },
    "control": {"type": "dict", "options": OPTIONS},
    "forks": {"type": "int", "default": 32},
    **LIMITS,
    "on_error": {"type": "str", "choices": ["fail", "report"], "default": "fail"},
}


class ArgumentsError(Exception):
    """Invalid arguments. The message has one line for each problem."""


def connections(params: Mapping[str, Any]) -> dict[str, Connection]:
    """Return the connections of the argument `clusters`, by name, in their order. Raise ArgumentsError."""
    bounds = limits(params)
    entries: Sequence[Mapping[str, Any]] = params.get("clusters") or ()
    connections_by_name: dict[str, Connection] = {}
    problems: list[str] = []
    for index, entry in enumerate(entries):
        name = str(entry.get("name") or "")
        if not name:
            problems.append(f"clusters[{index}].name is empty")
        elif name in connections_by_name:
            problems.append(f"clusters[{index}].name: there are two clusters {name}")
        else:
            try:
                connections_by_name[name] = connection(name, entry, **bounds)
            except ArgumentsError as error:
                problems.append(str(error))
    if problems:
        raise ArgumentsError("\n".join(problems))
    return connections_by_name


def control_connection(params: Mapping[str, Any]) -> Connection | None:
    """Return the connection of the argument `control`, or None. Empty options use the kubeconfig of kubectl."""
    control_options = params.get("control")
    if control_options is None:
        return None
    return connection(CONTROL, control_options, standard=True, **limits(params))


def connection(name: str, given: Mapping[str, Any], **more: Any) -> Connection:
    """Return the connection of suboptions. Missing and None suboptions have their defaults. Raise ArgumentsError."""
    texts = (
        *("kubeconfig", "kubeconfig_text", "context", "server", "token", "ca_file", "ca_text"),
        *("proxy", "tls_server_name", "impersonate"),
    )
    values: dict[str, Any] = {key: str(given[key]) for key in texts if given.get(key)}
    secret = _given(given.get("secret"))
    logins = {cloud: options for cloud in LOGINS if (options := _given(given.get(cloud)))}
    if len(logins) > 1:
        raise ArgumentsError(f"{name}: {' and '.join(logins)} are given. Give one way to reach the cluster")
    verify = given.get("verify")
    return Connection(
        name,
        secret=SecretRef(**secret) if secret else None,
        login=next((LOGINS[cloud].of(**options) for cloud, options in logins.items()), None),
        verify=True if verify is None else bool(verify),
        **values,
        **more,
    )


def cloud_connections(params: Mapping[str, Any], provided: Collection[str]) -> dict[str, CloudConnection]:
    """Return the cloud connections in the argument `clusters`, by cluster, without clusters that others created."""
    logins_by_cluster: dict[str, CloudConnection] = {}
    for entry in params.get("clusters") or ():
        for cloud in LOGINS:
            options = _given(entry.get(cloud))
            if options and entry["name"] not in provided:
                logins_by_cluster[str(entry["name"])] = CloudConnection(cloud, options)
    return logins_by_cluster


def forks(params: Mapping[str, Any]) -> int:
    """Return the number of clusters to process concurrently. Raise ArgumentsError."""
    width = int(params.get("forks") or 0)
    if width < 1:
        raise ArgumentsError("forks: must be at least 1")
    return width


def _given(options: Mapping[str, Any] | None) -> dict[str, str]:
    return {key: str(value) for key, value in (options or {}).items() if value}


def limits(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the limits on requests as keyword arguments of `connection`. Raise ArgumentsError."""
    timeout, retries, largest = params.get("timeout"), params.get("retries"), params.get("answer_limit")
    if timeout is not None and not 0 < timeout < float("inf"):
        raise ArgumentsError("timeout: must be a number of seconds above 0")
    if retries is not None and retries < 0:
        raise ArgumentsError("retries: must be 0 or more")
    if largest is not None and largest < 1:
        raise ArgumentsError("answer_limit: must be at least 1 (MiB)")
    return {
        **({"timeout": float(timeout)} if timeout is not None else {}),
        **({"retries": int(retries)} if retries is not None else {}),
        **({"answer_limit": int(largest)} if largest is not None else {}),
    }

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Connections to clusters: from variables of the inventory to the arguments `clusters` and `control` of modules.

The inventory contract (docs/inventory.md) is implemented only here. Messages never contain a value of a connection: any
of them may be a secret, including values of misplaced keys.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..core import api
from ..core.cloud import registry
from ..core.names import SYSTEM_NAMESPACE
from ..core.text import first_lines, nearest_key, short_value

KUBERNETES = "kubernetes"
DIRECTORY = "directory"


def secret_option(key: str, **more: Any) -> dict[str, Any]:
    """Return the argument spec of a reference to a Secret, with the default key."""
    return {
        "type": "dict",
        # A reference, not the content of the Secret.
        "no_log": False,
        "options": {
            "namespace": {"type": "str", "required": True},
            "name": {"type": "str", "required": True},
            "key": {"type": "str", "default": key, "no_log": False},
        },
        **more,
    }


OPTIONS: dict[str, Any] = {
    "kubeconfig": {"type": "path"},
    "kubeconfig_text": {"type": "str", "no_log": True},
    "context": {"type": "str"},
    "secret": secret_option("kubeconfig"),
    **{cloud.name: {"type": "dict", "options": dict(cloud.login.options)} for cloud in registry.CLOUDS},
    "server": {"type": "str"},
    "token": {"type": "str", "no_log": True},
    "ca_file": {"type": "path"},
    "ca_text": {"type": "str"},
    "proxy": {"type": "str"},
    "tls_server_name": {"type": "str"},
    "verify": {"type": "bool", "default": True},
    "impersonate": {"type": "str"},
}
"""Keys of a connection, as an Ansible argument spec. They are separate from the modules' other arguments, because every
task that uses a filter imports it."""

CLUSTER_VARIABLES = (
    "fleet_target",
    "fleet_cluster",
    "fleet_connection",
    "fleet_kubeconfig",
    "fleet_context",
    "fleet_credentials",
    *(variable for cloud in registry.CLOUDS for variable in cloud.login.variables(cloud.name)),
    "inventory_dir",
)
"""Variables of a host of `workload_clusters` for its connection."""
PROVISION_VARIABLES = ("fleet_provision", "__fleet_cloud_name")
"""Variables of a host of `workload_clusters` that determine if the fleet creates its cluster. The second variable is
the name of the cluster in its cloud, for a run without the cluster and therefore without its connection."""
CONTROL_VARIABLES = ("fleet_control", "fleet_control_kubeconfig", "inventory_dir")
"""Variables of the host of `control_plane` for the connection to the control cluster."""

METHODS = ("kubeconfig", "kubeconfig_text", "secret", *registry.BY_NAME, "server")
"""Connection methods. A connection has exactly one of these keys. Only `context` uses the default kubeconfig of the
user."""
LITERAL_SECRETS = ("token", "kubeconfig_text")
_WITH_CONTEXT = ("kubeconfig", "kubeconfig_text", "secret")
# Keys of a connection method. They are removed when another method replaces it.
_METHOD_KEYS = (*METHODS, "context", "token", "ca_file", "ca_text")
_MOST_PROBLEMS = 20


class ConnectionsError(Exception):
    """Invalid variables of connections. `problems`: one line for each problem."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(first_lines(problems, _MOST_PROBLEMS)))
        self.problems = tuple(problems)


def clusters(hosts: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the argument `clusters` for hosts (inventory name -> variables), in their order, without file-based
    clusters.

    Raise ConnectionsError with all problems of all hosts."""
    connections_by_name: dict[str, dict[str, Any]] = {}
    hosts_by_cluster: dict[str, str] = {}
    problems: list[str] = []
    for host, variables in hosts.items():
        try:
            connection = cluster_connection(host, variables)
        except ConnectionsError as error:
            problems.extend(error.problems)
            continue
        if connection is None:
            continue
        name = connection["name"]
        if name in connections_by_name:
            problems.append(
                f"{host}: fleet_cluster is {name}, as of host {hosts_by_cluster[name]}: one host for each cluster"
            )
            continue
        connections_by_name[name], hosts_by_cluster[name] = connection, host
    if problems:
        raise ConnectionsError(problems)
    return list(connections_by_name.values())


def is_unused(variables: Mapping[str, Any]) -> bool:
    """Return True when a kubeconfig is set for a cluster of files only."""
    shorthands = ("fleet_kubeconfig", "fleet_context")
    return variables.get("fleet_target") == DIRECTORY and any(variables.get(name) for name in shorthands)


def provisioned(host: str, variables: Mapping[str, Any], known: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the entry of `known` for the cluster of a host if the fleet creates it in a cloud, and {} otherwise.

    Raise ConnectionsError.
    """
    about = known.get(variables.get("fleet_cluster") or host) or {}
    if variables.get("fleet_provision", "managed") != "managed" or not about.get("provider"):
        return {}
    login_options = (cluster_connection(host, variables) or {}).get(about["provider"]) or {}
    if (variables.get("__fleet_cloud_name") or login_options.get("cluster")) != about["cloud_name"]:
        return {}
    return about if login_options.get("project") in (None, "", about["project"]) or not about["project"] else {}


def cluster_connection(host: str, variables: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return an entry of the argument `clusters`, None for a cluster of files only. Raise ConnectionsError."""
    connection_variables = [
        name for name in ("fleet_kubeconfig", "fleet_context", "fleet_connection") if variables.get(name)
    ]
    target = variables.get("fleet_target")
    if target is None and connection_variables:
        raise ConnectionsError(
            [
                f"{host}: {connection_variables[0]} is set, but fleet_target is not: set fleet_target to {KUBERNETES} "
                f"to apply to the cluster, or to {DIRECTORY} to write files only"
            ]
        )
    if target is None or target == DIRECTORY:
        return None
    if target != KUBERNETES:
        raise ConnectionsError(
            [f"{host}: fleet_target is {short_value(target)}: it must be {KUBERNETES} or {DIRECTORY}"]
        )
    name = variables.get("fleet_cluster") or host
    problems = [] if isinstance(name, str) else [f"{host}: fleet_cluster must be text{_not_text(name)}"]
    connection = _written(f"{host}: fleet_connection", variables.get("fleet_connection"), problems)
    _shorten(host, connection, variables, problems)
    for cloud_name in registry.BY_NAME:
        if not problems and cloud_name in connection:
            connection[cloud_name] = _logged_in(host, cloud_name, connection[cloud_name], variables, problems)
    if not problems:
        problems.extend(_contradictions(f"{host}: fleet_connection", connection))
    if not problems and not _methods(connection) and "context" not in connection:
        problems.append(
            f"{host}: fleet_target is {KUBERNETES}, but there is no connection to the cluster: set fleet_kubeconfig, "
            f"or one of {', '.join(METHODS)} in fleet_connection"
        )
    if problems:
        raise ConnectionsError(problems)
    return {"name": str(name), **_absolute(connection, variables.get("inventory_dir"))}


def control_connection(host: str, variables: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the argument `control`, None for a fleet without a control cluster. Raise ConnectionsError."""
    where = f"{host}: fleet_control"
    problems: list[str] = []
    connection = _written(where, variables.get("fleet_control"), problems)
    kubeconfig = variables.get("fleet_control_kubeconfig")
    if kubeconfig:
        if isinstance(kubeconfig, str):
            connection = {key: value for key, value in connection.items() if key not in _METHOD_KEYS}
            connection["kubeconfig"] = kubeconfig
        else:
            problems.append(f"{host}: fleet_control_kubeconfig must be text{_not_text(kubeconfig)}")
    problems = problems or (_control_problems(where, connection) if connection else [])
    if problems:
        raise ConnectionsError(problems)
    return _absolute(connection, variables.get("inventory_dir")) if connection else None


def checked_control(where: str, value: Any, folder: str) -> dict[str, Any]:
    """Validate a connection to the control cluster. `where`: its location. `folder`: directory for relative paths.

    Raise ConnectionsError, also for a secret in the connection, because the connection becomes a visible variable."""
    problems: list[str] = []
    connection = _written(where, value, problems)
    problems = problems or _control_problems(where, connection)
    problems.extend(
        f"{where}.{key} is a secret, which cannot be written here: its value would be shown by ansible-inventory. "
        "Give the path of a kubeconfig, or write fleet_control into a vaulted variable file"
        for key in LITERAL_SECRETS
        if key in connection
    )
    problems.extend(
        f"{where}.{key} must not hold a user or a password: its value would be shown by ansible-inventory"
        for key in ("proxy", "server")
        if "@" in str(connection.get(key, ""))
    )
    if problems:
        raise ConnectionsError(problems)
    return _absolute(connection, folder)


def of_manifest(cluster: api.InferenceCluster | api.CloudCluster) -> dict[str, Any]:
    """Return the connection to a cluster according to its manifest, or {} without one.

    The connection to an Existing cluster is its kubeconfig, a Secret on the control cluster. The connection to a
    cluster that the fleet provisions is its name in the cloud, derived from the manifest's name. Manifests of other
    sources have no connection.
    """
    if isinstance(cluster, api.CloudCluster):
        cluster_cloud = registry.BY_KIND[cluster.kind]
        return {
            cluster_cloud.name: cluster_cloud.login.of(
                cluster.spec, cluster_cloud.cluster_name(cluster.namespace, cluster.name)
            )
        }
    source = cluster.spec.cluster
    if source.source == "Existing" and source.existing is not None:
        ref = source.existing.secret_ref
        return {"secret": {"namespace": SYSTEM_NAMESPACE, "name": ref.name, "key": ref.key}}
    cloud, block = registry.BY_SOURCE.get(source.source), registry.block_of(source)
    if cloud is None or block is None:
        return {}
    return {cloud.name: cloud.login.of(block, cloud.cluster_name(SYSTEM_NAMESPACE, cluster.name))}


def target_of(connection: Mapping[str, Any], control: bool) -> str:
    """Return the `fleet_target` of a cluster with this connection. `control`: Secrets can be read."""
    if not connection or ("secret" in connection and not control):
        return DIRECTORY
    try:
        __ = cluster_connection("", {"fleet_target": KUBERNETES, "fleet_connection": connection, "fleet_cluster": "-"})
    except ConnectionsError:
        return DIRECTORY
    return KUBERNETES


def _shorten(host: str, connection: dict[str, Any], variables: Mapping[str, Any], problems: list[str]) -> None:
    """Apply the shorthand variables. A method of connecting that one of them replaces is removed with all its keys."""
    for name in ("fleet_kubeconfig", "fleet_context"):
        value = variables.get(name)
        if not value:
            continue
        if not isinstance(value, str):
            problems.append(f"{host}: {name} must be text{_not_text(value)}")
            continue
        key = name.removeprefix("fleet_")
        if key == "kubeconfig" or not any(method in connection for method in _WITH_CONTEXT):
            for method_key in _METHOD_KEYS:
                connection.pop(method_key, None)
        connection[key] = value


def _logged_in(
    host: str, cloud_name: str, written_options: Mapping[str, Any], variables: Mapping[str, Any], problems: list[str]
) -> dict[str, Any]:
    """Return a cloud cluster with the credentials that create it and can work on it.

    Variables of the role that creates the cluster have priority over the written options. The written options have
    priority over the account of the cluster's credentials."""
    login = registry.BY_NAME[cloud_name].login
    accounts = variables.get(f"{cloud_name}_cluster_accounts") or {}
    name = variables.get("fleet_credentials") or "default"
    account = accounts.get(name) if isinstance(accounts, Mapping) else None
    login_options = {}
    for key, value in account.items() if isinstance(account, Mapping) else ():
        if key not in login.options:
            hint = nearest_key(key, login.options)
            problems.append(f"{host}: {cloud_name}_cluster_accounts.{name}.{key} is not a known key. {hint}")
        elif value:
            login_options[key] = value
    login_options.update(_set_by(variables, login.defaults))
    login_options.update(written_options)
    login_options.update(_set_by(variables, login.overrides))
    return _options(f"{host}: login of fleet_connection.{cloud_name}", login_options, login.options, problems)


def _set_by(variables: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the options that variables, or keys of variables (`variable.key`), set."""
    options_set = {}
    for name, option in names.items():
        variable, __, key = name.partition(".")
        value = variables.get(variable)
        if key:
            value = value.get(key) if isinstance(value, Mapping) else None
        if value:
            options_set[option] = value
    return options_set


def _written(where: str, value: Any, problems: list[str]) -> dict[str, Any]:
    """Return the keys of a connection with a value. Add problems of unknown keys and wrong types."""
    if value is None or value == "":
        return {}
    return _options(where, value, OPTIONS, problems)


def _options(where: str, value: Any, known: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        problems.append(f"{where} must be a mapping")
        return {}
    checked_options: dict[str, Any] = {}
    for key, item in value.items():
        if key not in known:
            problems.append(f"{where}.{key} is not a known key. {nearest_key(key, known)}")
        elif item is not None and item != "":
            checked_options[str(key)] = _option(f"{where}.{key}", item, known[key], problems)
    problems.extend(
        f"{where}.{key} is missing"
        for key, option in known.items()
        if option.get("required") and key not in checked_options
    )
    return checked_options


def _option(where: str, value: Any, option: Mapping[str, Any], problems: list[str]) -> Any:
    kind = option["type"]
    if kind == "dict":
        return _options(where, value, option["options"], problems)
    if kind == "bool":
        # Extra variables in the format `-e key=value` are strings.
        if not isinstance(value, bool) and str(value).lower() not in ("true", "false", "yes", "no"):
            problems.append(f"{where} must be true or false")
    elif not isinstance(value, str):
        problems.append(f"{where} must be text{_not_text(value)}")
    return value


def _not_text(value: Any) -> str:
    return f", is {short_value(value)}" if isinstance(value, (Mapping, list, tuple)) else ": write it in quotes"


def _methods(connection: Iterable[str]) -> list[str]:
    """Return the connection methods. A server with a name in a cloud is not a method, but saves a cloud request."""
    methods = [method for method in METHODS if method in connection]
    return [method for method in methods if method != "server" or not registry.BY_NAME.keys() & set(methods)]


def _contradictions(where: str, connection: Mapping[str, Any]) -> list[str]:
    methods = _methods(connection)
    problems = []
    if len(methods) > 1:
        problems.append(f"{where}: {' and '.join(methods)} are different methods of reaching one cluster: keep one")
    elif "context" in connection and methods and methods[0] not in _WITH_CONTEXT:
        problems.append(f"{where}: context selects from a kubeconfig, and cannot be combined with {methods[0]}")
    elif "token" in connection and methods != ["server"]:
        problems.append(
            f"{where}: token needs server{f', and cannot be combined with {methods[0]}' if methods else ''}"
        )
    if "ca_file" in connection and "ca_text" in connection:
        problems.append(f"{where}: ca_file and ca_text are alternatives: keep one")
    return problems


def _control_problems(where: str, connection: Mapping[str, Any]) -> list[str]:
    problems = _contradictions(where, connection)
    if "secret" in connection:
        problems.append(f"{where}.secret is on the control cluster itself: give a kubeconfig or another way to connect")
    if not _methods(connection) and "context" not in connection:
        methods = ", ".join(method for method in METHODS if method != "secret")
        problems.append(f"{where} has no connection to the control cluster: give one of {methods}")
    return problems


def _absolute(connection: dict[str, Any], folder: Any) -> dict[str, Any]:
    """Return the connection with relative paths resolved from `folder`, if there is one."""
    resolved = dict(connection)
    for key, option in OPTIONS.items():
        if key in resolved and option["type"] == "path":
            resolved[key] = absolute(resolved[key], folder)
        elif key in resolved and option["type"] == "dict":
            nested = dict(resolved[key])
            for inner, its in option["options"].items():
                if inner in nested and its["type"] == "path":
                    nested[inner] = absolute(nested[inner], folder)
            resolved[key] = nested
    return resolved


def absolute(path: str, folder: Any) -> str:
    """Return the path with `~` and environment variables expanded, resolved from `folder` if it is relative."""
    expanded = os.path.expanduser(os.path.expandvars(path))
    if folder and isinstance(folder, str) and not os.path.isabs(expanded):
        return os.path.normpath(os.path.join(folder, expanded))
    return expanded

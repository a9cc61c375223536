# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""How clusters are reached: variables of the inventory -> the `clusters` and `control` arguments of the modules.

The inventory contract (docs/inventory.md) is read here, and nowhere else. No message repeats a value of a connection:
any of them may be a secret, and a key that is written in the wrong place takes its value with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks import names as eks_names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke import names as gke_names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.constants import SYSTEM_NAMESPACE
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import first_lines, nearest_key, short_value

if TYPE_CHECKING:
    from ansible_collections.modelplane.fleet.plugins.module_utils.core import api

KUBERNETES = "kubernetes"
DIRECTORY = "directory"


def secret_option(key: str, **more: Any) -> dict[str, Any]:
    """The argument spec of a Secret that is named, with the key in it that is meant when none is."""
    return {
        "type": "dict",
        # It says where the Secret is, and holds nothing of it.
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
    "eks": {
        "type": "dict",
        "options": {
            "cluster": {"type": "str", "required": True},
            "region": {"type": "str"},
            "profile": {"type": "str"},
            "role_arn": {"type": "str"},
            "endpoint": {"type": "str"},
        },
    },
    "gke": {
        "type": "dict",
        "options": {
            "project": {"type": "str"},
            "location": {"type": "str", "required": True},
            "cluster": {"type": "str", "required": True},
            "credentials_file": {"type": "path"},
            "endpoint": {"type": "str"},
            "ca_file": {"type": "path"},
        },
    },
    "server": {"type": "str"},
    "token": {"type": "str", "no_log": True},
    "ca_file": {"type": "path"},
    "ca_text": {"type": "str"},
    "proxy": {"type": "str"},
    "tls_server_name": {"type": "str"},
    "verify": {"type": "bool", "default": True},
    "impersonate": {"type": "str"},
}
"""The keys of a connection, as an Ansible argument spec. Here, and not beside the modules' other arguments, because a
filter runs in every task that uses it, and the client library takes a second to import."""

CLUSTER_VARIABLES = (
    "fleet_target",
    "fleet_cluster",
    "fleet_connection",
    "fleet_kubeconfig",
    "fleet_context",
    "fleet_credentials",
    "eks_cluster_accounts",
    "eks_cluster_profile",
    "eks_cluster_role_arn",
    "eks_cluster_endpoint_url",
    "gke_cluster_accounts",
    "gke_cluster_project",
    "gke_cluster_credentials_file",
    "gke_cluster_endpoints",
    "gke_cluster_ca_file",
    "inventory_dir",
)
"""The variables of a host of `workload_clusters` that say how it is reached."""
_LOGINS = {
    "eks": {
        "eks_cluster_profile": "profile",
        "eks_cluster_role_arn": "role_arn",
        "eks_cluster_endpoint_url": "endpoint",
    },
    "gke": {"gke_cluster_credentials_file": "credentials_file", "gke_cluster_ca_file": "ca_file"},
}
"""By the way: variables that win over what is written there."""
PROVISION_VARIABLES = ("fleet_provision", "__fleet_cloud_name")
"""The variables of a host of `workload_clusters` that say whether the fleet creates its cluster. The second one is the
name of the cluster in its cloud in a run that found it absent, and therefore has no connection."""
CONTROL_VARIABLES = ("fleet_control", "fleet_control_kubeconfig", "inventory_dir")
"""The variables of the host of `control_plane` that say how the control cluster is reached."""

WAYS = ("kubeconfig", "kubeconfig_text", "secret", "eks", "gke", "server")
"""Keys of which a connection has exactly one; `context` alone means the user's own kubeconfig."""
LITERAL_SECRETS = ("token", "kubeconfig_text")
_WITH_CONTEXT = ("kubeconfig", "kubeconfig_text", "secret")
# What belongs to one way of reaching a cluster, and goes when another way takes its place.
_OF_A_WAY = (*WAYS, "context", "token", "ca_file", "ca_text")
_MOST_PROBLEMS = 20


class ConnectionsError(Exception):
    """Variables say nothing that can be used; `problems` has a line for each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(first_lines(problems, _MOST_PROBLEMS)))
        self.problems = tuple(problems)


def clusters(hosts: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The `clusters` argument for `hosts` (inventory name -> variables), in their order, without those that are files
    only. Raises ConnectionsError with all problems of all hosts."""
    found: dict[str, dict[str, Any]] = {}
    places: dict[str, str] = {}
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
        if name in found:
            problems.append(f"{host}: fleet_cluster is {name}, as of host {places[name]}: one host for each cluster")
            continue
        found[name], places[name] = connection, host
    if problems:
        raise ConnectionsError(problems)
    return list(found.values())


def is_unused(variables: Mapping[str, Any]) -> bool:
    """Whether somebody says where a cluster's kubeconfig is that is files only."""
    shorthands = ("fleet_kubeconfig", "fleet_context")
    return variables.get("fleet_target") == DIRECTORY and any(variables.get(name) for name in shorthands)


def provisioned(host: str, variables: Mapping[str, Any], known: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the entry of `known` for the cluster of a host if the fleet creates it in a cloud, else nothing.

    Raises ConnectionsError.
    """
    about = known.get(variables.get("fleet_cluster") or host) or {}
    if variables.get("fleet_provision", "managed") != "managed" or not about.get("provider"):
        return {}
    way = (cluster_connection(host, variables) or {}).get(about["provider"]) or {}
    if (variables.get("__fleet_cloud_name") or way.get("cluster")) != about["cloud_name"]:
        return {}
    return about if way.get("project") in (None, "", about["project"]) or not about["project"] else {}


def cluster_connection(host: str, variables: Mapping[str, Any]) -> dict[str, Any] | None:
    """One entry of the `clusters` argument, None for a cluster that is files only. Raises ConnectionsError."""
    given = [name for name in ("fleet_kubeconfig", "fleet_context", "fleet_connection") if variables.get(name)]
    target = variables.get("fleet_target")
    if target is None and given:
        raise ConnectionsError(
            [
                f"{host}: {given[0]} is set, and fleet_target is not: set fleet_target to {KUBERNETES} to work on the "
                f"cluster, or to {DIRECTORY} to write files only"
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
    for way in _LOGINS:
        if not problems and way in connection:
            connection[way] = _logged_in(host, way, connection[way], variables, problems)
    if not problems:
        problems.extend(_contradictions(f"{host}: fleet_connection", connection))
    if not problems and not _ways(connection) and "context" not in connection:
        problems.append(
            f"{host}: fleet_target is {KUBERNETES}, and nothing says how to reach the cluster: set fleet_kubeconfig, "
            f"or one of {', '.join(WAYS)} in fleet_connection"
        )
    if problems:
        raise ConnectionsError(problems)
    return {"name": str(name), **_absolute(connection, variables.get("inventory_dir"))}


def control_connection(host: str, variables: Mapping[str, Any]) -> dict[str, Any] | None:
    """The `control` argument, None for a fleet without a control cluster. Raises ConnectionsError."""
    where = f"{host}: fleet_control"
    problems: list[str] = []
    connection = _written(where, variables.get("fleet_control"), problems)
    kubeconfig = variables.get("fleet_control_kubeconfig")
    if kubeconfig:
        if isinstance(kubeconfig, str):
            connection = {key: value for key, value in connection.items() if key not in _OF_A_WAY}
            connection["kubeconfig"] = kubeconfig
        else:
            problems.append(f"{host}: fleet_control_kubeconfig must be text{_not_text(kubeconfig)}")
    problems = problems or (_control_problems(where, connection) if connection else [])
    if problems:
        raise ConnectionsError(problems)
    return _absolute(connection, variables.get("inventory_dir")) if connection else None


def checked_control(where: str, value: Any, folder: str) -> dict[str, Any]:
    """A connection to the control cluster that is written at `where`; relative paths start from `folder`. Raises
    ConnectionsError, also for a secret in it: what is written there becomes a variable, and variables are shown."""
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


def of_manifest(cluster: api.InferenceCluster | api.EKSCluster | api.GKECluster) -> dict[str, Any]:
    """How a cluster is reached as its manifest tells it, empty when it does not.

    An Existing cluster by its kubeconfig, a Secret on the control cluster. A cluster that is built for the fleet by its
    name in the cloud, which follows from the manifest's name. The kubeconfigs of AKS, Nebius and Vultr are not told by
    manifests.
    """
    # Reading options needs no pydantic, which importing the kinds does.
    from ansible_collections.modelplane.fleet.plugins.module_utils.core import api

    if isinstance(cluster, api.EKSCluster):
        return {"eks": {"cluster": eks_name(cluster.name, cluster.namespace), "region": cluster.spec.region}}
    if isinstance(cluster, api.GKECluster):
        return _gke(cluster.spec, gke_name(cluster.name, cluster.namespace))
    source = cluster.spec.cluster
    if source.source == "Existing" and source.existing is not None:
        ref = source.existing.secret_ref
        return {"secret": {"namespace": SYSTEM_NAMESPACE, "name": ref.name, "key": ref.key}}
    if source.source == "EKS" and source.eks is not None:
        return {"eks": {"cluster": eks_name(cluster.name), "region": source.eks.region}}
    if source.source == "GKE" and source.gke is not None:
        return _gke(source.gke, gke_name(cluster.name))
    return {}


def _gke(place: Any, name: str) -> dict[str, Any]:
    project = {"project": place.project} if place.project else {}
    return {"gke": {**project, "location": place.region, "cluster": name}}


def target_of(connection: Mapping[str, Any], control: bool) -> str:
    """The `fleet_target` of a cluster that is reached so. `control`: whether its Secret can be read."""
    if not connection or ("secret" in connection and not control):
        return DIRECTORY
    try:
        __ = cluster_connection("", {"fleet_target": KUBERNETES, "fleet_connection": connection, "fleet_cluster": "-"})
    except ConnectionsError:
        return DIRECTORY
    return KUBERNETES


def eks_name(cluster: str, namespace: str = SYSTEM_NAMESPACE) -> str:
    """The name in AWS of the EKS cluster that is built for an InferenceCluster, or for an EKSCluster."""
    return eks_names.cluster_name(namespace, cluster)


def gke_name(cluster: str, namespace: str = SYSTEM_NAMESPACE) -> str:
    """The name in Google Cloud of the GKE cluster that is built for an InferenceCluster, or for a GKECluster, at most
    40 characters."""
    return gke_names.cluster_name(namespace, cluster)


def _shorten(host: str, connection: dict[str, Any], variables: Mapping[str, Any], problems: list[str]) -> None:
    """Put the shorthands in; a way that one of them replaces goes with all that belongs to it."""
    for name in ("fleet_kubeconfig", "fleet_context"):
        value = variables.get(name)
        if not value:
            continue
        if not isinstance(value, str):
            problems.append(f"{host}: {name} must be text{_not_text(value)}")
            continue
        key = name.removeprefix("fleet_")
        if key == "kubeconfig" or not any(way in connection for way in _WITH_CONTEXT):
            for other in _OF_A_WAY:
                connection.pop(other, None)
        connection[key] = value


def _logged_in(
    host: str, way: str, written: Mapping[str, Any], variables: Mapping[str, Any], problems: list[str]
) -> dict[str, Any]:
    """A cluster in a cloud with the login that makes it, as who made it may work on it: the variables of the role that
    makes it win over what is written, and that over the account of the cluster's credentials. The project is that of
    the cluster, so what is written of it wins."""
    accounts = variables.get(f"{way}_cluster_accounts") or {}
    name = variables.get("fleet_credentials") or "default"
    account = accounts.get(name) if isinstance(accounts, Mapping) else None
    found = {}
    for key, value in account.items() if isinstance(account, Mapping) else ():
        if key not in OPTIONS[way]["options"]:
            hint = nearest_key(key, OPTIONS[way]["options"])
            problems.append(f"{host}: {way}_cluster_accounts.{name}.{key} is not a known key. {hint}")
        elif value:
            found[key] = value
    if variables.get("gke_cluster_project") and way == "gke":
        found["project"] = variables["gke_cluster_project"]
    found.update(written)
    found.update((key, variables[name]) for name, key in _LOGINS[way].items() if variables.get(name))
    endpoints = variables.get("gke_cluster_endpoints")
    if way == "gke" and isinstance(endpoints, Mapping) and endpoints.get("container"):
        found["endpoint"] = endpoints["container"]
    return _options(f"{host}: login of fleet_connection.{way}", found, OPTIONS[way]["options"], problems)


def _written(where: str, value: Any, problems: list[str]) -> dict[str, Any]:
    """The keys of a connection that have a value; problems of unknown keys and wrong types are added."""
    if value is None or value == "":
        return {}
    return _options(where, value, OPTIONS, problems)


def _options(where: str, value: Any, known: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        problems.append(f"{where} must be a mapping of keys, and is none")
        return {}
    found: dict[str, Any] = {}
    for key, item in value.items():
        if key not in known:
            problems.append(f"{where}.{key} is not a known key. {nearest_key(key, known)}")
        elif item is not None and item != "":
            found[str(key)] = _option(f"{where}.{key}", item, known[key], problems)
    problems.extend(
        f"{where}.{key} is missing" for key, option in known.items() if option.get("required") and key not in found
    )
    return found


def _option(where: str, value: Any, option: Mapping[str, Any], problems: list[str]) -> Any:
    kind = option["type"]
    if kind == "dict":
        return _options(where, value, option["options"], problems)
    if kind == "bool":
        # Extra variables of the form `-e key=value` are text.
        if not isinstance(value, bool) and str(value).lower() not in ("true", "false", "yes", "no"):
            problems.append(f"{where} must be true or false")
    elif not isinstance(value, str):
        problems.append(f"{where} must be text{_not_text(value)}")
    return value


def _not_text(value: Any) -> str:
    return f", is {short_value(value)}" if isinstance(value, (Mapping, list, tuple)) else ": write it in quotes"


def _ways(connection: Iterable[str]) -> list[str]:
    """The ways that are given. A server beside a name in a cloud is no other way: it spares asking the cloud for it."""
    ways = [way for way in WAYS if way in connection]
    return [way for way in ways if way != "server" or not {"eks", "gke"} & set(ways)]


def _contradictions(where: str, connection: Mapping[str, Any]) -> list[str]:
    ways = _ways(connection)
    problems = []
    if len(ways) > 1:
        problems.append(f"{where}: {' and '.join(ways)} are different ways to reach one cluster: keep one")
    elif "context" in connection and ways and ways[0] not in _WITH_CONTEXT:
        problems.append(f"{where}: context is a part of a kubeconfig, and cannot stand beside {ways[0]}")
    elif "token" in connection and ways != ["server"]:
        problems.append(f"{where}: token goes with server, and cannot stand {f'beside {ways[0]}' if ways else 'alone'}")
    if "ca_file" in connection and "ca_text" in connection:
        problems.append(f"{where}: ca_file and ca_text are the same thing: keep one")
    return problems


def _control_problems(where: str, connection: Mapping[str, Any]) -> list[str]:
    problems = _contradictions(where, connection)
    if "secret" in connection:
        problems.append(
            f"{where}.secret is on the control cluster itself: give a kubeconfig or another way to reach it"
        )
    if not _ways(connection) and "context" not in connection:
        ways = ", ".join(way for way in WAYS if way != "secret")
        problems.append(f"{where} does not say how to reach the control cluster: give one of {ways}")
    return problems


def _absolute(connection: dict[str, Any], folder: Any) -> dict[str, Any]:
    """With relative paths made to start from `folder`, if there is one."""
    found = dict(connection)
    for key, option in OPTIONS.items():
        if key in found and option["type"] == "path":
            found[key] = absolute(found[key], folder)
        elif key in found and option["type"] == "dict":
            nested = dict(found[key])
            for inner, its in option["options"].items():
                if inner in nested and its["type"] == "path":
                    nested[inner] = absolute(nested[inner], folder)
            found[key] = nested
    return found


def absolute(path: str, folder: Any) -> str:
    """`path` with `~` and environment variables in it replaced, from `folder` on where it is relative."""
    expanded = os.path.expanduser(os.path.expandvars(path))
    if folder and isinstance(folder, str) and not os.path.isabs(expanded):
        return os.path.normpath(os.path.join(folder, expanded))
    return expanded

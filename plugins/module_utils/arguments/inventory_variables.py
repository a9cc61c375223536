# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The variables that the playbooks read, and what is wrong with those of an inventory."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.errors import UnsupportedError
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import connections
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.hosts import AllowedHosts
from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import is_dns_label
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import SELECTOR_BUDGET
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import MISSPELT, nearest, nearest_key, some

PREFIX = "fleet_"
SCHEDULING: dict[str, Any] = {
    "accounting": {"type": "str", "choices": ["Devices", "Nodes"], "default": "Devices"},
    "search": {"type": "str", "choices": ["Exact", "Greedy"], "default": "Exact"},
    "selector_budget": {"type": "int", "default": SELECTOR_BUDGET},
    "invalid": {"type": "str", "choices": ["fail", "hold"], "default": "fail"},
}
IMAGES = ("picker", "sidecar", "hydration", "egress")
NETWORK: dict[str, Any] = {
    "network_policies": {"type": "bool", "default": True},
    "network_sources": {
        "type": "dict",
        "options": {name: {"type": "list", "elements": "str"} for name in ("gateway", "metrics")},
    },
}
OF_FLEET: dict[str, Any] = {
    "fleet_resources": {"type": "list", "elements": "str"},
    "fleet_build": {"type": "str"},
    "fleet_name": {"type": "str"},
    "fleet_wait": {"type": "float"},
    "fleet_rounds": {"type": "int"},
    "fleet_lease": {"type": "float"},
    "fleet_forks": {"type": "int"},
    "fleet_timeout": {"type": "float"},
    "fleet_retries": {"type": "int"},
    "fleet_answer_limit": {"type": "int"},
    "fleet_force": {"type": "bool"},
    "fleet_definitions": {"type": "bool"},
    "fleet_control_gateway": {"type": "str", "choices": ["managed", "provided"]},
    "fleet_drain": {"type": "list", "elements": "str"},
    "fleet_report": {"type": "str"},
    "fleet_loop_interval": {"type": "float"},
    "fleet_loop_resync": {"type": "float"},
    "fleet_loop_turns": {"type": "int"},
    "fleet_rollout": {"type": "int"},
    "fleet_stream_grace": {"type": "int"},
    "fleet_allow_empty": {"type": "bool"},
    "fleet_endpoint_hosts": {"type": "list", "elements": "str"},
    "fleet_images": {"type": "dict", "options": {name: {"type": "str"} for name in IMAGES}},
    **{
        f"fleet_{name}": {key: part for key, part in option.items() if key != "default"}
        for name, option in NETWORK.items()
    },
    "fleet_lock_timeout": {"type": "float"},
    "fleet_table_width": {"type": "int"},
    "fleet_observations": {"type": "str"},
    **{
        f"fleet_{name}": {key: value for key, value in option.items() if key != "default"}
        for name, option in SCHEDULING.items()
    },
}
"""Variables of the host of `control_plane`, as an Ansible argument spec. What a value may be beyond that is said by the
module that takes it."""
LEAST: Mapping[str, float] = {
    "fleet_wait": 0,
    "fleet_rounds": 1,
    "fleet_lease": 1,
    "fleet_forks": 1,
    "fleet_timeout": 1,
    "fleet_retries": 0,
    "fleet_answer_limit": 1,
    "fleet_loop_interval": 0,
    "fleet_loop_resync": 0,
    "fleet_loop_turns": 1,
    "fleet_rollout": 1,
    "fleet_stream_grace": 0,
    "fleet_lock_timeout": 0,
    "fleet_table_width": 60,
    "fleet_selector_budget": 1,
}
"""The least that a number may be."""
OF_CLUSTER: dict[str, Any] = {
    "fleet_drained": {"type": "bool"},
    "fleet_serving_stack": {"type": "str", "choices": ["managed", "provided"]},
    "fleet_provision": {"type": "str", "choices": ["managed", "provided"]},
    "fleet_credentials": {"type": "str"},
    "fleet_source": {"type": "raw"},
    "fleet_region": {"type": "raw"},
    "fleet_labels": {"type": "raw"},
}
"""Variables of hosts of `workload_clusters` beside those that `connections` reads."""
KNOWN = frozenset(
    name
    for names in (OF_FLEET, OF_CLUSTER, connections.CLUSTER_VARIABLES, connections.CONTROL_VARIABLES)
    for name in names
    if name.startswith(PREFIX)
)


OF_PLAYBOOKS = ("serving_stack_state", "existing_cluster_state", "eks_cluster_state", "gke_cluster_state")
"""Variables that begin as those of roles, and say which tasks of a role a playbook runs."""
_NONE: Mapping[str, Collection[str]] = MappingProxyType({})
CONTROL_PLANE = "control_plane"
WORKLOAD_CLUSTERS = "workload_clusters"
_LIKE = {
    CONTROL_PLANE: re.compile("control(clusters?)?$"),
    WORKLOAD_CLUSTERS: re.compile("(workload|inference|fleet)?clusters?$|workloads?$"),
}
"""The groups that playbooks look for, and other names, without all but letters and digits, that mean them."""


def problems(
    host: str,
    fleet: Mapping[str, Any],
    clusters: Mapping[str, Mapping[str, Any]],
    *,
    build: bool,
    of_roles: Mapping[str, Collection[str]] = _NONE,
    groups: Mapping[str, Collection[str]] = _NONE,
) -> list[str]:
    """A line for each thing that is wrong: with the variables of the host of the fleet, and of those of clusters (by
    host). `build`: whether there have to be manifests and a build folder. `of_roles`: what variables of roles begin
    with, and those that there are. `groups`: the groups of the inventory with their hosts. Of what makes up a
    connection no value is repeated."""
    known = {PREFIX: KNOWN, **{prefix: {*names, *OF_PLAYBOOKS} for prefix, names in of_roles.items()}}
    found = misnamed(groups) + _unknown({host: fleet, **clusters}, known)
    found += [f"{host}: {message}" for message in _wrong(fleet, OF_FLEET)]
    for name, variables in clusters.items():
        found += [f"{name}: {message}" for message in _wrong(variables, OF_CLUSTER)]
    control = None
    try:
        control = connections.control_connection(host, fleet)
    except connections.ConnectionsError as error:
        found += error.problems
    try:
        connections.clusters(clusters)
    except connections.ConnectionsError as error:
        found += error.problems
    if build and not fleet.get("fleet_build"):
        found.append(f"{host}: fleet_build is not set: it is the folder for what is built")
    if build and not (fleet.get("fleet_resources") or control or fleet.get("fleet_control")):
        found.append(f"{host}: fleet_resources is not set: it says where the manifests of the fleet are")
    return found


def misnamed(groups: Mapping[str, Collection[str]]) -> list[str]:
    """A line for each group that playbooks look for in vain while there is one with a similar name, and one for an
    inventory with hosts none of which is of the fleet. No inventory at all is fine: a fleet may be files only."""
    if not set(groups.get("all") or ()) - {"localhost"}:
        return []
    others = [name for name in sorted(groups) if groups[name] and name not in ("all", "ungrouped")]
    missing = [name for name in _LIKE if not groups.get(name)]
    found = []
    # A group that is there and empty, as with a source that has found no cluster yet, is not misspelt.
    for name in (each for each in missing if each not in groups):
        alike = _alike(name, others)
        if alike:
            found.append(
                f"the inventory has a group {alike}, which no playbook of modelplane.fleet reads, and no host in "
                f"{name}. Did you mean {name}?"
            )
    if not found and len(missing) == 2:
        shown = f"its groups are {', '.join(others[:10])}" if others else "its hosts are in no group"
        found.append(
            f"nothing of the fleet is a host of the inventory: no host is in {CONTROL_PLANE} or {WORKLOAD_CLUSTERS}, "
            f"and {shown}. Name them so, or run without an inventory (-i localhost,) for a fleet that is files only"
        )
    return found


def _alike(name: str, names: Iterable[str]) -> str:
    """Return the name of the group that was meant, "" for none."""
    others = [each for each in names if each not in _LIKE]
    # Kubespray's kube_control_plane is a group of its own.
    near = nearest(name, others, MISSPELT)
    return near or next((each for each in others if _LIKE[name].match(_folded(each))), "")


def _folded(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))


def _unknown(hosts: Mapping[str, Mapping[str, Any]], known: Mapping[str, Collection[str]]) -> list[str]:
    """Variables that nobody reads, and begin as those do that somebody reads. One that all hosts have is told once."""
    of_variable: dict[str, list[str]] = {}
    for host, variables in hosts.items():
        for name in variables:
            if any(name.startswith(prefix) and name not in names for prefix, names in known.items()):
                of_variable.setdefault(name, []).append(host)
    return [
        f"{some(found, 1)}: {name} is no variable of modelplane.fleet{_hint(name, known)}"
        for name, found in sorted(of_variable.items())
    ]


def _hint(name: str, known: Mapping[str, Collection[str]]) -> str:
    prefix = next(each for each in known if name.startswith(each))
    # What all of them begin with would make all of them look alike.
    hint = nearest_key(name.removeprefix(prefix), (each.removeprefix(prefix) for each in known[prefix]))
    hint = hint.replace("mean ", f"mean {prefix}") if hint.startswith("Did") else "Give one of your own another name"
    return f", which all begin with {prefix}. {hint}" if prefix == PREFIX else f"'s roles. {hint}"


def network_problems(sources: Mapping[str, Any] | None, name: str) -> list[str]:
    """A line for each thing that is wrong with `network_sources`, which is called `name`."""
    given = {key: places for key, places in (sources or {}).items() if places is not None}
    found = [
        f"{name}.{key}: {place!r} is no name of a namespace"
        for key, places in given.items()
        for place in places
        if not is_dns_label(place)
    ]
    if given.get("gateway") == []:
        found.append(f"{name}.gateway is empty, so that no request would reach an engine: name where gateways run")
    return found


def _wrong(variables: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterable[str]:
    given = {name: variables[name] for name in spec if variables.get(name) is not None}
    found = ArgumentSpecValidator(dict(spec)).validate(given)
    if found.error_messages:
        return [f"unknown key {error}" if isinstance(error, UnsupportedError) else str(error) for error in found.errors]
    read = found.validated_parameters
    wrong = [
        f"{name} is {read[name]:g}, and must be at least {least:g}"
        for name, least in LEAST.items()
        if read.get(name) is not None and not least <= read[name] < float("inf")
    ]
    wrong += network_problems(read.get("fleet_network_sources"), "fleet_network_sources")
    try:
        AllowedHosts.of(read.get("fleet_endpoint_hosts") or ())
    except ValueError as error:
        wrong.append(f"fleet_endpoint_hosts: {error}")
    if read.get("fleet_name") is not None and not is_dns_label(read["fleet_name"]):
        wrong.append("fleet_name must be lower case letters, digits and -, up to 63 characters")
    return wrong

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Variables that the playbooks read, and their validation."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.errors import UnsupportedError
from ansible.module_utils.parsing.convert_bool import boolean

from ..core.api import corrections
from ..core.api.pod_template import MOST_GRACE_SECONDS
from ..core.api.shape import Shape
from ..core.cloud import registry
from ..core.compose import images
from ..core.compose.hosts import AllowedHosts
from ..core.compose.termination import STOP_SECONDS
from ..core.names import is_dns_label
from ..core.output.outcome import STRICT
from ..core.scheduling.model import SELECTOR_BUDGET
from ..core.scheduling.search_budget import SEARCH_BUDGET
from ..core.text import MISSPELT, nearest, nearest_key, short_value, some
from . import connections, notifications, questions

PREFIX = "fleet_"
SCHEDULING: dict[str, Any] = {
    "accounting": {"type": "str", "choices": ["Devices", "Nodes"], "default": "Devices"},
    "search": {"type": "str", "choices": ["Exact", "Greedy"], "default": "Exact"},
    "search_budget": {"type": "int", "default": SEARCH_BUDGET},
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
    "export_pools": {"type": "bool", "default": False},
}
OF_FLEET: dict[str, Any] = {
    "fleet_resources": {"type": "list", "elements": "str"},
    "fleet_build": {"type": "str"},
    "fleet_name": {"type": "str"},
    "fleet_wait": {"type": "float"},
    "fleet_rounds": {"type": "int"},
    "fleet_lease": {"type": "float"},
    "fleet_decision": {"type": "int"},
    "fleet_forks": {"type": "int"},
    "fleet_timeout": {"type": "float"},
    "fleet_retries": {"type": "int"},
    "fleet_answer_limit": {"type": "int"},
    "fleet_force": {"type": "bool"},
    "fleet_definitions": {"type": "bool"},
    "fleet_control_gateway": {"type": "str", "choices": ["managed", "provided"]},
    "fleet_drain": {"type": "list", "elements": "str"},
    "fleet_keys_state": {"type": "str", "choices": ["present", "rotated", "retired", "revoked"]},
    "fleet_keys_callers": {"type": "list", "elements": "str"},
    # The name of a Secret, not its content.
    "fleet_keys_secret": {"type": "str", "no_log": False},
    "fleet_keys_labels": {"type": "dict"},
    "fleet_keys_grace": {"type": "int"},
    "fleet_keys_force": {"type": "bool"},
    "fleet_keys_file": {"type": "str"},
    "fleet_report": {"type": "list", "elements": "str"},
    "fleet_output": {"type": "str", "choices": ["table", "json", "yaml"]},
    "fleet_query": {"type": "str"},
    "fleet_strict": {"type": "list", "elements": "str", "choices": list(STRICT)},
    "fleet_detailed_exit": {"type": "bool"},
    "fleet_notify": {"type": "raw"},
    "fleet_loop_interval": {"type": "float"},
    "fleet_loop_resync": {"type": "float"},
    "fleet_loop_turns": {"type": "int"},
    "fleet_rollout": {"type": "int"},
    "fleet_stream_grace": {"type": "int"},
    "fleet_allow_empty": {"type": "bool"},
    "fleet_allow_outage": {"type": "bool"},
    "fleet_rollout_staged": {"type": "bool"},
    "fleet_remove_unknown": {"type": "bool"},
    "fleet_endpoint_hosts": {"type": "list", "elements": "str"},
    "fleet_images": {"type": "dict", "options": {name: {"type": "str"} for name in IMAGES}},
    **{
        f"fleet_{name}": {key: content for key, content in option.items() if key != "default"}
        for name, option in NETWORK.items()
    },
    "fleet_lock_timeout": {"type": "float"},
    "fleet_table_width": {"type": "int"},
    "fleet_observations": {"type": "str"},
    "fleet_what_if": {"type": "raw"},
    "fleet_survive": {"type": "raw"},
    "fleet_prices": {"type": "str"},
    "fleet_price_logins": {"type": "raw"},
    **{
        f"fleet_{name}": {key: value for key, value in option.items() if key != "default"}
        for name, option in SCHEDULING.items()
    },
}
"""Variables of the host of `control_plane`, as an Ansible argument spec. Modules validate their values further."""
LEAST: Mapping[str, float] = {
    "fleet_wait": 0,
    "fleet_rounds": 1,
    "fleet_lease": 1,
    "fleet_decision": 0,
    "fleet_forks": 1,
    "fleet_timeout": 1,
    "fleet_retries": 0,
    "fleet_answer_limit": 1,
    "fleet_loop_interval": 0,
    "fleet_loop_resync": 0,
    "fleet_loop_turns": 1,
    "fleet_keys_grace": 0,
    "fleet_rollout": 1,
    "fleet_stream_grace": 0,
    "fleet_lock_timeout": 0,
    "fleet_table_width": 60,
    "fleet_search_budget": 0,
    "fleet_selector_budget": 1,
}
"""Minimum values of numbers."""
_HOUR, _DAY = 3600, 86400
MOST: Mapping[str, float] = {
    # With the rest of the grace period, a terminationGracePeriodSeconds of one day. The pod uses its devices, and a
    # drain of its node takes, until the period ends.
    "fleet_stream_grace": MOST_GRACE_SECONDS - STOP_SECONDS,
    # The lock of a killed run blocks all other runs until it expires.
    "fleet_lease": _HOUR,
    # A server that does not respond blocks a run until the timeout, once for each attempt.
    "fleet_timeout": _HOUR,
    # A longer time is a mistake, such as milliseconds. Python cannot sleep for some of these times.
    **dict.fromkeys(("fleet_wait", "fleet_lock_timeout", "fleet_loop_interval", "fleet_loop_resync"), _DAY),
    # Retired API keys stay valid until the grace period ends.
    "fleet_keys_grace": 366 * _DAY,
}
"""Maximum values of durations in seconds."""
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
ARTIFACTS = ("fleet_outcome",)
"""Results that playbooks publish, which AWX hands to the next node of a workflow as variables."""
KNOWN = frozenset(
    name
    for names in (OF_FLEET, OF_CLUSTER, ARTIFACTS, connections.CLUSTER_VARIABLES, connections.CONTROL_VARIABLES)
    for name in names
    if name.startswith(PREFIX)
)


_CLOUD_STATES = tuple(f"{name}_cluster_state" for name in registry.BY_NAME)
OF_PLAYBOOKS = (
    "serving_stack_state",
    "existing_cluster_state",
    *_CLOUD_STATES,
)
"""Variables with prefixes of roles that determine which tasks of a role a playbook runs."""
_TYPES: Mapping[str, tuple[str, tuple[type, ...]]] = {
    "bool": ("true or false", (bool,)),
    "int": ("a whole number", (int,)),
    "float": ("a number", (int, float)),
    "dict": ("a mapping", (Mapping,)),
    "list": ("a list", (list, tuple)),
}
"""Types of argument specs in words, and as values."""
_NONE: Mapping[str, Collection[str]] = MappingProxyType({})
_ONE = {"fleet_prices": ": a fleet has one price catalog. Write all prices into one file, and its path here"}
CONTROL_PLANE = "control_plane"
WORKLOAD_CLUSTERS = "workload_clusters"
_LIKE = {
    CONTROL_PLANE: re.compile("control(clusters?)?$"),
    WORKLOAD_CLUSTERS: re.compile("(workload|inference|fleet)?clusters?$|workloads?$"),
}
"""Groups that playbooks use, and patterns for similar names, reduced to letters and digits."""


OF_HOSTS = (
    *("fleet_cluster", "fleet_target", "fleet_drained", "fleet_serving_stack", "fleet_provision"),
    "__fleet_cloud_name",
    *_CLOUD_STATES,
)
"""Variables of hosts of `workload_clusters` that `fleet_hosts` reads."""
_INSTALLED = (
    "aigateway.envoyproxy.io",
    "cert-manager.io",
    "gateway.envoyproxy.io",
    "gateway.networking.k8s.io",
    "inference.networking.k8s.io",
    "leaderworkerset.x-k8s.io",
    "metallb.io",
    "trust.cert-manager.io",
)
"""API groups that the serving stack and the gateway of the control cluster serve."""


def is_blank(value: Any) -> bool:
    """Return whether a variable counts as unset. AWX passes a blank survey field as empty text."""
    return value is None or (isinstance(value, str) and not value.strip())


def set_values(variables: Mapping[str, Any], spec: Mapping[str, Any] = OF_FLEET) -> dict[str, Any]:
    """Return the variables of an argument spec that have a value. Comma-separated text of a list variable is split."""
    values = {name: variables[name] for name in spec if name in variables}
    return {
        name: _listed(value) if spec[name]["type"] == "list" and isinstance(value, str) else value
        for name, value in values.items()
        if not is_blank(value)
    }


def fleet_hosts(
    fleet: Mapping[str, Any], clusters: Mapping[str, Mapping[str, Any]], play_hosts: Collection[str]
) -> dict[str, Any]:
    """Return the clusters of a run by role (in the run, file-based, drained, absent), in the order of `clusters`.

    `fleet`: the variables of the host of the fleet. `play_hosts`: the hosts of this run.
    """
    names = {host: str(variables.get("fleet_cluster") or host) for host, variables in clusters.items()}
    files = [host for host in clusters if clusters[host].get("fleet_target") != connections.KUBERNETES]
    run_clusters = [clusters[host] for host in clusters if host in play_hosts]
    managed = {str(variables.get("fleet_serving_stack") or "managed") for variables in run_clusters}
    managed.add(str(fleet.get("fleet_control_gateway") or "managed"))
    drained = [names[host] for host in clusters if boolean(clusters[host].get("fleet_drained") or False, strict=False)]
    return {
        "names": list(names.values()),
        "declared": [names[host] for host in files],
        "others": [names[host] for host in clusters if host not in play_hosts and host not in files],
        "drain": list(dict.fromkeys([*_listed(fleet.get("fleet_drain")), *drained])),
        "absent": [variables["__fleet_cloud_name"] for variables in run_clusters if "__fleet_cloud_name" in variables],
        "provided": [names[host] for host in clusters if clusters[host].get("fleet_provision") == "provided"],
        "removes": any(variables.get(name) == "absent" for variables in run_clusters for name in _CLOUD_STATES),
        "pending_api_groups": list(_INSTALLED) if managed == {"managed"} else [],
    }


def _listed(value: Any) -> list[str]:
    """Return names that are given one by one, in a list, or with commas between."""
    entries = value if isinstance(value, (list, tuple)) else [value or ""]
    return [name.strip() for entry in entries for name in str(entry).split(",") if name.strip()]


def problems(
    host: str,
    fleet: Mapping[str, Any],
    clusters: Mapping[str, Mapping[str, Any]],
    *,
    build: bool,
    of_roles: Mapping[str, Collection[str]] = _NONE,
    groups: Mapping[str, Collection[str]] = _NONE,
) -> list[str]:
    """Return a line for each problem of the variables of the host of the fleet and of those of clusters (by host).

    `build`: manifests and a build folder are required. `of_roles`: known variables of roles by their prefix. `groups`:
    groups of the inventory with their hosts. Messages do not contain values of connections."""
    known_names = {PREFIX: KNOWN, **{prefix: {*names, *OF_PLAYBOOKS} for prefix, names in of_roles.items()}}
    problem_lines = misnamed(groups) + _unknown({host: fleet, **clusters}, known_names)
    fleet = _without_blanks(fleet)
    clusters = {name: _without_blanks(variables) for name, variables in clusters.items()}
    problem_lines += [f"{host}: {message}" for message in _wrong(fleet, OF_FLEET)]
    for name, variables in clusters.items():
        problem_lines += [f"{name}: {message}" for message in _wrong(variables, OF_CLUSTER)]
    control = None
    try:
        control = connections.control_connection(host, fleet)
    except connections.ConnectionsError as error:
        problem_lines += error.problems
    try:
        connections.clusters(clusters)
    except connections.ConnectionsError as error:
        problem_lines += error.problems
    # Without a host in control_plane, the variables of localhost count, which is in no group but all.
    where = "" if not groups or groups.get(CONTROL_PLANE) else f" in group_vars/all, or for a host in {CONTROL_PLANE}"
    if build and not fleet.get("fleet_build"):
        problem_lines.append(f"{host}: fleet_build is not set: set it to the build folder{where}")
    if build and not (fleet.get("fleet_resources") or control or fleet.get("fleet_control")):
        problem_lines.append(f"{host}: fleet_resources is not set: set it to the manifests of the fleet{where}")
    return problem_lines


def _without_blanks(variables: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in variables.items() if not is_blank(value)}


def misnamed(groups: Mapping[str, Collection[str]]) -> list[str]:
    """Return a line for each missing group while there is one with a similar name, and one for an inventory without a
    host of the fleet. An empty inventory is accepted: a fleet may be files only."""
    if not set(groups.get("all") or ()) - {"localhost"}:
        return []
    other_groups = [name for name in sorted(groups) if groups[name] and name not in ("all", "ungrouped")]
    missing = [name for name in _LIKE if not groups.get(name)]
    problem_lines = []
    # An existing empty group, as of an inventory plugin that has found no cluster yet, is not misspelt.
    for name in (group for group in missing if group not in groups):
        alike = _alike(name, other_groups)
        if alike:
            problem_lines.append(
                f"the inventory has a group {alike}, which no playbook of modelplane.fleet uses, but no host in "
                f"{name}. Did you mean {name}?"
            )
    if not problem_lines and len(missing) == 2:
        group_summary = (
            f"its groups are {', '.join(other_groups[:10])}" if other_groups else "its hosts are in no group"
        )
        problem_lines.append(
            f"the inventory has no host of the fleet: no host is in {CONTROL_PLANE} or {WORKLOAD_CLUSTERS}, and "
            f"{group_summary}. Use these groups, or run without an inventory (-i localhost,) for a fleet of files only"
        )
    return problem_lines


def _alike(name: str, names: Iterable[str]) -> str:
    """Return the name of a group that is probably a misspelling, "" for none."""
    candidates = [candidate for candidate in names if candidate not in _LIKE]
    # Kubespray's kube_control_plane is a group of its own.
    near = nearest(name, candidates, MISSPELT)
    return near or next((candidate for candidate in candidates if _LIKE[name].match(_folded(candidate))), "")


def _folded(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))


def _unknown(hosts: Mapping[str, Mapping[str, Any]], known: Mapping[str, Collection[str]]) -> list[str]:
    """Return a line for each unknown variable with a known prefix, with one of its hosts."""
    of_variable: dict[str, list[str]] = {}
    for host, variables in hosts.items():
        for name in variables:
            if any(name.startswith(prefix) and name not in names for prefix, names in known.items()):
                of_variable.setdefault(name, []).append(host)
    return [
        f"{some(variable_hosts, 1)}: {name} is not a variable of modelplane.fleet{_hint(name, known)}"
        for name, variable_hosts in sorted(of_variable.items())
    ]


def _hint(name: str, known: Mapping[str, Collection[str]]) -> str:
    prefix = next(known_prefix for known_prefix in known if name.startswith(known_prefix))
    # The common prefix would make all names similar.
    hint = nearest_key(name.removeprefix(prefix), (known_prefix.removeprefix(prefix) for known_prefix in known[prefix]))
    hint = hint.replace("mean ", f"mean {prefix}") if hint.startswith("Did") else "Rename your own variables"
    return f", which all begin with {prefix}. {hint}" if prefix == PREFIX else f"'s roles. {hint}"


def image_problems(given: Mapping[str, Any] | None, name: str) -> list[str]:
    """Return a line for each value of `images` that no container runtime can pull; messages call them `name`."""
    return [
        f"{name}.{key} is {image!r}, and must be a reference to an image, such as registry.example.com/folder/name:tag"
        for key, image in (given or {}).items()
        if image and not images.reference(image)
    ]


def number_problems(values: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return a line for each number that is less than its minimum, more than its maximum, or infinite. Names in
    `values` begin with `prefix` instead of the prefix of variables."""
    problems = []
    for variable, minimum in LEAST.items():
        name, maximum = prefix + variable.removeprefix(PREFIX), MOST.get(variable)
        number = values.get(name)
        if number is None or (minimum <= number < float("inf") and (maximum is None or number <= maximum)):
            continue
        limit = "finite" if maximum is None else f"at most {maximum:.0f} seconds"
        problems.append(
            f"{name} is {number:.10g}, and must be {limit if number > minimum else f'at least {minimum:g}'}"
        )
    return problems


def network_problems(sources: Mapping[str, Any] | None, name: str) -> list[str]:
    """Return a line for each problem of `network_sources`, whose name in messages is `name`."""
    set_sources = {key: namespaces for key, namespaces in (sources or {}).items() if namespaces is not None}
    problem_lines = [
        f"{name}.{key}: {namespace!r} is not a valid name of a namespace"
        for key, namespaces in set_sources.items()
        for namespace in namespaces
        if not is_dns_label(namespace)
    ]
    if set_sources.get("gateway") == []:
        problem_lines.append(
            f"{name}.gateway is empty, so no request would reach an engine: give the namespaces of gateways"
        )
    return problem_lines


def _read(given: Mapping[str, Any], spec: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the values as an argument spec reads them, without those with errors, and a line for each error."""
    validation = ArgumentSpecValidator({name: spec[name] for name in given}).validate(given)
    wrong = [
        f"unknown key {error}" if isinstance(error, UnsupportedError) else str(error) for error in validation.errors
    ]
    return ({} if wrong else validation.validated_parameters), wrong


def _in_words(name: str, value: Any, option: Mapping[str, Any]) -> list[str]:
    """Return the problems of the value of a variable; empty if a nested value causes them."""
    choices = option.get("choices")
    if not choices:
        due, kind = _TYPES.get(option["type"], ("", ()))
        return [f"{name} is {short_value(value)}, and must be {due}"] if due and not isinstance(value, kind) else []
    due, choices_given = f"one of {', '.join(choices)}", [value]
    if option["type"] == "list" and not isinstance(value, Mapping):
        choices_given = list(value) if isinstance(value, (list, tuple)) else str(value).split(",")
    wrong = [choice for choice in choices_given if choice not in choices]
    return [f"{name} is {short_value(choice)}, and must be {due}{_choice_hint(choice, choices)}" for choice in wrong]


def _choice_hint(value: Any, choices: Sequence[str]) -> str:
    hint = corrections.of_choice(Shape("text", enum=tuple(choices)), value)
    return f". {hint}" if hint else ""


def _several(given: Mapping[str, Any], spec: Mapping[str, Any]) -> list[str]:
    """Return a line for each list or mapping in the place of a text, of which Ansible would make a text of its own."""
    return [
        f"{name} is a {'mapping' if isinstance(value, Mapping) else 'list'}, and must be one text{_ONE.get(name, '')}"
        for name, value in given.items()
        if isinstance(value, (list, tuple, Mapping)) and spec[name]["type"] == "str" and "choices" not in spec[name]
    ]


def _wrong(variables: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterable[str]:
    values_set = set_values(variables, spec)
    read, wrong = _read(values_set, spec)
    if wrong:
        # The validator stops at its first error of a type.
        readings = {name: _read({name: value}, spec) for name, value in values_set.items()}
        read = {name: value for values, __ in readings.values() for name, value in values.items()}
        wrong = [
            message
            for name, (__, messages) in readings.items()
            for message in (messages and _in_words(name, values_set[name], spec[name])) or messages
        ]
    wrong += _several(values_set, spec)
    wrong += number_problems(read, PREFIX)
    wrong += image_problems(read.get("fleet_images"), "fleet_images")
    wrong += network_problems(read.get("fleet_network_sources"), "fleet_network_sources")
    if read.get("fleet_notify") is not None:
        wrong += notifications.problems(read["fleet_notify"], "fleet_notify")
    wrong += questions.problems({name: read.get(f"{PREFIX}{name}") for name in questions.QUESTIONS})
    try:
        AllowedHosts.of(read.get("fleet_endpoint_hosts") or ())
    except ValueError as error:
        wrong.append(f"fleet_endpoint_hosts: {error}")
    if read.get("fleet_name") is not None and not is_dns_label(read["fleet_name"]):
        wrong.append("fleet_name must be lower case letters, digits and -, up to 63 characters")
    return wrong

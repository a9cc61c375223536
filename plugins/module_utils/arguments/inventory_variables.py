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
from ..core.compose.constants import STREAM_GRACE_SECONDS
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
FLEET_GROUPS: Mapping[str, dict[str, Any]] = {
    "Manifests and state": {
        "fleet_resources": {
            "type": "list",
            "elements": "str",
            "description": "Files, folders, and glob patterns of all manifests of the fleet. Required, unless the "
            "fleet has a control cluster. `validate` always requires it.",
        },
        "fleet_build": {
            "type": "str",
            "description": "Build directory. Required. Hosts in `workload_clusters` must have the same value.",
        },
        "fleet_name": {
            "type": "str",
            "default": "default",
            "description": "Name of the fleet, a DNS label. Distinguishes fleets that share clusters.",
        },
        "fleet_invalid": {
            **SCHEDULING["invalid"],
            "description": "Reaction to manifests with errors. `fail` stops the run before any change. `hold` leaves "
            "invalid resources at their last applied state, and continues with all other resources; see [Invalid "
            "manifests](state.md#invalid-manifests).",
        },
        "fleet_observations": {
            "type": "str",
            "description": "File with the observed state of the fleet, for `plan` and for unobserved fleets. "
            "`modelplane.fleet.cluster_info` writes this format. `check` and `provision` record [quotas of cloud "
            "accounts](existing-clusters.md) in the file.",
        },
        "fleet_lock_timeout": {
            "type": "float",
            "default": 60,
            "description": "Number of seconds to wait for another run that uses the build directory.",
        },
    },
    "Runs": {
        "fleet_wait": {
            "type": "float",
            "default": 900,
            "description": "Number of seconds to wait until applied changes serve. Includes up to 20 seconds until "
            "the control cluster's gateways accept changed routes.",
        },
        "fleet_rounds": {
            "type": "int",
            "default": 6,
            "description": "Maximum number of reconcile passes of a run.",
        },
        "fleet_lease": {
            "type": "float",
            "default": 60,
            "description": "Number of seconds after which the [lock](state.md#locks) of a killed run expires. All "
            "other runs wait for the lock.",
        },
        "fleet_decision": {
            "type": "int",
            "description": "Generation of the [decision](awx.md#job-slices) that `apply` applies. The value must be "
            "the newest generation, or 0 for the newest generation. Defaults to the result of the previous job in a "
            "workflow, or 0.",
        },
        "fleet_force": {
            "type": "bool",
            "default": False,
            "description": "Take ownership of fields that another field manager set to a different value.",
        },
        "fleet_definitions": {
            "type": "bool",
            "default": True,
            "description": "Install and upgrade the CRDs of the fleet's kinds. `teardown` removes the CRDs if no "
            "object of these kinds exists.",
        },
        "fleet_control_gateway": {
            "type": "str",
            "choices": ["managed", "provided"],
            "default": "managed",
            "description": "Owner of the [control cluster's gateway](control-plane.md). `managed`: `site` installs "
            "the gateway of the InferenceGateway, and `teardown` removes it. `provided`: both leave it unchanged.",
        },
        "fleet_loop_interval": {
            "type": "float",
            "default": 30,
            "description": "Number of seconds between two reads of the playbook `loop`.",
        },
        "fleet_loop_resync": {
            "type": "float",
            "default": 600,
            "description": "Number of seconds after which `loop` reconciles without a change.",
        },
        "fleet_loop_turns": {
            "type": "int",
            "default": 200,
            "description": "Number of iterations after which `loop` ends. A service manager starts `loop` again.",
        },
    },
    "Connections": {
        "fleet_forks": {
            "type": "int",
            "default": 32,
            "description": "Maximum number of clusters that a run processes at the same time.",
        },
        "fleet_timeout": {
            "type": "float",
            "default": 30,
            "description": "Timeout of one request in seconds. The timeout of a kubeconfig's exec plugin is always "
            "60 seconds.",
        },
        "fleet_retries": {
            "type": "int",
            "default": 5,
            "description": "Maximum number of retries of a request.",
        },
        "fleet_answer_limit": {
            "type": "int",
            "default": 64,
            "description": "Maximum size of a response of an API server, in MiB. The limit applies to each page (500 "
            "objects) of a list. All pages of a list together can have eight times this size.",
        },
    },
    "Scheduling": {
        "fleet_accounting": {
            **SCHEDULING["accounting"],
            "description": "Unit of capacity. `Devices`: pods share nodes. `Nodes`: each pod that claims a device "
            "takes a whole node.",
        },
        "fleet_search": {
            **SCHEDULING["search"],
            "description": "Search method of the scheduler. `Exact` tries other node pools and devices if the first "
            "choice does not fit. `Greedy` never revises a choice.",
        },
        "fleet_search_budget": {
            **SCHEDULING["search_budget"],
            "description": "Maximum number of steps of all [searches](scheduling.md#search-budget) of a run. A step "
            "takes about ten microseconds.",
        },
        "fleet_selector_budget": {
            **SCHEDULING["selector_budget"],
            "description": "Maximum cost of all [device selectors](scheduling.md#selectors) of a run, in the cost "
            "units of Kubernetes.",
        },
        "fleet_drain": {
            "type": "list",
            "elements": "str",
            "description": "Names of clusters to [drain](operations.md#drain-a-cluster).",
        },
    },
    "Rollouts and safety": {
        "fleet_rollout": {
            "type": "int",
            "default": 1,
            "description": "Number of clusters that restart replicas of a deployment in place at the same time; see "
            "[Rollouts](rollouts.md).",
        },
        "fleet_rollout_staged": {
            "type": "bool",
            "default": False,
            "description": "Perform only one step of a rollout on [GitOps clusters](rollouts.md#gitops-clusters) in "
            "each run.",
        },
        "fleet_allow_outage": {
            "type": "bool",
            "default": False,
            "description": "Allow a run to stop a model from serving although no manifest requests it; see [Outage "
            "protection](rollouts.md#outage-protection).",
        },
        "fleet_allow_empty": {
            "type": "bool",
            "default": False,
            "description": "Allow manifests without any InferenceCluster or ModelDeployment to remove everything "
            "that is built. A fleet without replicas needs no ModelDeployment. A fleet without objects on clusters "
            "needs no InferenceCluster.",
        },
        "fleet_remove_unknown": {
            "type": "bool",
            "default": False,
            "description": "Allow a run to remove running replicas that are missing from the manifests and from the "
            "[state of the fleet](disaster-recovery.md).",
        },
    },
    "Composed objects": {
        "fleet_images": {
            "type": "dict",
            "options": {name: {"type": "str"} for name in IMAGES},
            "description": "Images of `picker` and `sidecar` (llm-d router v0.9.0 or later), `hydration`, and "
            "`egress`, for example in a mirror. Defaults to the images of the release.",
        },
        "fleet_stream_grace": {
            "type": "int",
            "default": STREAM_GRACE_SECONDS,
            "description": "Maximum number of seconds that a terminating pod keeps serving, so that streams finish. "
            "The pod uses its devices during this time. For leaders of gangs, at most 30 seconds.",
        },
        "fleet_network_policies": {
            **NETWORK["network_policies"],
            "description": "Create NetworkPolicies that limit [access to engines and endpoint "
            "pickers](permissions.md#network-policies).",
        },
        "fleet_network_sources": {
            **NETWORK["network_sources"],
            "description": "Namespaces whose pods the NetworkPolicies allow. `gateway` lists the namespaces of "
            "inference gateways (default: `envoy-gateway-system` and `modelplane-system`), and `metrics` those of "
            "Prometheus (default: `monitoring`).",
        },
        "fleet_export_pools": {
            **NETWORK["export_pools"],
            "description": "Alpha. [Export InferencePools](serving-stack.md#multi-cluster-inferencepools) to other "
            "clusters.",
        },
        "fleet_endpoint_hosts": {
            "type": "list",
            "elements": "str",
            "description": "Hosts, `*.` suffixes, and CIDRs inside the cluster or its cloud that "
            "[ModelEndpoints](kinds/ModelEndpoint.md#rejected-hosts) can use.",
        },
    },
    "Output and checks": {
        "fleet_output": {
            "type": "str",
            "choices": ["table", "json", "yaml"],
            "default": "table",
            "description": "Output format of `plan`, `status`, and `validate`; see [CI checks](pipelines.md).",
        },
        "fleet_query": {
            "type": "str",
            "description": "[JMESPath](https://jmespath.org) expression that selects from the document of `plan`, "
            "`status`, or `validate`.",
        },
        "fleet_report": {
            "type": "list",
            "elements": "str",
            "description": "Files for the HTML report of `status` or `plan`. A file name with the suffix `.json` "
            "receives the document of `status`.",
        },
        "fleet_table_width": {
            "type": "int",
            "default": 72,
            "description": "Maximum number of characters in a line of a table.",
        },
        "fleet_strict": {
            "type": "list",
            "elements": "str",
            "choices": list(STRICT),
            "default": [],
            "description": "Kinds of findings that make a run [fail](pipelines.md#failure-conditions). Defaults to "
            "`[unreachable]` for `reconcile`, `site`, and `loop`.",
        },
        "fleet_detailed_exit": {
            "type": "bool",
            "default": False,
            "description": "Let `plan` fail if it finds a change.",
        },
        "fleet_notify": {
            "type": "raw",
            "description": "[Webhooks](monitoring.md#notifications) that receive the result of `reconcile`, `site`, "
            "and iterations of `loop`. A mapping or a list.",
        },
    },
    "What-if and cost": {
        "fleet_what_if": {
            "type": "raw",
            "description": "[What-if query](what-if.md) for `plan` or `status`: lost clusters, added manifests, "
            "scaled deployments, or other prices.",
        },
        "fleet_survive": {
            "type": "raw",
            "description": "Cluster losses that services without `spec.survive` must "
            "[survive](what-if.md#survival-requirements), such as `{clusters: 1}`.",
        },
        "fleet_prices": {
            "type": "str",
            "description": "File with the [price catalog](cost.md). `plan` estimates the cost of the fleet from the "
            "catalog.",
        },
        "fleet_price_logins": {
            "type": "raw",
            "description": "Credentials of the playbook `prices` for the [price APIs](cost.md#cloud-prices), with "
            "the keys `eks` and `gke`. Defaults to the credentials that the SDK of the cloud finds.",
        },
    },
    "API keys": {
        "fleet_keys_state": {
            "type": "str",
            "choices": ["present", "rotated", "retired", "revoked"],
            "description": "Operation of the playbook [`keys`](keys.md). If unset, the playbook lists clients.",
        },
        "fleet_keys_callers": {
            "type": "list",
            "elements": "str",
            "description": "Names of clients. `retired` without names retires the previous keys of all clients in "
            "the Secret.",
        },
        "fleet_keys_secret": {
            "type": "str",
            # The name of a Secret, not its content.
            "no_log": False,
            "default": "caller-keys",
            "description": "Name of the Secret in `modelplane-system`.",
        },
        "fleet_keys_labels": {
            "type": "dict",
            "description": "Labels of the Secret. Other labels of the Secret are left unchanged. Write values as "
            "text in quotes.",
        },
        "fleet_keys_grace": {
            "type": "int",
            "default": 0,
            "description": "For `retired`, minimum age of the next key in seconds.",
        },
        "fleet_keys_force": {
            "type": "bool",
            "default": False,
            "description": "For `rotated`, replace an existing next key.",
        },
        "fleet_keys_file": {
            "type": "str",
            "description": "New file for new keys. If unset, the terminal shows new keys.",
        },
    },
}
"""Variables of the host of `control_plane`, by topic, as Ansible argument specs. `docs/variables.md` is generated from
the descriptions, which are Markdown with links that start in `docs/`."""
OF_FLEET: dict[str, Any] = {name: option for group in FLEET_GROUPS.values() for name, option in group.items()}
"""Variables of the host of `control_plane`, as one argument spec. Modules validate their values further."""
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
    # Together with the rest of the grace period, the maximum is a terminationGracePeriodSeconds of one day. Until the
    # period ends, the pod uses its devices, and a drain of its node continues.
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
    "fleet_drained": {
        "type": "bool",
        "default": False,
        "description": "Keep the cluster [drained](operations.md#drain-a-cluster).",
    },
    "fleet_serving_stack": {
        "type": "str",
        "choices": ["managed", "provided"],
        "default": "managed",
        "description": "Owner of the [serving stack](serving-stack.md). `managed`: `site` installs the stack, and "
        "`teardown` removes it. `provided`: both leave it unchanged.",
    },
    "fleet_provision": {
        "type": "str",
        "choices": ["managed", "provided"],
        "default": "managed",
        "description": "Owner of the cluster. `managed`: `provision` and `site` create the cluster, and `teardown` "
        "removes it, if `fleet_connection` contains [`eks`](eks.md) or [`gke`](gke.md) with the name that the fleet "
        "gives it. `provided`: all leave it unchanged.",
    },
    "fleet_credentials": {
        "type": "str",
        "default": "default",
        "description": "Name of the credentials in the manifest, a key of `eks_cluster_accounts` or "
        "`gke_cluster_accounts`.",
    },
    "fleet_source": {"type": "raw", "description": "Source of the cluster, from its manifest. No playbook reads it."},
    "fleet_region": {"type": "raw", "description": "Region of the cluster, from its manifest. No playbook reads it."},
    "fleet_labels": {"type": "raw", "description": "Labels of the cluster, from its manifest. No playbook reads them."},
}
"""Variables of hosts of `workload_clusters`, except those that `connections` reads."""
OF_CONTROL_CONNECTION: dict[str, Any] = {
    "fleet_control_kubeconfig": {
        "type": "str",
        "description": "Path of a kubeconfig of the control cluster. If neither this variable nor `fleet_control` is "
        "set, the fleet has no control cluster.",
    },
    "fleet_control": {
        "type": "dict",
        "description": "Other [connection](inventory.md#connections) to the control cluster. Has the keys of "
        "`fleet_connection`, except `secret`.",
    },
}
"""Variables of the host of `control_plane` that `connections` reads and validates."""
OF_CLUSTER_CONNECTION: dict[str, Any] = {
    "fleet_target": {
        "type": "str",
        "choices": [connections.KUBERNETES, connections.DIRECTORY],
        "default": connections.DIRECTORY,
        "description": "Destination of the cluster's objects. `kubernetes`: runs observe the cluster and apply "
        "objects. `directory`: objects are files in the build directory, and no run contacts the cluster.",
    },
    "fleet_kubeconfig": {"type": "str", "description": "Path of a kubeconfig of the cluster."},
    "fleet_context": {
        "type": "str",
        "description": "Context of the kubeconfig. Without a kubeconfig, a context of the kubeconfig that `kubectl` "
        "uses.",
    },
    "fleet_connection": {
        "type": "dict",
        "description": "Other [connection](inventory.md#connections) to the cluster, for example its name in a cloud.",
    },
    "fleet_cluster": {
        "type": "str",
        "description": "Name of the InferenceCluster, EKSCluster, or GKECluster. Defaults to the name of the host.",
    },
}
"""Variables of hosts of `workload_clusters` that `connections` reads and validates."""
ARTIFACTS = ("fleet_outcome",)
"""Results that playbooks publish. AWX passes them to the next node of a workflow as variables."""
KNOWN = frozenset(
    name
    for names in (OF_FLEET, OF_CLUSTER, ARTIFACTS, connections.CLUSTER_VARIABLES, connections.CONTROL_VARIABLES)
    for name in names
    if name.startswith(PREFIX)
)


_CLOUD_STATES = tuple(f"{name}_cluster_state" for name in registry.BY_NAME)
OF_PLAYBOOKS: dict[str, Any] = {
    "serving_stack_state": {
        "type": "str",
        "choices": ["present", "absent"],
        "default": "present",
        "description": "Operation of the playbook `serving_stack`: install or remove the [serving "
        "stack](serving-stack.md).",
    },
    "existing_cluster_state": {
        "type": "str",
        "choices": ["checked", "present", "absent"],
        "default": "checked",
        "description": "Operation of the playbook `check`. On OpenShift, `present` also creates "
        "SecurityContextConstraints, and `absent` deletes them.",
    },
    **{
        name: {
            "type": "str",
            "choices": ["present", "absent"],
            "default": "present",
            "description": "Operation of the playbook `provision`: create or delete the clusters of this cloud.",
        }
        for name in _CLOUD_STATES
    },
    "control_plane_workload_rights": {
        "type": "bool",
        "default": False,
        "description": "Let the playbook `control_plane` also grant the [permissions](permissions.md) on inference "
        "clusters.",
    },
}
"""Variables with prefixes of roles that select the tasks of a role in a playbook."""
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
    """Return True if a variable counts as unset. AWX passes a blank survey field as empty text."""
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
    """Return a line for each problem of the variables of the fleet host and of clusters (by host).

    `build`: manifests and a build directory are required. `of_roles`: known variables of roles by their prefix.
    `groups`: groups of the inventory with their hosts. Messages do not contain values of connections."""
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
    """Return a line for each missing group with a similar existing group, and for an inventory without a fleet host.

    An empty inventory is accepted, because a fleet can consist of files only."""
    if not set(groups.get("all") or ()) - {"localhost"}:
        return []
    other_groups = [name for name in sorted(groups) if groups[name] and name not in ("all", "ungrouped")]
    missing = [name for name in _LIKE if not groups.get(name)]
    problem_lines = []
    # An existing empty group is not misspelled: an inventory plugin might not have found a cluster yet.
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
    """Return a line for each value of `images` that no container runtime can pull. `name`: its name in messages."""
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
    """Return a line for each problem of `network_sources`. `name`: its name in messages."""
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
    """Return the values in the types of an argument spec, without invalid values, and a line for each error."""
    validation = ArgumentSpecValidator({name: spec[name] for name in given}).validate(given)
    wrong = [
        f"unknown key {error}" if isinstance(error, UnsupportedError) else str(error) for error in validation.errors
    ]
    return ({} if wrong else validation.validated_parameters), wrong


def _in_words(name: str, value: Any, option: Mapping[str, Any]) -> list[str]:
    """Return the problems of the value of a variable, or none if a nested value causes them."""
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
    """Return a line for each list or mapping in place of text, because Ansible would convert it to text."""
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

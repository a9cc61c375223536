# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Planned nodes of pods: the label and the affinity that make pods share nodes as planned."""

from __future__ import annotations

from typing import Any

from .. import names
from ..scheduling.model import skew
from . import constants
from .member import Member

_ANY = "any"
_OS_LABEL = "kubernetes.io/os"
_CLAIMING = (constants.WORKLOAD_LABEL, constants.GANG_LABEL)
"""Labels of pods that claim devices. Every such pod has one of these labels, and no other pod has any."""
# The default spread of kube-scheduler would count as much as the affinity. A skew that is never reached turns it off.
_NO_SPREAD = {
    "maxSkew": 2**31 - 1,
    "topologyKey": constants.HOSTNAME_LABEL,
    "whenUnsatisfiable": "ScheduleAnyway",
}


def share_nodes(template: dict[str, Any], member: Member) -> None:
    """Add planned nodes to a pod template; one without any stays as it is.

    A pod has a label for each number of its path. It runs beside no pod that has another number at the same place, nor
    beside one without any. Pods that share one node attract each other: the first takes any node, the others follow.
    Pods beside others wait for these.
    """
    planned = member.placed.planned_nodes
    if planned is None:
        return
    labels = template["metadata"]["labels"]
    if not planned.numbers:
        labels[_key(0)] = _ANY
        if planned.sharing == "Apart":
            claim_labels = {key: labels[key] for key in _CLAIMING if key in labels}
            term = {"labelSelector": {"matchLabels": claim_labels}, "topologyKey": constants.HOSTNAME_LABEL}
            _require(template, "podAntiAffinity", term)
        return
    values = [names.label_value(f"{member.placed.node_pool_name}.{number}") for number in planned.numbers]
    labels.update({_key(level): value for level, value in enumerate(values)})
    last_level = len(values) - 1
    own_group = _is(last_level, values[last_level])
    other_groups = {"key": _key(0), "operator": "NotIn", "values": [values[0], _ANY]}
    apart = [_term({"key": claims, "operator": "Exists"}, other_groups) for claims in _CLAIMING]
    apart += [
        _term(_is(level - 1, values[level - 1]), _has(level), _is(level, values[level], operator="NotIn"))
        for level in range(1, len(values))
    ]
    if planned.sharing == "OnePerNode":
        apart.append(_term(own_group, _lacks(last_level + 1)))
    _require(template, "podAntiAffinity", *apart)
    affinity = template["spec"]["affinity"]
    if planned.sharing == "Together":
        affinity["podAffinity"] = {_REQUIRED: [_term(own_group)]}
        return
    # Of several nodes the ones that pods of the number have already.
    affinity["podAffinity"] = {_PREFERRED: [{"weight": 100, "podAffinityTerm": _term(own_group)}]}
    if last_level:
        affinity["podAffinity"][_REQUIRED] = [_term(_is(last_level - 1, values[last_level - 1]), _lacks(last_level))]
    spread = {**_NO_SPREAD, "labelSelector": {"matchLabels": {_key(0): values[0]}}}
    template["spec"]["topologySpreadConstraints"] = [spread]


def follow_leader(template: dict[str, Any], worker: Member, gang: str) -> None:
    """Make a worker that can run on any node wait until the leader of its copy has a node.

    Other workers are left unchanged. Therefore, workers never use the last node that a leader can have. If workers are
    spread over node pools, each pool gets about its share.
    """
    planned = worker.placed.planned_nodes
    if planned is None or planned.numbers:
        return
    copy = {"matchLabelKeys": [constants.LWS_GROUP_LABEL]}
    leader = {"matchLabels": {constants.GANG_LABEL: gang, constants.LWS_ROLE_LABEL: "leader"}}
    # Every node has the same value: the leader may be on any.
    _require(template, "podAffinity", {"labelSelector": leader, **copy, "topologyKey": _OS_LABEL})
    shares = [share.pods for share in worker.placed.node_pools or ()]
    if len(shares) > 1:
        workers = {
            "matchLabels": {constants.GANG_LABEL: gang},
            "matchExpressions": [{"key": constants.LWS_ROLE_LABEL, "operator": "DoesNotExist"}],
        }
        template["spec"]["topologySpreadConstraints"] = [
            {
                "maxSkew": skew(shares),
                "minDomains": len(shares),
                "topologyKey": constants.POOL_LABEL,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": workers,
                **copy,
            }
        ]


def _require(template: dict[str, Any], kind: str, *terms: dict[str, Any]) -> None:
    affinity = template["spec"].setdefault("affinity", {})
    affinity.setdefault(kind, {}).setdefault(_REQUIRED, []).extend(terms)


def on_one_node(member: Member) -> bool:
    """Return True when all pods of a member share one planned node."""
    planned = member.placed.planned_nodes
    return planned is not None and planned.sharing == "Together"


def _key(level: int) -> str:
    """Return the label of a number of a path, by its place."""
    return constants.PLANNED_NODE_LABEL if not level else f"{constants.PLANNED_NODE_LABEL}-{level + 1}"


def _is(level: int, value: str, operator: str = "In") -> dict[str, Any]:
    return {"key": _key(level), "operator": operator, "values": [value]}


def _has(level: int) -> dict[str, Any]:
    return {"key": _key(level), "operator": "Exists"}


def _lacks(level: int) -> dict[str, Any]:
    return {"key": _key(level), "operator": "DoesNotExist"}


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def _term(*expressions: dict[str, Any]) -> dict[str, Any]:
    """Return pods of any namespace on one node."""
    return {
        "labelSelector": {"matchExpressions": list(expressions)},
        "namespaceSelector": {},
        "topologyKey": constants.HOSTNAME_LABEL,
    }

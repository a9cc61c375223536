# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Workload of an engine: a Deployment for one pod per copy, a LeaderWorkerSet for a gang per copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..names import child_name, gang_name
from ..servers.command_line import CommandLine
from ..servers.table import SERVERS
from . import constants
from .member import Member
from .pod import pod_template
from .sharing import follow_leader

_GANG_ENV = (
    {"name": "MODELPLANE_LEADER_ADDRESS", "value": "$(LWS_LEADER_ADDRESS)"},
    {"name": "MODELPLANE_RANK", "value": "$(LWS_WORKER_INDEX)"},
)


def workload(members: Sequence[Member], copies: int) -> dict[str, Any]:
    """Return the workload of an engine with these members."""
    by_role = {member.role: member for member in members}
    if constants.STANDALONE in by_role:
        return _deployment(by_role[constants.STANDALONE], copies)
    return _leader_worker_set(by_role[constants.LEADER], by_role[constants.WORKER], copies)


def serving_template(workload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the template of the workload's pods that serve the API."""
    return member_template(workload, constants.LEADER)


def member_template(workload: Mapping[str, Any], role: str) -> dict[str, Any]:
    """Return the pod template of a member of a workload; a Deployment has one member only."""
    spec = workload["spec"]
    if workload["kind"] == "Deployment":
        template: dict[str, Any] = spec["template"]
    else:
        template = spec["leaderWorkerTemplate"]["workerTemplate" if role == constants.WORKER else "leaderTemplate"]
    return template


def pod_labels(workload: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels that select the pods of a workload; the label on pods of a gang is set by their controller."""
    label = constants.WORKLOAD_LABEL if workload["kind"] == "Deployment" else constants.LWS_NAME_LABEL
    return {label: workload["metadata"]["name"]}


def _deployment(member: Member, copies: int) -> dict[str, Any]:
    name = child_name(member.owner.prefix, member.engine)
    selector = {constants.WORKLOAD_LABEL: name}
    labels = {constants.SERVING_LABEL: member.owner.prefix, **_engine_type(member), **selector}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": member.owner.metadata(name),
        "spec": {
            "replicas": copies,
            # A surge pod would wait for the devices of the pod that it replaces.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "selector": {"matchLabels": selector},
            "template": pod_template(member, labels, ()),
        },
    }


def _engine_type(member: Member) -> dict[str, str]:
    """Return the label that selects the metric names of an engine in the endpoint picker. The default is vLLM."""
    metadata = member.placed.template.metadata
    user_labels = (metadata.labels if metadata else None) or {}
    if constants.ENGINE_TYPE_LABEL in user_labels:
        return {}
    if CommandLine.of(member.container).server is not SERVERS["sglang"]:
        return {}
    return {constants.ENGINE_TYPE_LABEL: "sglang"}


def _leader_worker_set(leader: Member, worker: Member, copies: int) -> dict[str, Any]:
    workers = worker.placed.worker.nodes if worker.placed.worker else 1
    name = gang_name(leader.owner.prefix, leader.engine)
    worker_template = _gang_template(worker, name, {})
    if leader.device_requests and worker.device_requests:
        follow_leader(worker_template, worker, name)
    leader_labels = {
        constants.SERVING_LABEL: leader.owner.prefix,
        **_engine_type(leader),
        constants.LWS_ROLE_LABEL: "leader",
    }
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": leader.owner.metadata(name),
        "spec": {
            "replicas": copies,
            "rolloutStrategy": {
                "type": "RollingUpdate",
                "rollingUpdateConfiguration": {"maxSurge": 0, "maxUnavailable": 1},
            },
            "leaderWorkerTemplate": {
                "size": 1 + workers,
                "leaderTemplate": _gang_template(leader, name, leader_labels),
                "workerTemplate": worker_template,
            },
        },
    }


def _gang_template(member: Member, gang: str, labels: Mapping[str, str]) -> dict[str, Any]:
    """Return the pod template of a member of a gang.

    Each pod of a group that claims devices runs on another node, because the scheduler counted them this way. Pods of
    other groups may share the node.
    """
    if not member.device_requests:
        return pod_template(member, labels, _GANG_ENV)
    gang_label = {constants.GANG_LABEL: gang}
    template = pod_template(member, {**labels, **gang_label}, _GANG_ENV)
    term = {
        "labelSelector": {"matchLabels": gang_label},
        "matchLabelKeys": [constants.LWS_GROUP_LABEL],
        "topologyKey": constants.HOSTNAME_LABEL,
    }
    affinity = template["spec"].setdefault("affinity", {})
    apart = affinity.setdefault("podAntiAffinity", {})
    apart["requiredDuringSchedulingIgnoredDuringExecution"] = [
        term,
        *apart.get("requiredDuringSchedulingIgnoredDuringExecution", ()),
    ]
    return template

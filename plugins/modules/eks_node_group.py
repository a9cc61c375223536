#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.eks_node_group."""

from __future__ import annotations

DOCUMENTATION = r"""
module: eks_node_group
short_description: A managed node group of a cluster of Amazon EKS
version_added: 0.1.0
description:
  - Makes a managed node group, changes it in place where AWS can, and removes it.
  - Bounds, labels, taints, tags, Kubernetes version and the version of the launch template are changed in place. For
    everything else the module says that only a new node group would do, and changes nothing.
  - The number of nodes between the bounds is the cluster autoscaler's. It is set when the group is made, and moved
    later only as far as new bounds make it go.
  - A group of ours that AWS failed to make is deleted and made again by the next run.
options:
  cluster:
    description: Name of the cluster.
    type: str
    required: true
  name:
    description: Name of the node group.
    type: str
    required: true
  node_role_arn:
    description: The role of the nodes. It is needed for O(state=present).
    type: str
  subnet_ids:
    description: The subnets of the nodes. They are needed for O(state=present).
    type: list
    elements: str
  ami_type:
    description:
      - The kind of machine image, such as V(AL2023_x86_64_NVIDIA).
    type: str
  instance_types:
    description:
      - The instance types; not with a launch template that names one.
    type: list
    elements: str
  disk_size:
    description:
      - Size of the disk in GiB; not with a launch template.
    type: int
  capacity_type:
    description:
      - How machines are bought; AWS takes V(ON_DEMAND) without it.
    type: str
    choices: [ON_DEMAND, SPOT, CAPACITY_BLOCK]
  launch_template:
    description:
      - A launch template for the nodes.
    type: dict
    suboptions:
      id:
        description: Its id; this or O(launch_template.name).
        type: str
      name:
        description: Its name.
        type: str
      version:
        description:
          - Its version, a number, V($Latest) or V($Default). AWS remembers numbers only, so that these two stand for
            the number that they have when the module runs.
        type: str
        default: $Latest
  min_size:
    description: The fewest nodes.
    type: int
    default: 0
  max_size:
    description: The most nodes. It is needed for O(state=present).
    type: int
  desired_size:
    description:
      - How many nodes there are at first; O(min_size) without it.
    type: int
  labels:
    description:
      - The labels of the nodes, all of them. Others are removed.
    type: dict
    default: {}
  taints:
    description:
      - The taints of the nodes, all of them. Others are removed.
    type: list
    elements: dict
    default: []
    suboptions:
      key:
        description: Key of the taint.
        type: str
        required: true
      value:
        description: Value of the taint.
        type: str
        default: ""
      effect:
        description: What becomes of pods that do not tolerate it.
        type: str
        choices: [NO_SCHEDULE, NO_EXECUTE, PREFER_NO_SCHEDULE]
        required: true
  version:
    description:
      - Kubernetes version of the nodes, such as V("1.36"). A new group gets the cluster's without it, and one that is
        there keeps its own. All nodes of the group are replaced, one after the other.
    type: str
extends_documentation_fragment:
  - modelplane.fleet.aws
seealso:
  - module: modelplane.fleet.eks_cluster
  - module: modelplane.fleet.ec2_launch_template
"""

EXAMPLES = r"""
- name: Make a pool of GPU nodes that starts with none
  modelplane.fleet.eks_node_group:
    region: us-west-2
    cluster: modelplane-system-us-west-eks-03b8e
    name: gpu-l4
    node_role_arn: arn:aws:iam::111122223333:role/us-west-node
    subnet_ids: [subnet-0a, subnet-0b]
    ami_type: AL2023_x86_64_NVIDIA
    instance_types: [g6.2xlarge]
    disk_size: 200
    min_size: 0
    max_size: 8
    labels:
      modelplane.ai/pool: gpu-l4
    taints:
      - {key: nvidia.com/gpu, value: "true", effect: NO_SCHEDULE}
    tags:
      modelplane.ai/cluster: modelplane-system.us-west
"""

RETURN = r"""
node_group:
  description:
    - The node group. In check mode, what AWS gives to one that is not there yet is empty.
    - Empty when there is none.
  returned: success
  type: dict
  sample:
    name: gpu-l4
    cluster: modelplane-system-us-west-eks-03b8e
    arn: arn:aws:eks:us-west-2:111122223333:nodegroup/modelplane-system-us-west-eks-03b8e/gpu-l4/12345678
    status: ACTIVE
    version: "1.36"
    release_version: 1.36.2-20261101
    node_role_arn: arn:aws:iam::111122223333:role/us-west-node
    subnet_ids: [subnet-0a, subnet-0b]
    ami_type: AL2023_x86_64_NVIDIA
    instance_types: [g6.2xlarge]
    disk_size: 200
    capacity_type: ON_DEMAND
    launch_template: {}
    min_size: 0
    max_size: 8
    desired_size: 0
    labels: {modelplane.ai/pool: gpu-l4}
    taints: [{key: nvidia.com/gpu, value: "true", effect: NO_SCHEDULE}]
    autoscaling_groups: [eks-gpu-l4-12345678]
    issues: []
    tags: {modelplane.ai/cluster: modelplane-system.us-west, modelplane.ai/managed-by: modelplane.fleet}
arn:
  description: ARN of the node group; empty when there is none.
  returned: success
  type: str
  sample: arn:aws:eks:us-west-2:111122223333:nodegroup/modelplane-system-us-west-eks-03b8e/gpu-l4/12345678
steps:
  description: What was done, or would be in check mode, in this order.
  returned: always
  type: list
  elements: str
  sample: ["node group gpu-l4 of cluster modelplane-system-us-west-eks-03b8e: max_size: 4 -> 8"]
"""

from collections.abc import Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.comparison import (
    Comparison,
    change_text,
    given,
    label_changes,
    scaling_change,
    taint_changes,
    taint_request,
    taints,
    unordered,
    version_steps,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.eks import Thing, node_group
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError, issues_text
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.launch_templates import version_of
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.task import STATE, Step, Task, run

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **STATE,
        "cluster": {"type": "str", "required": True},
        "name": {"type": "str", "required": True},
        "node_role_arn": {"type": "str"},
        "subnet_ids": {"type": "list", "elements": "str"},
        "ami_type": {"type": "str"},
        "instance_types": {"type": "list", "elements": "str"},
        "disk_size": {"type": "int"},
        "capacity_type": {"type": "str", "choices": ["ON_DEMAND", "SPOT", "CAPACITY_BLOCK"]},
        "launch_template": {
            "type": "dict",
            "options": {
                "id": {"type": "str"},
                "name": {"type": "str"},
                "version": {"type": "str", "default": "$Latest"},
            },
        },
        "min_size": {"type": "int", "default": 0},
        "max_size": {"type": "int"},
        "desired_size": {"type": "int"},
        "labels": {"type": "dict", "default": {}},
        "taints": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {
                "key": {"type": "str", "required": True, "no_log": False},
                "value": {"type": "str", "default": ""},
                "effect": {
                    "type": "str",
                    "choices": ["NO_SCHEDULE", "NO_EXECUTE", "PREFER_NO_SCHEDULE"],
                    "required": True,
                },
            },
        },
        "version": {"type": "str"},
    },
    "required_if": [("state", "present", ("node_role_arn", "subnet_ids", "max_size"))],
    "supports_check_mode": True,
}

# EKS API reference, UpdateNodegroupConfig and UpdateNodegroupVersion: what they have no parameter for.
_FIXED = ("node_role_arn", "subnet_ids", "ami_type", "instance_types", "disk_size", "capacity_type", "launch_template")
_ANEW = "Give the pool another name, or remove this node group (state: absent) and make it again"


def work(module: AnsibleModule) -> None:
    """Do what the arguments ask for, and end the module with the result."""
    run(module, _work)


def _work(task: Task) -> None:
    there = node_group(task, task.params["cluster"], task.params["name"])
    if task.absent:
        found = there.remove("delete_nodegroup")
        task.end(_described(found), {}, there.subject, node_group={}, arn="")
    _need_sizes(task, there)
    wanted, request = _wanted(task)
    found = there.to_keep()
    if found is not None and found.get("status") == "CREATE_FAILED":
        there.replace(found, "delete_nodegroup")
        found = None
    if found is None:
        _create(task, there, wanted, request)
    else:
        _change(task, there, wanted, found)


def _need_sizes(task: Task, there: Thing) -> None:
    low, high, desired = (task.params[name] for name in ("min_size", "max_size", "desired_size"))
    desired = low if desired is None else desired
    if not 0 <= low <= high:
        raise AwsError(f"{there.subject}: min_size is {low} and max_size {high}", "Let 0 <= min_size <= max_size")
    if high < 1:
        raise AwsError(f"{there.subject}: max_size is {high}, and AWS wants at least 1", "Raise max_size")
    if not low <= desired <= high:
        raise AwsError(
            f"{there.subject}: desired_size is {desired}, which is not between {low} and {high}",
            "Change desired_size, min_size or max_size",
        )


def _wanted(task: Task) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options that count, as `_described` has them; and the launch template as EKS takes it, if one is given."""
    params = task.params
    template: dict[str, Any] = {}
    asked = params["launch_template"]
    if asked is not None:
        if bool(asked.get("id")) == bool(asked.get("name")):
            raise AwsError("launch_template needs either id or name")
        key = "id" if asked.get("id") else "name"
        template = {key: asked[key], "version": version_of(task, asked)}
    wanted = {
        "node_role_arn": params["node_role_arn"],
        "subnet_ids": unordered(params["subnet_ids"]),
        "ami_type": params["ami_type"],
        "instance_types": params["instance_types"],
        "disk_size": params["disk_size"],
        "capacity_type": params["capacity_type"],
        "launch_template": {key: template[key] for key in ("id", "name") if key in template},
        "launch_template_version": template.get("version"),
        "min_size": params["min_size"],
        "max_size": params["max_size"],
        "labels": {str(key): str(value) for key, value in params["labels"].items()},
        "taints": taints(params["taints"]),
        "version": params["version"],
        "tags": task.tags,
    }
    return given(wanted), template


def _described(found: Mapping[str, Any] | None) -> dict[str, Any]:
    """The node group as it is returned."""
    if not found:
        return {}
    scaling = found.get("scalingConfig") or {}
    groups = (found.get("resources") or {}).get("autoScalingGroups") or []
    return {
        "name": found.get("nodegroupName", ""),
        "cluster": found.get("clusterName", ""),
        "arn": found.get("nodegroupArn", ""),
        "status": found.get("status", ""),
        "version": found.get("version", ""),
        "release_version": found.get("releaseVersion", ""),
        "node_role_arn": found.get("nodeRole", ""),
        "subnet_ids": unordered(found.get("subnets") or []),
        "ami_type": found.get("amiType", ""),
        "instance_types": list(found.get("instanceTypes") or []),
        "disk_size": found.get("diskSize"),
        "capacity_type": found.get("capacityType", ""),
        "launch_template": dict(found.get("launchTemplate") or {}),
        "min_size": scaling.get("minSize"),
        "max_size": scaling.get("maxSize"),
        "desired_size": scaling.get("desiredSize"),
        "labels": dict(found.get("labels") or {}),
        "taints": taints(found.get("taints")),
        "autoscaling_groups": [group["name"] for group in groups if group.get("name")],
        "issues": [dict(issue) for issue in (found.get("health") or {}).get("issues") or ()],
        "tags": dict(found.get("tags") or {}),
    }


def _create(task: Task, there: Thing, wanted: Mapping[str, Any], template: Mapping[str, Any]) -> None:
    params = task.params
    desired = params["min_size"] if params["desired_size"] is None else params["desired_size"]
    scaling = {"minSize": params["min_size"], "maxSize": params["max_size"], "desiredSize": desired}
    request = {
        **there.keys,
        "scalingConfig": scaling,
        "nodeRole": params["node_role_arn"],
        "subnets": params["subnet_ids"],
        "amiType": params["ami_type"],
        "instanceTypes": params["instance_types"],
        "diskSize": params["disk_size"],
        "capacityType": params["capacity_type"],
        "launchTemplate": template or None,
        "labels": wanted["labels"],
        "taints": [taint_request(taint) for taint in wanted["taints"]],
        "version": params["version"],
        "tags": task.tags,
    }
    task.take([Step(f"{there.subject}: create", lambda: there.create("create_nodegroup", **request))])
    if task.check_mode:
        made = {**_described(there.keys), **wanted, "desired_size": desired}
    else:
        made = _described(
            there.settled(hint="Remove the cause, and run again: it is then made anew") if task.waits else there.now()
        )
    task.end({}, {**wanted, "desired_size": desired}, there.subject, node_group=made, arn=made["arn"])


def _change(task: Task, there: Thing, wanted: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    if found.get("status") in there.failed:
        raise there.failure(found, "Remove it (state: absent), and make it again")
    comparison = _compared(there, wanted, found)
    steps = _steps(there, comparison, found)
    there.take_updates(steps, found)
    if steps and task.waits:
        found = there.settled(hint="Remove the cause, and run again")
    elif steps and not task.check_mode:
        found = there.now()
    elif there.issues(found):
        task.warn(f"{there.subject} is {found.get('status')}: {issues_text(there.issues(found))}")
    now = _described(found)
    task.end(comparison.before, {**comparison.before, **wanted}, there.subject, node_group=now, arn=now["arn"])


def _compared(there: Thing, wanted: Mapping[str, Any], found: Mapping[str, Any]) -> Comparison:
    now = _described(found)
    template = now["launch_template"]
    if template.get("version"):
        now["launch_template_version"] = str(template["version"])
    # EKS tells id and name; it is asked for by one of them.
    now["launch_template"] = {key: template[key] for key in wanted["launch_template"] or template if key in template}
    comparison = there.compared(wanted, now)
    comparison.refuse(there.subject, _FIXED, _ANEW)
    return comparison


def _steps(there: Thing, comparison: Comparison, found: Mapping[str, Any]) -> list[Step]:
    wanted, now = comparison.wanted, comparison.found
    steps = there.tag_steps(now["arn"], found)
    changes: dict[str, Any] = {
        "scalingConfig": scaling_change(found.get("scalingConfig") or {}, wanted["min_size"], wanted["max_size"]),
        "labels": label_changes(now["labels"], wanted["labels"]),
        "taints": taint_changes(now["taints"], wanted["taints"]),
    }
    changes = {key: value for key, value in changes.items() if value}
    if changes:
        names = [name for name in ("min_size", "max_size", "labels", "taints") if comparison.any(name)]
        text = ", ".join(change_text(name, now[name], wanted[name]) for name in names)
        desired = changes.get("scalingConfig", {}).get("desiredSize")
        if desired is not None:
            text += f", {change_text('desired_size', now['desired_size'], desired)}"
        steps.append(
            Step(
                f"{there.subject}: {text}",
                lambda: there.update("update_nodegroup_config", **there.keys, **changes),
            )
        )
    return steps + _version_steps(there, comparison)


def _version_steps(there: Thing, comparison: Comparison) -> list[Step]:
    """What replaces the nodes: one update for both, so that each node is replaced once."""
    wanted, now = comparison.wanted, comparison.found
    request: dict[str, Any] = {}
    if comparison.any("version"):
        try:
            version_steps(str(now["version"]), wanted["version"])
        except AwsError as error:
            raise AwsError(f"{there.subject}: {error.message}", error.hint) from None
        request["version"] = wanted["version"]
    if comparison.any("launch_template_version"):
        request["launchTemplate"] = {**wanted["launch_template"], "version": wanted["launch_template_version"]}
    if not request:
        return []
    names = [name for name in ("version", "launch_template_version") if comparison.any(name)]
    text = ", ".join(change_text(name, now.get(name), wanted[name]) for name in names)
    return [
        Step(
            f"{there.subject}: {text}",
            lambda: there.update("update_nodegroup_version", **there.keys, **request),
        )
    ]


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()

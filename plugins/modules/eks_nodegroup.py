#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.eks_nodegroup."""

from __future__ import annotations

DOCUMENTATION = r"""
module: eks_nodegroup
short_description: Make, update or delete the managed node groups of a cluster at Amazon EKS
version_added: 0.1.0
description:
  - Brings all node groups of a cluster to what is wanted, at once, and waits for them together.
  - Bounds of the size, labels, taints, the version of Kubernetes and of the launch template are changed in place. Nodes
    follow the cluster's version. What EKS changes in no node group (its machines, disks, subnets, role, and which
    launch template it has) fails the task for that group, saying what differs; the others go on.
  - A group that could not be made (C(CREATE_FAILED)) fails the task with the reasons that EKS gives. As nothing runs on
    it, the next run deletes it and makes it anew.
  - A node group that was not made by this collection (without the tag C(modelplane.ai/managed-by)), or that belongs to
    another fleet or cluster, is neither changed nor deleted. The same goes for the cluster.
options:
  cluster:
    description: The name of the cluster.
    type: str
    required: true
  state:
    description:
      - V(absent) deletes the node groups of O(node_groups), of which only the names count, and with O(purge) all others
        of this collection too.
    type: str
    choices: [present, absent]
    default: present
  purge:
    description:
      - Whether node groups that were made by this collection, and are not among O(node_groups), are deleted. Those of
        others stay.
    type: bool
    default: false
  tags:
    description:
      - Tags of all node groups, besides C(modelplane.ai/managed-by), which they always have.
      - Tags that are not given stay, but for those that begin with C(modelplane.ai/).
    type: dict
    default: {}
  node_groups:
    description: The node groups.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: The name of the node group.
        type: str
        required: true
      node_role_arn:
        description: The role of the nodes. It may be empty in check mode.
        type: str
        default: ''
      subnet_ids:
        description: The subnets of the nodes. Some may be empty in check mode, and are not compared then.
        type: list
        elements: str
        default: []
      ami_type:
        description: The image of the nodes, such as V(AL2023_x86_64_NVIDIA).
        type: str
        default: ''
      instance_types:
        description: The instance types. They are left out when the launch template has the type.
        type: list
        elements: str
        default: []
      disk_size:
        description: The size of the disk in GiB. It is left out when the launch template has it.
        type: int
      launch_template:
        description: The launch template, by its id or its name.
        type: dict
        suboptions:
          id:
            description: Its id. It may be empty in check mode.
            type: str
            default: ''
          name:
            description: Its name; it counts when there is no id.
            type: str
            default: ''
          version:
            description:
              - The number of the version. Without it EKS takes the template's default when a group is made, and
                versions are not compared.
            type: str
            default: ''
      capacity_type:
        description: V(ON_DEMAND) when it is empty, or V(SPOT) or V(CAPACITY_BLOCK).
        type: str
        choices: ['', ON_DEMAND, SPOT, CAPACITY_BLOCK]
        default: ''
      min_size:
        description: The fewest nodes.
        type: int
        default: 0
      max_size:
        description: The most nodes, at least 1.
        type: int
        default: 1
      desired_size:
        description:
          - How many nodes a new group begins with. It is brought within the bounds. Later the autoscaler decides, and
            it is only changed where the bounds want it.
        type: int
      labels:
        description: The labels of the nodes. Others that the group gives them are removed.
        type: dict
        default: {}
      taints:
        description: The taints of the nodes. Others that the group gives them are removed.
        type: list
        elements: dict
        default: []
        suboptions:
          key:
            description: The key.
            type: str
            required: true
          value:
            description: The value.
            type: str
            default: ''
          effect:
            description: The effect, as EKS writes it.
            type: str
            choices: [NO_SCHEDULE, NO_EXECUTE, PREFER_NO_SCHEDULE]
            required: true
      tags:
        description: More tags, of this node group only.
        type: dict
        default: {}
      version:
        description:
          - The version of Kubernetes; the cluster's when it is empty. New groups always have the cluster's. Nodes never
            go back to an older one.
          - In check mode it may be newer than the cluster, which would have been updated before.
        type: str
        default: ''
  wait:
    description:
      - Whether to wait until AWS is done. What is waited for is told with C(-v) while it lasts, and in RV(waited).
      - Without, at most one update of each group is begun.
    type: bool
    default: true
  wait_timeout:
    description:
      - For how many seconds to wait for each change. When they are over, the task fails; AWS goes on, and so does the
        next run.
    type: int
    default: 3600
extends_documentation_fragment:
  - modelplane.fleet.aws
  - modelplane.fleet.aws.waiting
attributes:
  check_mode:
    support: full
    description: Nothing is changed or waited for. The cluster, and what the groups need, may be missing.
  diff_mode:
    support: full
    description: Of what this module sets.
  idempotent:
    support: full
    description: The second run changes nothing.
seealso:
  - module: modelplane.fleet.eks_cluster
"""

EXAMPLES = r"""
- name: Have two node groups, and no others of ours
  modelplane.fleet.eks_nodegroup:
    cluster: modelplane-system-eks-us-west-eks-03b8e
    region: us-west-2
    purge: true
    tags:
      modelplane.ai/fleet: default
    node_groups:
      - name: system
        node_role_arn: arn:aws:iam::123456789012:role/modelplane-system-eks-us-west-node-7ad10
        subnet_ids: [subnet-0a, subnet-0b, subnet-0c]
        ami_type: AL2023_x86_64_STANDARD
        instance_types: [m6i.xlarge]
        min_size: 1
        max_size: 2
        desired_size: 1
        labels: {modelplane.ai/pool: system}
      - name: gpu-h200
        node_role_arn: arn:aws:iam::123456789012:role/modelplane-system-eks-us-west-node-7ad10
        subnet_ids: [subnet-0a]
        ami_type: AL2023_x86_64_NVIDIA
        launch_template: {name: eks-us-west-lt-gpu-h200-99b1f, version: 1}
        capacity_type: CAPACITY_BLOCK
        max_size: 4
        labels: {modelplane.ai/pool: gpu-h200, modelplane.ai/gpu: H200}
        taints:
          - {key: nvidia.com/gpu, value: "true", effect: NO_SCHEDULE}

- name: Delete all node groups of ours
  modelplane.fleet.eks_nodegroup:
    cluster: modelplane-system-eks-us-west-eks-03b8e
    region: us-west-2
    state: absent
    purge: true
"""

RETURN = r"""
node_groups:
  description:
    - The node groups of O(node_groups) that are there, as EKS describes them, by name. In check mode, of one that would
      be made, what only AWS knows is empty.
  returned: always
  type: dict
  sample:
    system:
      nodegroupName: system
      status: ACTIVE
      version: "1.36"
      scalingConfig: {minSize: 1, maxSize: 2, desiredSize: 1}
      resources: {autoScalingGroups: [{name: eks-system-1ac5}]}
removed:
  description: The names of the node groups that were deleted (in check mode, would be).
  returned: always
  type: list
  elements: str
  sample: [gpu-old]
waited:
  description: What was waited for, and how it went.
  returned: always
  type: list
  elements: str
  sample: ["node group system of EKS cluster west is ACTIVE (after 2 min 10 s)"]
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.aws import cluster as control_plane
from ansible_collections.modelplane.fleet.plugins.module_utils.aws import node_groups, session, tags, task, waiting
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.eks import Run
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.node_groups import Outcome, Taint, Template, Wanted

_TEMPLATE = {
    "id": {"type": "str", "default": ""},
    "name": {"type": "str", "default": ""},
    "version": {"type": "str", "default": ""},
}
_TAINT = {
    # A word of Kubernetes, and no secret.
    "key": {"type": "str", "required": True, "no_log": False},
    "value": {"type": "str", "default": ""},
    "effect": {"type": "str", "choices": ["NO_SCHEDULE", "NO_EXECUTE", "PREFER_NO_SCHEDULE"], "required": True},
}
_NODE_GROUP = {
    "name": {"type": "str", "required": True},
    "node_role_arn": {"type": "str", "default": ""},
    "subnet_ids": {"type": "list", "elements": "str", "default": []},
    "ami_type": {"type": "str", "default": ""},
    "instance_types": {"type": "list", "elements": "str", "default": []},
    "disk_size": {"type": "int"},
    "launch_template": {"type": "dict", "options": _TEMPLATE},
    "capacity_type": {"type": "str", "choices": ["", "ON_DEMAND", "SPOT", "CAPACITY_BLOCK"], "default": ""},
    "min_size": {"type": "int", "default": 0},
    "max_size": {"type": "int", "default": 1},
    "desired_size": {"type": "int"},
    "labels": {"type": "dict", "default": {}},
    "taints": {"type": "list", "elements": "dict", "options": _TAINT, "default": []},
    "tags": {"type": "dict", "default": {}},
    "version": {"type": "str", "default": ""},
}
ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **session.ARGUMENTS,
        **waiting.arguments(3600),
        "cluster": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "purge": {"type": "bool", "default": False},
        "tags": {"type": "dict", "default": {}},
        "node_groups": {"type": "list", "elements": "dict", "options": _NODE_GROUP, "default": []},
    },
    "supports_check_mode": True,
}


def work(module: AnsibleModule) -> None:
    """Do what the arguments ask for, and end the module with the result."""
    account = session.account(module)
    _check(module, module.params["node_groups"])
    common = task.own_tags(module.params)
    wanted = [_wanted(entry, common) for entry in module.params["node_groups"]]
    progress = waiting.Progress(module)
    try:
        run = Run.of(module, account.client("eks"), progress)
        outcomes = _bring(module, run, wanted)
    except AwsError as error:
        module.fail_json(msg=str(error), waited=progress.lines)
        return
    _end(module, outcomes, progress.lines)


def _bring(module: AnsibleModule, run: Run, wanted: list[Wanted]) -> dict[str, Outcome | AwsError]:
    name, ours = module.params["cluster"], task.own_tags(module.params)
    there = control_plane.find(run.client, name)
    present = module.params["state"] == "present"
    if there is None and present and not module.check_mode:
        raise AwsError(f"node groups of EKS cluster {name}", "there is no such cluster", hint="Make it first")
    if there is None:
        return node_groups.bring(run, name, wanted, {}, "") if present else {}
    refusal = tags.refusal(f"EKS cluster {name}", there.get("tags") or {}, ours)
    if refusal:
        raise AwsError(refusal)
    removed = {} if present else {one.name: one.tags for one in wanted}
    if module.params["purge"]:
        listed = {one.name for one in wanted}
        others = [other for other in node_groups.listed(run.client, name) or () if other not in listed]
        removed |= dict.fromkeys(node_groups.surplus(run.client, name, others, ours), ours)
    return node_groups.bring(run, name, wanted if present else [], removed, str(there.get("version") or ""))


def _end(module: AnsibleModule, outcomes: Mapping[str, Outcome | AwsError], waited: list[str]) -> None:
    """All groups have been brought as far as they could: the result of those that were, and the others' errors."""
    done = {name: outcome for name, outcome in sorted(outcomes.items()) if isinstance(outcome, Outcome)}
    errors = [str(outcome) for _, outcome in sorted(outcomes.items()) if isinstance(outcome, AwsError)]
    for outcome in done.values():
        for warning in outcome.warnings:
            module.warn(warning)
    header = f"node groups of EKS cluster {module.params['cluster']} ({module.params['region']})"
    result: dict[str, Any] = {
        "changed": any(outcome.changed for outcome in done.values()),
        "node_groups": {name: dict(outcome.described) for name, outcome in done.items() if outcome.described},
        "removed": [name for name, outcome in done.items() if outcome.changed and not outcome.described],
        "waited": waited,
        "diff": {
            "before_header": header,
            "after_header": header,
            "before": {name: dict(outcome.before) for name, outcome in done.items() if outcome.before},
            "after": {name: dict(outcome.after) for name, outcome in done.items() if outcome.after},
        },
    }
    if errors:
        module.fail_json(msg="\n".join(errors), **result)
    module.exit_json(**result)


def _wanted(entry: Mapping[str, Any], common: Mapping[str, Any]) -> Wanted:
    template = entry["launch_template"]
    return Wanted(
        name=entry["name"],
        role_arn=entry["node_role_arn"],
        subnet_ids=tuple(entry["subnet_ids"]),
        ami_type=entry["ami_type"],
        instance_types=tuple(entry["instance_types"]),
        disk_size=entry["disk_size"],
        template=None if template is None else _template(template),
        capacity_type=entry["capacity_type"],
        min_size=entry["min_size"],
        max_size=entry["max_size"],
        desired_size=entry["desired_size"],
        labels=tags.texts(entry["labels"]),
        taints=tuple(Taint(**taint) for taint in entry["taints"]),
        tags={**tags.texts(entry["tags"]), **common},
        version=entry["version"],
    )


def _template(entry: Mapping[str, str]) -> Template:
    return Template(id=entry["id"], name=entry["name"], version=int(entry["version"] or 0))


def _check(module: AnsibleModule, entries: Sequence[Mapping[str, Any]]) -> None:
    """Fail for what EKS would refuse after some of the groups were made."""
    names = [entry["name"] for entry in entries]
    problems = [f"node_groups: {name} is listed twice" for name in sorted({n for n in names if names.count(n) > 1})]
    for entry in entries:
        least, most = entry["min_size"], entry["max_size"]
        if not 0 <= least <= most or most < 1:
            problems.append(
                f"node group {entry['name']}: min_size is {least} and max_size {most}: the first is 0 or more, the "
                "second 1 or more and no less than the first"
            )
        version = (entry["launch_template"] or {}).get("version", "")
        if version and not version.isdecimal():
            problems.append(
                f"node group {entry['name']}: launch_template.version is {version} and has to be the number of a "
                "version, as what is the latest cannot be compared"
            )
    if problems:
        module.fail_json(msg="\n".join(problems))


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()

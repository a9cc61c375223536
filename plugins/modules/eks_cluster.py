#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.eks_cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: eks_cluster
short_description: Make, update or delete the control plane of a cluster at Amazon EKS
version_added: 0.1.0
description:
  - Makes a cluster, or brings the one of that name to what is wanted, in place. One update is made at a time, and each
    is waited for.
  - Kubernetes is brought to O(version) one minor version after the other, as EKS wants it, and three of them a run at
    most, as nodes may be no further behind. They follow with M(modelplane.fleet.eks_nodegroup).
  - A version, and an authentication mode, cannot be taken back. Where the cluster is ahead, it stays, with a warning. A
    cluster with another role fails the task, as only a new cluster can have one.
  - A cluster that was not made by this collection (without the tag C(modelplane.ai/managed-by)), or that belongs to
    another fleet (by its tag C(modelplane.ai/fleet)), is neither changed nor deleted; the task fails.
options:
  name:
    description: The name of the cluster.
    type: str
    required: true
  state:
    description:
      - V(absent) deletes the cluster. Its node groups have to be deleted before.
    type: str
    choices: [present, absent]
    default: present
  version:
    description: The version of Kubernetes, such as V(1.36). It is needed to make a cluster.
    type: str
    default: ''
  role_arn:
    description: The role of the control plane. It is needed to make a cluster, and may be empty in check mode.
    type: str
    default: ''
  subnet_ids:
    description:
      - The subnets of the cluster. They are needed to make it.
      - In check mode some may be empty, for subnets that are not there yet; then they are not compared.
    type: list
    elements: str
    default: []
  authentication_mode:
    description: How identities of AWS are known in the cluster. It only ever goes on, from left to right.
    type: str
    choices: [CONFIG_MAP, API_AND_CONFIG_MAP, API]
    default: API_AND_CONFIG_MAP
  bootstrap_admin:
    description: Whether who makes the cluster is its administrator. It counts only when the cluster is made.
    type: bool
    default: true
  private_access:
    description: Whether the API server can be reached from within the VPC.
    type: bool
    default: true
  public_access:
    description: Whether the API server can be reached from the internet.
    type: bool
    default: true
  public_access_cidrs:
    description:
      - From which networks the API server can be reached, with O(public_access). When it is empty they stay as they
        are, which is everywhere for a new cluster.
    type: list
    elements: str
    default: []
  tags:
    description:
      - Tags of the cluster, besides C(modelplane.ai/managed-by), which it always has.
      - Tags that are not given stay, but for those that begin with C(modelplane.ai/).
    type: dict
    default: {}
  wait:
    description:
      - Whether to wait until AWS is done. What is waited for is told with C(-v) while it lasts, and in RV(waited).
      - Without, at most one update is begun.
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
    description: Nothing is changed or waited for. What the cluster needs may be missing.
  diff_mode:
    support: full
    description: Of what this module sets.
  idempotent:
    support: full
    description: The second run changes nothing, unless the version is more than three minor versions away.
seealso:
  - module: modelplane.fleet.eks_nodegroup
"""

EXAMPLES = r"""
- name: Have a cluster
  modelplane.fleet.eks_cluster:
    name: modelplane-system-eks-us-west-eks-03b8e
    region: us-west-2
    version: "1.36"
    role_arn: arn:aws:iam::123456789012:role/modelplane-system-eks-us-west-cluster-1c5f2
    subnet_ids: [subnet-0a, subnet-0b, subnet-0c]
    tags:
      modelplane.ai/fleet: default
  register: made

- name: Tell where it is
  ansible.builtin.debug:
    var: made.cluster.endpoint

- name: Delete it
  modelplane.fleet.eks_cluster:
    name: modelplane-system-eks-us-west-eks-03b8e
    region: us-west-2
    state: absent
"""

RETURN = r"""
cluster:
  description:
    - The cluster as EKS describes it, empty when it is gone. In check mode, of one that would be made, what only AWS
      knows is empty.
  returned: always
  type: dict
  contains:
    name:
      description: Its name.
      type: str
      returned: when there is a cluster
    arn:
      description: Its ARN.
      type: str
      returned: when there is a cluster
    status:
      description: Its status.
      type: str
      returned: when there is a cluster
    version:
      description: Its version of Kubernetes.
      type: str
      returned: when there is a cluster
    endpoint:
      description: The URL of its API server.
      type: str
      returned: when there is a cluster that is active
    certificateAuthority:
      description: In C(data), its certificate in base64.
      type: dict
      returned: when there is a cluster that is active
    resourcesVpcConfig:
      description: Its network, with C(vpcId), C(subnetIds) and C(clusterSecurityGroupId).
      type: dict
      returned: when there is a cluster
    tags:
      description: All its tags.
      type: dict
      returned: when there is a cluster
  sample:
    name: modelplane-system-eks-us-west-eks-03b8e
    arn: arn:aws:eks:us-west-2:123456789012:cluster/modelplane-system-eks-us-west-eks-03b8e
    status: ACTIVE
    version: "1.36"
    endpoint: https://0123456789ABCDEF.gr7.us-west-2.eks.amazonaws.com
    resourcesVpcConfig: {vpcId: vpc-0a, subnetIds: [subnet-0a, subnet-0b], clusterSecurityGroupId: sg-0a}
    tags: {modelplane.ai/managed-by: modelplane.fleet, modelplane.ai/fleet: default}
waited:
  description: What was waited for, and how it went.
  returned: always
  type: list
  elements: str
  sample: ["EKS cluster west is CREATING (after 0 s)", "EKS cluster west is ACTIVE (after 9 min 30 s)"]
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.aws import cluster, session, task, waiting
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.eks import Run
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **session.ARGUMENTS,
        **waiting.arguments(3600),
        "name": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "version": {"type": "str", "default": ""},
        "role_arn": {"type": "str", "default": ""},
        "subnet_ids": {"type": "list", "elements": "str", "default": []},
        "authentication_mode": {
            "type": "str",
            "choices": ["CONFIG_MAP", "API_AND_CONFIG_MAP", "API"],
            "default": "API_AND_CONFIG_MAP",
        },
        "bootstrap_admin": {"type": "bool", "default": True},
        "private_access": {"type": "bool", "default": True},
        "public_access": {"type": "bool", "default": True},
        "public_access_cidrs": {"type": "list", "elements": "str", "default": []},
        "tags": {"type": "dict", "default": {}},
    },
    "supports_check_mode": True,
}


def work(module: AnsibleModule) -> None:
    """Do what the arguments ask for, and end the module with the result."""
    account = session.account(module)
    given, progress = module.params, waiting.Progress(module)
    wanted = cluster.Wanted(
        name=given["name"],
        version=given["version"],
        role_arn=given["role_arn"],
        subnet_ids=tuple(given["subnet_ids"]),
        authentication_mode=given["authentication_mode"],
        bootstrap_admin=given["bootstrap_admin"],
        private_access=given["private_access"],
        public_access=given["public_access"],
        public_access_cidrs=tuple(given["public_access_cidrs"]),
        tags=task.own_tags(given),
    )
    act = cluster.present if given["state"] == "present" else cluster.absent
    try:
        outcome = act(Run.of(module, account.client("eks"), progress), wanted)
    except AwsError as error:
        module.fail_json(msg=str(error), waited=progress.lines)
        return
    for warning in outcome.warnings:
        module.warn(warning)
    header = f"EKS cluster {wanted.name} ({account.region})"
    module.exit_json(
        changed=outcome.changed,
        cluster=dict(outcome.cluster),
        waited=progress.lines,
        diff={
            "before_header": header,
            "after_header": header,
            "before": dict(outcome.before),
            "after": dict(outcome.after),
        },
    )


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()

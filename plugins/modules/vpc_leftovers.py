#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.vpc_leftovers."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vpc_leftovers
short_description: Remove what controllers in a cluster left in its VPC
version_added: 0.1.0
description:
  - Finds and removes what hinders the deletion of a VPC and is nobody's when the cluster is gone - load balancers with
    their target groups and security groups, network interfaces of pods, the security group of the cluster.
  - Only what the controllers of this cluster made is removed. It is known by its tags -
    C(kubernetes.io/cluster/NAME=owned), C(elbv2.k8s.aws/cluster), C(cluster.k8s.amazonaws.com/name). What names no
    cluster is known by its name, and only in a VPC that carries O(tags).
  - While the cluster is there, its own security group and the network interfaces of its pods stay. Run it before the
    cluster is deleted, for the load balancers, and after, for the rest.
options:
  vpc_id:
    description:
      - The VPC. There is nothing to do when it is gone.
    type: str
    required: true
  cluster:
    description: Name of the cluster at EKS.
    type: str
    required: true
  tags:
    description:
      - The tags of the cluster's VPC, C(modelplane.ai/cluster) among them; C(modelplane.ai/managed-by) is added.
        Without them, or where the VPC has others, names count for nothing.
    type: dict
  state:
    description: There is nothing else to ask for.
    type: str
    choices: [absent]
    default: absent
extends_documentation_fragment:
  - modelplane.fleet.aws.account
  - modelplane.fleet.aws.waiting
attributes:
  check_mode:
    support: full
    description: What would be removed is told. What comes to light only when something else is gone is not.
  diff_mode:
    support: none
    description: RV(removed) says what is removed.
  idempotent:
    support: full
    description: A second run finds nothing.
"""

EXAMPLES = r"""
- name: Remove what the cluster left
  modelplane.fleet.vpc_leftovers:
    region: us-west-2
    vpc_id: vpc-0123456789abcdef0
    cluster: modelplane-system-us-west-eks-03b8e
    tags:
      modelplane.ai/cluster: modelplane-system.us-west
"""

RETURN = r"""
removed:
  description: What was removed, or would be in check mode.
  returned: success
  type: list
  elements: dict
  sample:
    - {kind: load balancer, id: a0123456789abcdef0123456789abcde, name: a0123456789abcdef0123456789abcde}
    - {kind: security group, id: sg-0123456789abcdef0, name: k8s-elb-a0123456789abcdef0123456789abcde}
steps:
  description: What was done, or would be in check mode, in this order.
  returned: always
  type: list
  elements: str
  sample: ["VPC vpc-0123456789abcdef0: delete load balancer a0123456789abcdef0123456789abcde"]
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.leftovers import Sweep
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.task import ACCOUNT, WAITING, Task, run

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **ACCOUNT,
        **WAITING,
        "vpc_id": {"type": "str", "required": True},
        "cluster": {"type": "str", "required": True},
        "tags": {"type": "dict"},
        "state": {"type": "str", "choices": ["absent"], "default": "absent"},
    },
    "supports_check_mode": True,
}


def work(module: AnsibleModule) -> None:
    """Do what the arguments ask for, and end the module with the result."""
    run(module, _work)


def _work(task: Task) -> None:
    sweep = Sweep(task, task.params["vpc_id"], task.params["cluster"])
    sweep.run()
    task.finish(removed=[thing.told for thing in sweep.removed])


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()

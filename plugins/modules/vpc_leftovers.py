#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.vpc_leftovers."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vpc_leftovers
short_description: Remove what an EKS cluster left in its VPC
version_added: 0.1.0
description:
  - Controllers in a cluster make things in its VPC that nobody declared, and that keep the VPC from being deleted. This
    module finds those that a cluster left, removes them, and waits until they are gone.
  - Load balancers of both kinds with the tag C(kubernetes.io/cluster/NAME=owned) or C(elbv2.k8s.aws/cluster=NAME),
    their target groups, and their security groups.
  - Once the cluster itself is gone, its security group C(eks-cluster-sg-NAME-...) too. Before that, it is left for EKS.
  - Network interfaces of the VPC CNI (C(aws-K8S-...)) that nothing uses. Those of load balancers and of the control
    plane are taken away by AWS, which is waited for.
  - What has no such tag is never removed. It is told in RV(left_alone).
options:
  vpc_id:
    description: The VPC of the cluster.
    type: str
    required: true
  cluster:
    description: The name of the cluster in AWS.
    type: str
    required: true
  state:
    description: V(absent) removes what is found.
    type: str
    choices: [absent]
    default: absent
extends_documentation_fragment:
  - modelplane.fleet.aws
  - modelplane.fleet.aws.waiting
attributes:
  check_mode:
    support: full
    description: Tells what would be removed.
  diff_mode:
    support: full
    description: RV(diff) shows what is removed.
  idempotent:
    support: full
    description: Where nothing is left, nothing is done.
"""

EXAMPLES = r"""
- name: Remove load balancers that Services made, before the nodes go
  modelplane.fleet.vpc_leftovers:
    region: us-west-2
    vpc_id: vpc-0a1b2c3d4e5f60718
    cluster: modelplane-system-eks-us-west-eks-03b8e
  register: left

- name: Stop where something else uses the VPC, which cannot be deleted then
  ansible.builtin.assert:
    that: left.left_alone == []
    fail_msg: "{{ left.left_alone | join('\n') }}"
"""

RETURN = r"""
load_balancers:
  description: The load balancers that were removed (in check mode, would be).
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: The name.
      type: str
      returned: always
    type:
      description: V(classic), V(network), V(application) or V(gateway).
      type: str
      returned: always
    arn:
      description: The ARN, empty for a classic one.
      type: str
      returned: always
  sample:
    - name: a1b2c3d4e5f6a7b8c9d0e1f2a3b4c5d6
      type: classic
      arn: ''
target_groups:
  description: The names of the target groups that were removed.
  returned: success
  type: list
  elements: str
  sample: []
network_interfaces:
  description: The ids of the network interfaces that were removed.
  returned: success
  type: list
  elements: str
  sample: [eni-0a1b2c3d4e5f60718]
security_groups:
  description: The security groups that were removed.
  returned: success
  type: list
  elements: dict
  contains:
    id:
      description: The id.
      type: str
      returned: always
    name:
      description: The name.
      type: str
      returned: always
  sample:
    - id: sg-0a1b2c3d4e5f60718
      name: k8s-elb-a1b2c3d4e5f6a7b8c9d0e1f2a3b4c5d6
left_alone:
  description:
    - What else uses the VPC and is not the cluster's, one line each, with what to do. Network interfaces and security
      groups are told once the cluster is gone.
  returned: success
  type: list
  elements: str
  sample:
    - >-
      load balancer web (network) in vpc-0a1b2c3d4e5f60718 has no tag of this cluster, so it stays, and so does the VPC.
      Delete it when nobody needs it
waited:
  description: What was waited for, one line for each change that was seen.
  returned: success
  type: list
  elements: str
  sample: ["no network interface is left (after 45 s)"]
diff:
  description: What was there, and that it is gone.
  returned: success
  type: dict
  sample: {before: "security group k8s-elb-web\n", after: ''}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.aws import session, waiting
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.orphans import Found, Sweep

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **session.ARGUMENTS,
        **waiting.ARGUMENTS,
        "vpc_id": {"type": "str", "required": True},
        "cluster": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["absent"], "default": "absent"},
    },
    "supports_check_mode": True,
}


def work(module: AnsibleModule) -> None:
    """Do what the arguments ask for, and end the module with the result."""
    params = module.params
    progress = waiting.Progress(module)
    sweep = Sweep(session.account(module), params["vpc_id"], params["cluster"])
    try:
        found = sweep.look()
        if not module.check_mode:
            sweep.remove(
                found,
                wait=params["wait"],
                timeout=params["wait_timeout"],
                delay=params["wait_delay"],
                progress=progress,
            )
    except AwsError as error:
        module.fail_json(msg=str(error), waited=progress.lines)
    module.exit_json(changed=not found.empty, waited=progress.lines, **_told(found))


def _told(found: Found) -> dict[str, Any]:
    balancers = [{"name": one.name, "type": one.kind, "arn": one.arn} for one in found.balancers]
    interfaces = sorted(one["NetworkInterfaceId"] for one in found.interfaces)
    groups = [{"id": one["GroupId"], "name": one["GroupName"]} for one in found.groups]
    before = [
        *(f"load balancer {one['name']} ({one['type']})" for one in balancers),
        *(f"target group {name}" for name in sorted(found.target_groups.values())),
        *(f"network interface {name}" for name in interfaces),
        *(f"security group {one['id']} ({one['name']})" for one in groups),
    ]
    return {
        "load_balancers": balancers,
        "target_groups": sorted(found.target_groups.values()),
        "network_interfaces": interfaces,
        "security_groups": groups,
        "left_alone": list(found.left_alone),
        "diff": {"before": "".join(f"{line}\n" for line in before), "after": ""},
    }


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()

#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.eks_cluster_info."""

from __future__ import annotations

DOCUMENTATION = r"""
module: eks_cluster_info
short_description: What there is of a cluster of Amazon EKS, its network and its roles
version_added: 0.1.0
description:
  - Looks for all that was made for a cluster of the fleet, by the tags that this collection gives it, so that a run
    goes on where an earlier one stopped, and a deletion finds what is left.
  - Fails when something has a name of the cluster's and belongs to somebody else, and when there are two of what there
    is to be one of.
options:
  name:
    description: Name of the cluster at EKS.
    type: str
    required: true
  tags:
    description:
      - The tags of its objects; C(modelplane.ai/cluster) has to be among them.
    type: dict
    required: true
  roles:
    description: Names of IAM roles that are to be the cluster's.
    type: list
    elements: str
    default: []
  policies:
    description: ARNs of IAM policies that are to be the cluster's; C(ACCOUNT) in them is the number of the account.
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - modelplane.fleet.aws.account
  - modelplane.fleet.attributes.read_only
seealso:
  - module: modelplane.fleet.eks_cluster
"""

EXAMPLES = r"""
- name: See how far the cluster is
  modelplane.fleet.eks_cluster_info:
    region: us-west-2
    name: modelplane-system-eks-us-west-eks-03b8e
    tags:
      modelplane.ai/cluster: modelplane-system.eks-us-west
  register: there
"""

RETURN = r"""
account:
  description: The number of the account.
  returned: success
  type: str
  sample: "111122223333"
cluster:
  description: The cluster; empty when there is none.
  returned: success
  type: dict
  sample:
    name: modelplane-system-eks-us-west-eks-03b8e
    status: ACTIVE
    version: "1.36"
    endpoint: https://0123456789ABCDEF.gr7.us-west-2.eks.amazonaws.com
    security_group_id: sg-0c
    node_groups: [gpu-l4, system]
    addons: [coredns, kube-proxy, vpc-cni]
    pod_identities:
      - {namespace: kube-system, service_account: cluster-autoscaler}
network:
  description: Ids of the network; empty where something is not there.
  returned: success
  type: dict
  sample:
    vpc_id: vpc-0a
    vpc_cidr: 10.0.0.0/16
    internet_gateway_id: igw-0a
    allocation_id: eipalloc-0a
    public_ip: 203.0.113.7
    nat_gateway_id: nat-0a
    nat_gateway_state: available
    nat_gateways_deleting: []
    subnets:
      eks-us-west-subnet-us-west-2a-d8789: {id: subnet-0a, cidr: 10.0.0.0/20, zone: us-west-2a}
    route_tables: {eks-us-west-public-routes-7065f: rtb-0a}
    security_groups: {eks-us-west-efs: sg-0a}
launch_templates:
  description: The names of its launch templates.
  returned: success
  type: list
  elements: str
  sample: [eks-us-west-lt-gpu-h200-99b1f]
roles:
  description: Those of O(roles) that are there.
  returned: success
  type: list
  elements: str
  sample: [modelplane-system-eks-us-west-node-6c58f]
policies:
  description: The names of those of O(policies) that are there.
  returned: success
  type: list
  elements: str
  sample: [modelplane-system-eks-us-west-cluster-autoscaler-ac5d4]
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.aws import finding
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.task import ACCOUNT, Task, run

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **ACCOUNT,
        "name": {"type": "str", "required": True},
        "tags": {"type": "dict", "required": True},
        "roles": {"type": "list", "elements": "str", "default": []},
        "policies": {"type": "list", "elements": "str", "default": []},
    },
    "supports_check_mode": True,
}


def work(module: AnsibleModule) -> None:
    """Do what the arguments ask for, and end the module with the result."""
    run(module, lambda task: module.exit_json(changed=False, **_found(task)))


def _found(task: Task) -> dict[str, Any]:
    account = str(task.client("sts").call("get_caller_identity", "")["Account"])
    policies = [arn.replace("ACCOUNT", account) for arn in task.params["policies"]]
    return {
        "account": account,
        "cluster": finding.cluster(task.client("eks"), task.params["name"], task.tags),
        "network": finding.network(task.client("ec2"), task.tags),
        "launch_templates": finding.launch_templates(task.client("ec2"), task.tags),
        **finding.need_our_names(task.client("iam"), task.params["roles"], policies, task.tags),
    }


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()

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
  - Compares network and roles with the plan.
  - Fails when something has a name of the cluster's and belongs to somebody else, and when there are two of what there
    is to be one of.
options:
  plan:
    description:
      - The plan of the cluster, as P(modelplane.fleet.eks_plan#filter) makes it.
    type: dict
    required: true
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
    plan: "{{ (declared.resources | modelplane.fleet.eks_plan).plans['eks-us-west'] }}"
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
subnet_ids:
  description:
    - By name, the ids of the planned subnets. For what is not there, here and among security groups, an id is
      made up that nothing has, so that a run in check mode can go on.
  returned: success
  type: dict
  sample: {eks-us-west-subnet-us-west-2a-d8789: subnet-0a}
security_group_ids:
  description: By key, the ids of the planned security groups.
  returned: success
  type: dict
  sample: {efs: sg-0a}
role_arns:
  description: By key, the ARNs of the planned roles.
  returned: success
  type: dict
  sample: {node: "arn:aws:iam::111122223333:role/modelplane-system-eks-us-west-node-6c58f"}
launch_templates:
  description: The names of its launch templates.
  returned: success
  type: list
  elements: str
  sample: [eks-us-west-lt-gpu-h200-99b1f]
roles:
  description: The names of those of its roles that are there.
  returned: success
  type: list
  elements: str
  sample: [modelplane-system-eks-us-west-node-6c58f]
policies:
  description: The names of those of its policies that are there.
  returned: success
  type: list
  elements: str
  sample: [modelplane-system-eks-us-west-cluster-autoscaler-ac5d4]
different:
  description: What is missing or otherwise than planned, of C(network) and C(identity).
  returned: success
  type: dict
  sample: {network: [there is no NAT gateway that works], identity: []}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.aws import finding
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.tags import wanted_tags
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.task import ACCOUNT, Task, run
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.comparing import (
    identity_differences,
    network_differences,
)

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {**ACCOUNT, "plan": {"type": "dict", "required": True}},
    "supports_check_mode": True,
}


def work(module: AnsibleModule) -> None:
    """Do what the arguments ask for, and end the module with the result."""
    run(module, lambda task: module.exit_json(changed=False, **_found(task)))


def _found(task: Task) -> dict[str, Any]:
    plan = task.params["plan"]
    try:
        names = [role["name"] for role in plan["roles"]]
        tags, cluster = wanted_tags(plan["tags"]), plan["cluster"]["name"]
    except (KeyError, TypeError):
        raise AwsError("plan is none of the filter modelplane.fleet.eks_plan", "Give one of its plans") from None
    account = str(task.client("sts").call("get_caller_identity", "")["Account"])
    arn = f"arn:{plan['partition']}:iam::{account}"
    ec2, iam = task.client("ec2"), task.client("iam")
    roles = finding.roles(iam, names, tags)
    policies = finding.policies(iam, [f"{arn}:policy/{policy['name']}" for policy in plan["policies"]], tags)
    network = finding.network(ec2, tags)
    ids = finding.network_ids(network)
    return {
        "account": account,
        "cluster": finding.cluster(task.client("eks"), cluster, tags),
        "network": ids,
        "subnet_ids": {
            subnet["name"]: (ids["subnets"].get(subnet["name"]) or {}).get("id")
            or finding.made_up("subnet", subnet["name"])
            for subnet in plan["network"]["subnets"]
        },
        "security_group_ids": {
            group["key"]: ids["security_groups"].get(group["name"]) or finding.made_up("sg", group["name"])
            for group in plan["security_groups"]
        },
        "role_arns": {role["key"]: f"{arn}:role/{role['name']}" for role in plan["roles"]},
        "launch_templates": finding.launch_templates(ec2, tags),
        "roles": sorted(roles),
        "policies": sorted(policies),
        "different": {
            "network": network_differences(plan, network),
            "identity": identity_differences(plan, account, roles, policies),
        },
    }


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()

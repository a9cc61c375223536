#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.eks_cluster_info."""

from __future__ import annotations

DOCUMENTATION = r"""
module: eks_cluster_info
short_description: Tell what AWS has of an EKS cluster, and where that is not as planned
version_added: 0.1.0
description:
  - Looks, in one task and with a few calls at once, for everything that belongs to an EKS cluster, and compares network
    and access rights with the plan, so that a role runs the slower tasks that change them only where something differs.
  - What belongs to the cluster is known by its tags C(modelplane.ai/cluster), C(modelplane.ai/managed-by) and
    C(modelplane.ai/fleet). What has a planned name without those tags is told in RV(foreign), and is never taken for
    ours.
  - Routes, associations of route tables, and tags that others add to our objects are no difference. To keep them, give
    C(purge_routes), C(purge_subnets) and C(purge_tags) of amazon.aws modules as V(false). Rules of security groups and
    policies of roles that nobody planned are a difference.
options:
  plan:
    description: The plan of the cluster, as the filter P(modelplane.fleet.eks_plan#filter) makes it.
    type: dict
    required: true
  everything:
    description:
      - Whether to tell in RV(left) all that carries our tags, as a removal needs to know.
    type: bool
    default: false
extends_documentation_fragment:
  - modelplane.fleet.aws
attributes:
  check_mode:
    support: full
    description: The module changes nothing in any mode.
  diff_mode:
    support: full
    description: RV(diff) shows what would have to change; that something differs is no change of this module.
  idempotent:
    support: full
    description: The module changes nothing.
"""

EXAMPLES = r"""
- name: See what is there of the cluster, and what is not as planned
  modelplane.fleet.eks_cluster_info:
    region: us-west-2
    plan: "{{ eks_cluster_object | modelplane.fleet.eks_plan }}"
  register: seen

- name: Stop where something cannot be brought about, or is somebody else's
  ansible.builtin.assert:
    that: refused + seen.foreign == []
    fail_msg: "{{ (refused + seen.foreign) | join('\n') }}"
  vars:
    refused: "{{ seen.differences | selectattr('action', 'eq', 'refuse') | map(attribute='told') }}"

- name: Make the VPC, where it is missing or differs
  amazon.aws.ec2_vpc_net:
    name: "{{ plan.vpc.name }}"
    cidr_block: "{{ plan.vpc.cidr }}"
    tags: "{{ plan.tags }}"
    purge_tags: false
  when: "'vpc' in seen.parts"
"""

RETURN = r"""
found:
  description:
    - What AWS has of the plan and carries our tags. A dict is empty where there is nothing; dicts by name or key
      lack the keys of what is not there.
  returned: success
  type: dict
  contains:
    account:
      description: The number of the account.
      type: str
      returned: success
    vpc:
      description: C(id), C(name), C(cidr), C(state), C(dns_support), C(dns_hostnames), C(tags).
      type: dict
      returned: success
    subnets:
      description: By planned name, C(id), C(name), C(vpc), C(cidr), C(zone), C(map_public), C(tags).
      type: dict
      returned: success
    internet_gateway:
      description: C(id), C(name), C(vpc) (the id of the VPC that it is attached to, or empty), C(tags).
      type: dict
      returned: success
    nat_gateway:
      description:
        - C(id), C(name), C(vpc), C(subnet) (id), C(state), C(reason) (why it failed), C(allocation) (id of its Elastic
          IP), C(public_ip), C(tags). One that failed or is being deleted is here too, and RV(ids.nat_gateway) empty.
      type: dict
      returned: success
    addresses:
      description: The Elastic IPs with our tags, by allocation id, C(id), C(name), C(public_ip), C(in_use), C(tags).
      type: dict
      returned: success
    route_tables:
      description:
        - By tier (V(public), V(private)), C(id), C(name), C(vpc), C(routes) (target by CIDR, without those that lead
          nowhere), C(associations) (association id by subnet id), C(tags).
      type: dict
      returned: success
    security_groups:
      description:
        - By key (V(efs), V(efa)), C(id), C(name), C(vpc), C(description), C(ingress) and C(egress) as lists of
          C([protocol, first port, last port, CIDR or self or id]), C(tags).
      type: dict
      returned: success
    roles:
      description: By key (V(cluster), V(node), V(efs_csi), V(autoscaler)), C(arn), C(name), C(trust),
        C(managed_policies) (ARNs), C(tags).
      type: dict
      returned: success
    policies:
      description: By key (V(autoscaler)), C(arn), C(name), C(document), C(tags).
      type: dict
      returned: success
    cluster:
      description: The cluster as EKS describes it.
      type: dict
      returned: success
    node_groups:
      description: The names of the node groups of the cluster.
      type: list
      elements: str
      returned: success
    file_system:
      description: C(id), C(name), C(state), C(encrypted), C(throughput_mode), C(tags).
      type: dict
      returned: success
    launch_templates:
      description: By name, C(id), C(name), C(latest_version).
      type: dict
      returned: success
ids:
  description:
    - What the next tasks need to name. An id is empty where there is nothing; the ARNs of roles and policies are those
      that they will have.
  returned: success
  type: dict
  contains:
    account:
      description: The number of the account.
      type: str
      returned: success
    vpc:
      description: The id of the VPC.
      type: str
      returned: success
    subnets:
      description: The id of each planned subnet by its name.
      type: dict
      returned: success
    public_subnets:
      description: The ids of the public subnets, in the order of the plan.
      type: list
      elements: str
      returned: success
    private_subnets:
      description: The id of the private subnet of each zone.
      type: dict
      returned: success
    internet_gateway:
      description: The id of the internet gateway, also of one that is not attached.
      type: str
      returned: success
    nat_gateway:
      description: The id of the NAT gateway that is there or about to be.
      type: str
      returned: success
    eip:
      description: The allocation id of the Elastic IP of the NAT gateway.
      type: str
      returned: success
    route_tables:
      description: The ids of the route tables V(public) and V(private).
      type: dict
      returned: success
    security_groups:
      description: The id of each planned group by its key (V(efs), V(efa)).
      type: dict
      returned: success
    cluster_security_group:
      description: The group that EKS made for the cluster.
      type: str
      returned: success
    roles:
      description: The ARN of each planned role by its key, whether it is there already or not.
      type: dict
      returned: success
    policies:
      description: The ARN of each planned policy by its key, whether it is there already or not.
      type: dict
      returned: success
    file_system:
      description: The id of the file system.
      type: str
      returned: success
    launch_templates:
      description: The id of each planned launch template by its name.
      type: dict
      returned: success
    cluster:
      description: The ARN of the cluster.
      type: str
      returned: success
    cluster_status:
      description: Its status, as V(ACTIVE).
      type: str
      returned: success
    endpoint:
      description: The URL of its API server.
      type: str
      returned: success
    certificate_authority:
      description: The certificates of the API server, base64-encoded as in a kubeconfig.
      type: str
      returned: success
  sample:
    account: "123456789012"
    vpc: vpc-0a1
    subnets: {eks-us-west-subnet-us-west-2a-d8789: subnet-0a1, eks-us-west-private-subnet-us-west-2a-9965a: subnet-0b1}
    public_subnets: [subnet-0a1]
    private_subnets: {us-west-2a: subnet-0b1}
    internet_gateway: igw-0a1
    nat_gateway: nat-0a1
    eip: eipalloc-0a1
    route_tables: {public: rtb-0a1, private: rtb-0b1}
    security_groups: {efs: sg-0a1}
    cluster_security_group: sg-0c1
    roles: {node: "arn:aws:iam::123456789012:role/modelplane-system-eks-us-west-node-0b1f2"}
    policies: {autoscaler: "arn:aws:iam::123456789012:policy/modelplane-system-eks-us-west-autoscaler-77aa1"}
    file_system: fs-0a1
    launch_templates: {}
    cluster: arn:aws:eks:us-west-2:123456789012:cluster/modelplane-system-eks-us-west-eks-03b8e
    cluster_status: ACTIVE
    endpoint: https://ABC.gr7.us-west-2.eks.amazonaws.com
    certificate_authority: LS0tLS1CRUdJTg==
differences:
  description: The objects of network and access rights that are not as planned, in the order in which they can be made.
  returned: success
  type: list
  elements: dict
  contains:
    part:
      description: One of V(vpc), V(subnets), V(internet_gateway), V(nat_gateway), V(route_tables),
        V(security_groups), V(policies), V(roles).
      type: str
      returned: success
    name:
      description: The name of the object, or its id where it has none.
      type: str
      returned: success
    action:
      description:
        - What is to be done about it. V(remove) is only ever of a security group that the plan no longer has. V(refuse)
          says that it takes a person; C(told) says what to do.
      type: str
      returned: success
    told:
      description: A line for people.
      type: str
      returned: success
    before:
      description: The values that differ, as they are.
      type: dict
      returned: success
    after:
      description: The same, as planned.
      type: dict
      returned: success
  sample:
    - part: nat_gateway
      name: eks-us-west-nat
      action: make
      told: NAT gateway eks-us-west-nat is made in the subnet eks-us-west-subnet-us-west-2a-d8789, with an Elastic IP
      before: {}
      after: {subnet: eks-us-west-subnet-us-west-2a-d8789}
parts:
  description: The parts with a difference that can be brought about (V(make), V(change), V(remove)).
  returned: success
  type: list
  elements: str
  sample: [nat_gateway, route_tables]
unplanned:
  description:
    - What carries our tags and is not in the plan, by part, in the form of RV(found). RV(differences) says what of it
      is removed.
  returned: success
  type: dict
  sample: {security_groups: [{id: sg-0d1, name: eks-us-west-efa}]}
foreign:
  description: A line about each thing that has a planned name, or stands where the plan has one, and is not ours.
  returned: success
  type: list
  elements: str
  sample: []
left:
  description: All that carries our tags, in the order in which it can be removed.
  returned: when O(everything) is true
  type: list
  elements: dict
  contains:
    kind:
      description: One of V(node_group), V(mount_target), V(file_system), V(launch_template), V(cluster),
        V(security_group), V(nat_gateway), V(elastic_ip), V(route_table), V(subnet), V(internet_gateway), V(vpc),
        V(role), V(policy).
      type: str
      returned: success
    id:
      description: Its id, ARN or name.
      type: str
      returned: success
    name:
      description: Its name, if it has one.
      type: str
      returned: success
  sample: [{kind: vpc, id: vpc-0a1, name: modelplane-system-eks-us-west-eks-03b8e}]
diff:
  description: What would have to change, per object.
  returned: success
  type: list
  elements: dict
  sample: []
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.aws import observe, session, task
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks import differences
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.observed import observe as sort_out

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **session.ARGUMENTS,
        "plan": {"type": "dict", "required": True},
        "everything": {"type": "bool", "default": False},
    },
    "supports_check_mode": True,
}


def work(module: AnsibleModule) -> None:
    """Do what the arguments ask for, and end the module with the result."""
    plan, everything = module.params["plan"], module.params["everything"]
    problem = task.plan_fault(plan, _KEYS, module.params["region"])
    if problem:
        module.fail_json(msg=problem)
    account = session.account(module)
    try:
        answers = observe.answers(account, plan, everything=everything)
    except AwsError as error:
        module.fail_json(msg=str(error))
    observed = sort_out(plan, answers)
    found = differences.differences(plan, observed)
    module.exit_json(
        changed=False,
        found=observed.found,
        ids=observed.ids,
        differences=differences.plain(found),
        parts=list(dict.fromkeys(one.part for one in found if one.action != "refuse")),
        unplanned=observed.unplanned,
        foreign=observed.foreign,
        diff=differences.diff(found),
        **({"left": observed.left} if everything else {}),
    )


_KEYS = (
    *("name", "region", "partition", "tags", "vpc", "subnets", "internet_gateway", "nat_gateway", "route_tables"),
    *("security_groups", "roles", "policies", "launch_templates", "file_system"),
)


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()

#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.cloud_preflight_info."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cloud_preflight_info
short_description: Report what would keep a planned cluster from being created in its cloud
version_added: 0.1.0
description:
  - Checks, before anything is created, whether the credentials work, whether the account or project and the region can
    be used, whether the cloud offers the Kubernetes version, whether the zones exist and have the machines, whether
    these are what the plan needs, and whether the quotas let the nodes start.
  - In AWS also EFA and capacity reservations are checked, in Google Cloud the enabled APIs, the permissions,
    and the account of nodes.
  - All that is found is returned at once, in RV(problems) and RV(warnings_found). The task fails only where nothing can
    be read at all, as without credentials.
  - A finding about what exists already, the cluster or a pool of nodes, is a warning, as nothing is created for it.
options:
  plan:
    description:
      - The plan of the cluster, as P(modelplane.fleet.eks_plan#filter) or P(modelplane.fleet.gke_plan#filter) returns
        it. The project of a plan counts, and not O(project).
      - Without it, only what a plan can be made with is read, RV(account) and RV(zones) in AWS, RV(account) and
        RV(project) in Google Cloud.
    type: dict
  others:
    description:
      - The networks of the other clusters of the fleet, which should not overlap. A cluster with several ranges is
        listed once for each.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: The name.
        type: str
        required: true
      region:
        description: The region.
        type: str
        required: true
      cidr:
        description: A range of addresses of its network.
        type: str
        required: true
  key:
    description:
      - Whether a key of the service account of the cluster is created, as with a control cluster. Without one, the
        permissions for that are not needed.
      - Of O(provider=gke).
    type: bool
    default: true
extends_documentation_fragment:
  - modelplane.fleet.clouds
  - modelplane.fleet.attributes.read_only
notes:
  - Enabling and disabling APIs, and new rights, take Google a minute or two.
seealso:
  - module: modelplane.fleet.cloud_resources
  - module: modelplane.fleet.cloud_orphans
  - module: modelplane.fleet.cloud_account
"""

EXAMPLES = r"""
- name: Read the zones of the account
  modelplane.fleet.cloud_preflight_info:
    provider: eks
    region: us-west-2
  register: account

- name: Check the account
  modelplane.fleet.cloud_preflight_info:
    provider: eks
    region: us-west-2
    plan: "{{ eks_cluster_object | modelplane.fleet.eks_plan(options={'zones': account.zones}) }}"
    others:
      - name: eks-us-east
        region: us-east-1
        cidr: 10.0.0.0/16
  register: preflight
  failed_when: preflight.problems != []

- name: Read the project of the credentials
  modelplane.fleet.cloud_preflight_info:
    provider: gke
    credentials_file: /etc/modelplane/fleet-prod.json
  register: login

- name: Check the project
  modelplane.fleet.cloud_preflight_info:
    provider: gke
    credentials_file: /etc/modelplane/fleet-prod.json
    plan: "{{ gke_cluster_object | modelplane.fleet.gke_plan(project=login.project) }}"
  register: preflight
  failed_when: preflight.problems != []
"""

RETURN = r"""
account:
  description:
    - In AWS the number of the account, empty when AWS refuses the credentials.
    - In Google Cloud the address of the account that the credentials are of, or the provider of a federated identity
      that acts as itself; empty where the credentials do not say, as those of a user.
  returned: success
  type: str
  sample: "123456789012"
arn:
  description: The ARN of the identity that the credentials are of.
  returned: with O(provider=eks)
  type: str
  sample: arn:aws:sts::123456789012:assumed-role/fleet/ops
project:
  description: The ID of the project; that of the plan, of O(project), of the environment, or of the credentials.
  returned: with O(provider=gke)
  type: str
  sample: fleet-prod
zones:
  description:
    - In AWS the zones of the region that are available to the account and that the control plane of a cluster can be
      in. Local zones are left out, and those in which EKS takes no subnets (by their ids, as names differ per account).
    - In Google Cloud the zones of the region that are up; empty without O(plan).
  returned: success
  type: list
  elements: str
  sample: [us-west-2a, us-west-2b, us-west-2c, us-west-2d]
observed:
  description:
    - What was read of the account or project, as far as O(plan) is about it, for M(modelplane.fleet.cloud_account).
      These are quotas, reservations, where machines are offered, and which node pools exist; in Google Cloud also what
      counts in all regions together.
    - Empty without O(plan).
  returned: success
  type: list
  elements: dict
  sample:
    - provider: eks
      account: "123456789012"
      region: us-west-2
      observed: "2026-11-27"
      quotas:
        - code: L-417A185B
          name: Running On-Demand P instances
          unit: vCPUs
          limit: 96
          observed: "2026-11-27"
      reservations: []
      offerings: [{machine: p5.48xlarge, vcpus: 192, zones: [usw2-az1, usw2-az2], observed: "2026-11-27"}]
      zones: [{name: us-west-2a, id: usw2-az1}, {name: us-west-2b, id: usw2-az2}]
      clusters: [{name: eks-us-west, pools: [{name: system, nodes: 2}]}]
subnet_zones:
  description: The zones that subnets of the planned cluster have already, by their ranges; empty without O(plan).
  returned: with O(provider=eks)
  type: dict
  sample: {10.0.0.0/20: us-west-2a, 10.0.48.0/20: us-west-2a}
groups_without_template:
  description:
    - The node groups of the planned cluster that exist without a launch template; empty without O(plan).
    - Where there are some, plan again, with them as an option of P(modelplane.fleet.eks_plan#filter), so that they stay
      as they are.
  returned: with O(provider=eks)
  type: list
  elements: str
  sample: [gpu-l4]
zones_fit:
  description:
    - Whether the plan has its subnets in such zones, and those that exist in their own. If not, plan again, with
      RV(zones) and RV(subnet_zones) as options of P(modelplane.fleet.eks_plan#filter).
  returned: with O(provider=eks)
  type: bool
  sample: true
problems:
  description: What has to be corrected first, one line each, with what to do.
  returned: success
  type: list
  elements: str
  sample:
    - "node pool gpu: p5.48xlarge is not offered in us-west-2d. It is offered in us-west-2a, us-west-2b, us-west-2c"
warnings_found:
  description: What may fail later, and what could not be checked, one line each.
  returned: success
  type: list
  elements: str
  sample: []
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.errors import CloudError
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.registry import BACKENDS, arguments

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **arguments(),
        "plan": {"type": "dict"},
        "others": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {name: {"type": "str", "required": True} for name in ("name", "region", "cidr")},
        },
        "key": {"type": "bool", "default": True, "no_log": False},
    },
    "supports_check_mode": True,
}


def work(module: AnsibleModule) -> None:
    """Do what the arguments ask for, and end the module with the result."""
    try:
        verdicts = BACKENDS[module.params["provider"]].preflight(module)
    except CloudError as error:
        module.fail_json(msg=str(error))
        raise
    module.exit_json(changed=False, **verdicts)


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()

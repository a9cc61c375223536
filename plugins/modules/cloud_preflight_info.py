#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.cloud_preflight_info."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cloud_preflight_info
short_description: Check whether a planned cluster can be created in its cloud
version_added: 0.1.0
description:
  - Checks, before anything is created, the credentials, the account or project, the region, the Kubernetes version, the
    zones, the instance types and their properties, and the quotas for the planned nodes.
  - In AWS the module also checks EFA and capacity reservations. In Google Cloud it also checks enabled APIs,
    permissions, and the service account of the nodes.
  - Returns all findings together, in RV(problems) and RV(warnings_found). The task fails only if nothing can be read,
    for example without credentials.
  - A finding about an existing cluster or node pool is a warning, because nothing is created for it.
options:
  plan:
    description:
      - The plan of the cluster, as returned by P(modelplane.fleet.eks_plan#filter) or
        P(modelplane.fleet.gke_plan#filter). The project of a plan overrides O(project).
      - If unset, the module reads only the values that a plan needs. These are RV(account) and RV(zones) in AWS, and
        RV(account) and RV(project) in Google Cloud.
    type: dict
  others:
    description:
      - The networks of the other clusters of the fleet, which must not overlap with the planned network. List a cluster
        with several CIDR ranges once for each range.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: The name of the cluster.
        type: str
        required: true
      region:
        description: The region of the cluster.
        type: str
        required: true
      cidr:
        description: A CIDR range of the cluster's network.
        type: str
        required: true
  key:
    description:
      - Whether the module checks the permissions to create a service account key for the cluster. The key is only
        needed for a fleet with a control cluster.
      - Only for O(provider=gke).
    type: bool
    default: true
extends_documentation_fragment:
  - modelplane.fleet.clouds
  - modelplane.fleet.attributes.read_only
notes:
  - Google Cloud needs one to two minutes to apply changes of APIs and permissions.
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

- name: Find the project of the credentials
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
    - In AWS the account number. Empty if AWS rejects the credentials.
    - In Google Cloud the email address of the service account of the credentials, or the provider of a federated
      identity without a service account. Empty if the credentials do not contain it, for example user credentials.
  returned: success
  type: str
  sample: "123456789012"
arn:
  description: The ARN of the identity of the credentials.
  returned: with O(provider=eks)
  type: str
  sample: arn:aws:sts::123456789012:assumed-role/fleet/ops
project:
  description: The project ID, from the plan, O(project), the environment, or the credentials.
  returned: with O(provider=gke)
  type: str
  sample: fleet-prod
zones:
  description:
    - In AWS the zones of the region that are available to the account and that EKS supports for control plane subnets.
      Local zones are omitted. Unsupported zones are recognized by zone ID, because zone names differ between accounts.
    - In Google Cloud the zones of the region that are up. Empty without O(plan).
  returned: success
  type: list
  elements: str
  sample: [us-west-2a, us-west-2b, us-west-2c, us-west-2d]
observed:
  description:
    - The account or project data that O(plan) needs, for M(modelplane.fleet.cloud_account). It contains quotas,
      reservations, zones that offer the instance types, and existing node pools. In Google Cloud it also contains the
      quotas that apply to all regions together.
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
  description: The zones of existing subnets of the planned cluster, by CIDR range. Empty without O(plan).
  returned: with O(provider=eks)
  type: dict
  sample: {10.0.0.0/20: us-west-2a, 10.0.48.0/20: us-west-2a}
groups_without_template:
  description:
    - The existing node groups of the planned cluster that have no launch template. Empty without O(plan).
    - If there are any, plan again and pass them as an option of P(modelplane.fleet.eks_plan#filter), so that they are
      left unchanged.
  returned: with O(provider=eks)
  type: list
  elements: str
  sample: [gpu-l4]
zones_fit:
  description:
    - Whether the planned subnets are in RV(zones), and existing subnets keep their zones. If V(false), plan again and
      pass RV(zones) and RV(subnet_zones) as options of P(modelplane.fleet.eks_plan#filter).
  returned: with O(provider=eks)
  type: bool
  sample: true
problems:
  description: Problems that prevent the creation of the cluster, one line each, with a fix.
  returned: success
  type: list
  elements: str
  sample:
    - "node pool gpu: p5.48xlarge is not offered in us-west-2d. It is offered in us-west-2a, us-west-2b, us-west-2c"
warnings_found:
  description: Problems that might occur later, and checks that were not possible, one line each.
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
    """Run the module with its arguments, and exit with its result."""
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

#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.eks_preflight_info."""

from __future__ import annotations

DOCUMENTATION = r"""
module: eks_preflight_info
short_description: Tell what would keep a planned EKS cluster from being made
version_added: 0.1.0
description:
  - Asks AWS, before anything is made, whether the credentials work and the region can be used, whether EKS offers the
    Kubernetes version, whether zones exist and have the instance types, whether these have GPUs and EFA as the plan
    wants them, whether capacity reservations are there for the nodes and active, and whether the vCPU quotas let the
    nodes start.
  - All that is found comes at once, in RV(problems) and RV(warnings_found). The task fails only where it cannot ask at
    all, as without credentials.
  - What concerns a node group that is there already is a warning, as nothing is made for it.
options:
  plan:
    description:
      - The plan of the cluster, as the filter P(modelplane.fleet.eks_plan#filter) makes it.
      - Without it, only RV(account), RV(arn) and RV(zones) are looked for, which a plan can be made with.
    type: dict
  others:
    description: The other clusters of the fleet, whose networks had better not overlap.
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
        description: The range of addresses of its VPC.
        type: str
        required: true
extends_documentation_fragment:
  - modelplane.fleet.aws
  - modelplane.fleet.attributes.read_only
"""

EXAMPLES = r"""
- name: See which zones the account has
  modelplane.fleet.eks_preflight_info:
    region: us-west-2
  register: account

- name: Look for what would keep the cluster from being made
  modelplane.fleet.eks_preflight_info:
    region: us-west-2
    plan: "{{ eks_cluster_object | modelplane.fleet.eks_plan(options={'zones': account.zones}) }}"
    others:
      - name: eks-us-east
        region: us-east-1
        cidr: 10.0.0.0/16
  register: preflight
  failed_when: preflight.problems != []
"""

RETURN = r"""
account:
  description: The number of the account; empty when AWS refuses the credentials.
  returned: success
  type: str
  sample: "123456789012"
arn:
  description: Who we are there.
  returned: success
  type: str
  sample: arn:aws:sts::123456789012:assumed-role/fleet/ops
zones:
  description:
    - The zones of the region that are available to the account and that the control plane of a cluster can be in. Local
      zones are left out, and those in which EKS takes no subnets (by their ids, as names differ per account).
  returned: success
  type: list
  elements: str
  sample: [us-west-2a, us-west-2b, us-west-2c, us-west-2d]
subnet_zones:
  description: The zones that subnets of the planned cluster have already, by their ranges; empty without a plan.
  returned: success
  type: dict
  sample: {10.0.0.0/20: us-west-2a, 10.0.48.0/20: us-west-2a}
zones_fit:
  description:
    - Whether the plan has its subnets in such zones, and those that exist in their own. If not, make it again, with
      RV(zones) and RV(subnet_zones) as options of P(modelplane.fleet.eks_plan#filter).
  returned: success
  type: bool
  sample: true
problems:
  description: What has to be put right first, one line each, with what to do.
  returned: success
  type: list
  elements: str
  sample:
    - "node pool gpu: p5.48xlarge is not offered in us-west-2d. It is offered in us-west-2a, us-west-2b, us-west-2c"
warnings_found:
  description: What one should know, and what could not be looked at, one line each.
  returned: success
  type: list
  elements: str
  sample: []
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.aws import preflight as looking
from ansible_collections.modelplane.fleet.plugins.module_utils.aws import session, task
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud import preflight as looks
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks import preflight

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **session.ARGUMENTS,
        **looks.ARGUMENTS,
    },
    "supports_check_mode": True,
}
_KEYS = ("name", "object", "region", "version", "tags", "vpc", "subnets", "zones", "node_groups", "launch_templates")


def work(module: AnsibleModule) -> None:
    """Do what the arguments ask for, and end the module with the result."""
    plan = module.params["plan"]
    fault = "" if plan is None else task.plan_fault(plan, _KEYS, module.params["region"])
    if fault:
        module.fail_json(msg=fault)
    seen = looking.look(session.account(module), plan)
    problems, warnings = list(seen.problems), list(seen.warnings)
    if plan and seen.account:
        verdict = preflight.judge(plan, seen.found, module.params["others"])
        problems += verdict.problems
        warnings += verdict.warnings
    module.exit_json(
        changed=False,
        account=seen.account,
        arn=seen.arn,
        zones=list(seen.found.zones or ()),
        subnet_zones=dict(seen.found.subnet_zones),
        zones_fit=not plan or preflight.zones_fit(plan, seen.found),
        problems=problems,
        warnings_found=warnings,
    )


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()

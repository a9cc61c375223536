#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.gke_preflight_info."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gke_preflight_info
short_description: Tell what would keep a planned GKE cluster from being made
version_added: 0.1.0
description:
  - Asks Google Cloud, before anything is made, whether the credentials work, whether the project is there and may be
    used, whether its APIs are enabled and we have the permissions, whether the region exists and GKE offers the
    Kubernetes version there, whether zones exist and have the machine types and accelerators, and whether the quotas
    let the nodes start.
  - All that is found comes at once, in RV(problems) and RV(warnings_found). The task fails only where it cannot ask at
    all, as with credentials that give no token.
  - What concerns what is there already, the cluster or a node pool, is a warning, as nothing is made for it.
options:
  plan:
    description:
      - The plan of the cluster, as the filter P(modelplane.fleet.gke_plan#filter) makes it. Its project counts, and not
        O(project).
      - Without it, only RV(project) and RV(account) are looked for, which a plan can be made with.
    type: dict
  others:
    description:
      - The networks of the other clusters of the fleet, which had better not overlap. A cluster with several ranges is
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
      - Whether a key of the service account of the cluster is to be made, as with a control cluster. Else the
        permissions for that are not needed.
    type: bool
    default: true
extends_documentation_fragment:
  - modelplane.fleet.google
  - modelplane.fleet.attributes.read_only
notes:
  - Enabling and disabling APIs, and new rights, take Google a minute or two.
seealso:
  - module: modelplane.fleet.cloud_resources
"""

EXAMPLES = r"""
- name: See whose the credentials are
  modelplane.fleet.gke_preflight_info:
    credentials_file: /etc/modelplane/fleet-prod.json
  register: account

- name: Look for what would keep the cluster from being made
  modelplane.fleet.gke_preflight_info:
    credentials_file: /etc/modelplane/fleet-prod.json
    plan: "{{ gke_cluster_object | modelplane.fleet.gke_plan(project=account.project) }}"
    others:
      - name: gke-us-east
        region: us-east4
        cidr: 10.0.0.0/24
      - name: gke-us-east
        region: us-east4
        cidr: 10.1.0.0/16
  register: preflight
  failed_when: preflight.problems != []
"""

RETURN = r"""
project:
  description: The ID of the project; that of the plan, of O(project), of the environment, or of the credentials.
  returned: success
  type: str
  sample: fleet-prod
account:
  description:
    - Who we are, as the address of an account, or as the provider of a federated identity that acts as itself.
    - Empty where the credentials do not tell, as those of a user.
  returned: success
  type: str
  sample: fleet@fleet-prod.iam.gserviceaccount.com
zones:
  description: The zones of the region that are up; empty without O(plan).
  returned: success
  type: list
  elements: str
  sample: [us-central1-a, us-central1-b, us-central1-c, us-central1-f]
problems:
  description: What has to be put right first, one line each, with what to do.
  returned: success
  type: list
  elements: str
  sample:
    - >-
      node pool gpu: g2-standard-8 is not offered in us-central1-f. It is offered in us-central1-a, us-central1-b,
      us-central1-c
warnings_found:
  description: What one should know, and what could not be looked at, one line each.
  returned: success
  type: list
  elements: str
  sample: []
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud import preflight as cloud_preflight
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud import task
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke import preflight
from ansible_collections.modelplane.fleet.plugins.module_utils.google import preflight as looks
from ansible_collections.modelplane.fleet.plugins.module_utils.google import session
from ansible_collections.modelplane.fleet.plugins.module_utils.google.errors import GoogleError

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {**session.ARGUMENTS, **cloud_preflight.ARGUMENTS, "key": {"type": "bool", "default": True}},
    "supports_check_mode": True,
}
_KEYS = ("name", "object", "project", "region", "version", "resources")


def work(module: AnsibleModule) -> None:
    """Do what the arguments ask for, and end the module with the result."""
    plan = module.params["plan"]
    fault = "" if plan is None else task.plan_fault(plan, _KEYS, "gke_plan")
    if fault:
        module.fail_json(msg=fault)
    client = session.client(module)
    try:
        project = plan["project"] if plan else session.project(module.params)
        account = session.account(module.params)
    except GoogleError as error:
        module.fail_json(msg=str(error))
        raise
    seen = looks.look(client, project, account, plan)
    problems, warnings = list(seen.problems), list(seen.warnings)
    if plan and seen.usable:
        verdict = preflight.judge(plan, seen.found, account, module.params["others"], key=module.params["key"])
        problems += verdict.problems
        warnings += verdict.warnings
    module.exit_json(
        changed=False,
        project=project,
        account=account,
        zones=preflight.zones_of(plan["region"], seen.found.zones or ()) if plan else [],
        problems=problems,
        warnings_found=warnings,
    )


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()

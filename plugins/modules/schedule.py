#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.schedule."""

from __future__ import annotations

DOCUMENTATION = r"""
module: schedule
short_description: Schedule the replicas of a fleet without writing files
version_added: 0.1.0
description:
  - Reads and validates the manifests of a fleet and schedules each replica of each ModelDeployment to a cluster and its
    node pools. Nothing is written.
  - Running replicas stay on their cluster as long as possible. A missing replica is scheduled to the cluster that has
    suitable free devices and the fewest replicas of the deployment. For each unschedulable replica, the result contains
    the reason of every cluster and node pool.
options:
  path:
    description: The build directory of earlier runs, whose replicas are kept. If unset, all replicas are new.
    type: path
extends_documentation_fragment:
  - modelplane.fleet.fleet
  - modelplane.fleet.fleet.scheduling
  - modelplane.fleet.fleet.endpoint_hosts
  - modelplane.fleet.attributes.read_only
seealso:
  - module: modelplane.fleet.build
"""

EXAMPLES = r"""
- name: Schedule with the replicas of an earlier build
  modelplane.fleet.schedule:
    resources:
      - manifests/
    path: build/
  register: decided

- name: Fail if a replica is unschedulable
  ansible.builtin.assert:
    that: decided.pending | length == 0
    fail_msg: "{{ decided.pending }}"
"""

RETURN = r"""
placements:
  description: The scheduled replicas, sorted by namespace, deployment, cluster and index.
  returned: success
  type: list
  elements: dict
  sample:
    - namespace: ml-team
      deployment: qwen3-8b
      replica: qwen3-8b-0d3f1b2c4a
      cluster: us-central
      index: 0
      gatewayAddress: us-central.fleet.internal
      engines:
        - name: main
          copies: 1
          members:
            - role: Standalone
              pool: gpu-l4
              pods: 1
              deviceRequests:
                - name: gpu
                  deviceClassName: gpu.nvidia.com
                  count: 1
                  selectors:
                    - cel: device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("20Gi")) >= 0
pending:
  description: Deployments with missing replicas, with the reason of each cluster and node pool.
  returned: success
  type: list
  elements: dict
  sample:
    - namespace: research
      deployment: kimi-k2
      replicas: 1
      reason: InsufficientCapacity
      message: 0 of 1 replicas scheduled (checked 1 cluster)
      refusals:
        - clusters: [us-west]
          pool: gpu-l4
          reason: device gpu matches, but a node has 1, request gpu needs 8
removed:
  description: Existing replicas to remove.
  returned: success
  type: list
  elements: dict
  sample:
    - namespace: ml-team
      deployment: qwen3-8b
      replica: qwen3-8b-0d3f1b2c4a
      cluster: old
      reason: cluster old is gone
overcommitted:
  description: Node pools with less capacity than their replicas request. Their replicas are kept, and no replicas are
    added.
  returned: success
  type: list
  elements: dict
  sample:
    - clusters: [us-west]
      pool: gpu-l4
      reason: "its replicas do not fit on its 2 nodes: 4 gpu claimed, 2 available"
warnings_found:
  description: All warnings about manifests and the plan, one line each. The warnings that Ansible prints are limited to
    20 of each group.
  returned: success
  type: list
  elements: str
  sample: []
summary:
  description: Counts of the plan.
  returned: success
  type: dict
  sample: {clusters: 3, objects: 44, pending: 1, placed: 4}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments.inventory_variables import SCHEDULING
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments.manifests import (
    ENDPOINT_HOSTS,
    RESOURCES,
    all_warnings,
    check_values,
    prepare,
    run,
    settings,
    warn,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output import plan as plan_output
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import build

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {**RESOURCES, **SCHEDULING, **ENDPOINT_HOSTS, "path": {"type": "path"}},
    "supports_check_mode": True,
}


def work(module: AnsibleModule) -> None:
    """Run the module with its arguments, and exit with its result."""
    prepare(module)
    check_values(module)
    outcome = run(module, build.plan_only, settings(module))
    warn(module, outcome.loaded, more=outcome.plan.warnings)
    removed = plan_output.removals(outcome.plan, "removed", "replaced")
    result = {
        "changed": False,
        "removed": [api.wire(replica) for replica in removed],
        "warnings_found": all_warnings(outcome.loaded, more=outcome.plan.warnings),
        **api.wire(plan_output.document(outcome.plan)),
    }
    if lines := build.defects(outcome):
        module.fail_json(msg="\n".join(lines), **result)
    module.exit_json(**result)


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()

#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.build."""

from __future__ import annotations

DOCUMENTATION = r"""
module: build
short_description: Schedule the replicas of a fleet and write all objects as files
version_added: 0.1.0
description:
  - Reads and validates the manifests of a fleet, keeps the replicas that earlier runs scheduled, and schedules missing
    replicas. Then it writes every Kubernetes object of the control cluster and of each inference cluster as a file.
  - The ModelReplicas among the files are the state of the fleet. The next run starts from this state, so keep the build
    directory, for example in Git.
  - The module contacts no cluster. Without O(observations), each cluster counts as ready with the capacity that its
    node pools declare, unless the C(status) of its manifest differs. Every replica counts as serving, and each gateway
    has its last known address. The status that earlier runs wrote is kept.
    replica counts as serving. The status that earlier runs wrote stays.
options:
  state:
    description:
      - The location of the fleet's state.
      - V(folder) uses the build directory, O(path).
      - V(control) uses the control cluster, as observed in O(observations). Resources that users created there belong
        to the fleet. Resources in O(resources) are published there as copies, in C(control/). A resource in both places
        is an error. If a manifest of a ModelDeployment omits C(spec.replicas), the value on the control cluster is
        used.
    type: str
    choices: [folder, control]
    default: folder
  preview:
    description:
      - A directory for the preview of the build in check mode, for comparison with the clusters. It is the only
        directory that check mode writes. Other modes ignore it.
    type: path
extends_documentation_fragment:
  - modelplane.fleet.build
  - modelplane.fleet.fleet
  - modelplane.fleet.fleet.scheduling
  - modelplane.fleet.fleet.endpoint_hosts
attributes:
  check_mode:
    support: full
    description: Schedules and compares, and writes nothing except O(preview).
  diff_mode:
    support: full
    description: Shows every file that is added, changed or removed. Values that are probably secret are masked. These
      are values of variables, flags, headers, URL parameters and JSON fields whose names indicate a secret, private
      keys, and known token formats.
  idempotent:
    support: full
    description: The same manifests and the same build directory result in the same files.
seealso:
  - module: modelplane.fleet.schedule
  - module: modelplane.fleet.resource_info
"""

EXAMPLES = r"""
- name: Build the fleet
  modelplane.fleet.build:
    resources:
      - manifests/
    path: build/
  register: fleet

- name: Show the plan
  ansible.builtin.debug:
    msg: "{{ fleet.table }}"
"""

RETURN = r"""
table:
  description: The plan as a table, line by line.
  returned: success
  type: list
  elements: str
  sample:
    - DEPLOYMENT        REPLICA      CLUSTER         POOL    DEVICES  STATE
    - ml-team/qwen3-8b  …c39a9f76d6  us-central      gpu-l4  1 gpu    new
services:
  description: The services and the Model gateways as a table, line by line. Empty if the fleet has neither.
  returned: success
  type: list
  elements: str
  sample:
    - SERVICE       URL                                IN USE
    - ml-team/qwen  http://203.0.113.10/ml-team/qwen/  1 of 1
    - "    to: qwen3-8b-c39a9f76d6 (weight 1)"
costs:
  description: The cost of the plan as a table, line by line. Empty for a fleet without prices.
  returned: success
  type: list
  elements: str
  sample:
    - COST IN USD        NODES  PER HOUR  PER MONTH  CHANGE
    - ml-team/qwen3-8b   -      0.71      516.14     +0.71
summary:
  description: Counts of the plan.
  returned: success
  type: dict
  sample: {clusters: 3, objects: 44, pending: 1, placed: 4}
added:
  description: Files that were added or, in check mode, would be added, relative to O(path).
  returned: success
  type: list
  elements: str
  sample: [control/namespaces/ml-team/modelreplica-qwen3-8b-0d3f1b2c4a.yaml]
modified:
  description: Files that were changed or, in check mode, would be changed.
  returned: success
  type: list
  elements: str
  sample: [plan.json]
clusters:
  description: Inference clusters with changed files or changed Secret copies.
  returned: success
  type: list
  elements: str
  sample: [us-central]
removed:
  description: Files that were removed or, in check mode, would be removed.
  returned: success
  type: list
  elements: str
  sample: []
warnings_found:
  description: All warnings about manifests and the plan, one line each. The warnings that Ansible prints are limited to
    20 of each group.
  returned: success
  type: list
  elements: str
  sample: []
"""

from dataclasses import replace
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments.manifests import (
    BUILD,
    all_warnings,
    build_result,
    build_warnings,
    check_values,
    counts_diff,
    file_diff,
    prepare,
    run,
    settings,
    warn,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments.report_files import receive_report_files
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.changes import object_changes
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import build, fleet_inputs

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **BUILD,
        "state": {"type": "str", "choices": ["folder", "control"], "default": "folder"},
        "preview": {"type": "path"},
    },
    "supports_check_mode": True,
}


def work(module: AnsibleModule) -> None:
    """Run the module with its arguments, and exit with its result."""
    prepare(module)
    check_values(module)
    refused: frozenset[fleet_inputs.Refusable] = frozenset() if module.params["allow_outage"] else frozenset({"outage"})
    try:
        outcome = run(module, build.build, replace(settings(module), refuses=refused))
    except build.RefusedError as error:
        module.fail_json(msg=str(error))
    if lines := build.refusals(outcome, refused):
        # Check mode writes nothing, so the build only reports them.
        module.fail_json(msg="\n".join(lines))
    plan_warnings = build_warnings(outcome)
    warn(module, outcome.loaded, more=plan_warnings)
    result = {
        "changed": bool(outcome.changes),
        "warnings_found": all_warnings(outcome.loaded, more=plan_warnings),
        **build_result(outcome, module.params["table_width"]),
    }
    if module._diff:
        result["diff"] = [*counts_diff(object_changes(outcome.changes)), *file_diff(outcome)]
    if lines := build.defects(outcome):
        # Everything else is built.
        module.fail_json(msg="\n".join(lines), **result)
    module.exit_json(**result)


def main() -> None:
    module = AnsibleModule(**ARGUMENTS)
    receive_report_files(module)
    work(module)


if __name__ == "__main__":
    main()

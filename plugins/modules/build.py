#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.build."""

from __future__ import annotations

DOCUMENTATION = r"""
module: build
short_description: Place all replicas of a fleet and write the objects of every cluster as files
version_added: 0.1.0
description:
  - Reads and validates the manifests of a fleet, keeps the replicas that earlier runs placed, places what is missing,
    and writes every Kubernetes object of the control cluster and of each workload cluster as a file.
  - The ModelReplicas among the files are the state of the fleet. The next run starts from them, so keep the folder, for
    example in Git.
  - No cluster is contacted. Without O(observations) each counts as ready with the capacity that its pools declare,
    unless the C(status) of its manifest says otherwise, behind the address that earlier runs knew of it, and every
    replica counts as serving. The status that earlier runs wrote stays.
options:
  state:
    description:
      - Where the state of the fleet is.
      - V(folder) is the build folder, O(path).
      - V(control) is the control cluster, as O(observations) show it. Resources that users made there belong to the
        fleet. Those of O(resources) are published there as copies, in C(control/); a resource that is in both places is
        an error. C(spec.replicas) of a ModelDeployment is taken from the control cluster when its manifest leaves it
        out.
    type: str
    choices: [folder, control]
    default: folder
  preview:
    description:
      - A folder that in check mode gets what would be built, so that it can be compared with the clusters. It is the
        only thing that check mode writes, and other modes do not use it.
    type: path
extends_documentation_fragment:
  - modelplane.fleet.build
  - modelplane.fleet.fleet
  - modelplane.fleet.fleet.scheduling
  - modelplane.fleet.fleet.endpoint_hosts
attributes:
  check_mode:
    support: full
    description: Decides and compares, and writes nothing.
  diff_mode:
    support: full
    description: Shows every file that is added, changed or removed. Probable secrets are masked, such as values of
      variables, flags, headers, parameters of URLs and JSON with names of secrets, private keys and known tokens.
  idempotent:
    support: full
    description: The same manifests and the same folder give the same files.
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

- name: Show who runs where
  ansible.builtin.debug:
    msg: "{{ fleet.table }}"
"""

RETURN = r"""
table:
  description: The plan for people, line by line.
  returned: success
  type: list
  elements: str
  sample:
    - DEPLOYMENT        REPLICA      CLUSTER         POOL    DEVICES  STATE
    - ml-team/qwen3-8b  …c39a9f76d6  us-central      gpu-l4  1 gpu    new
services:
  description: The services, and gateways in mode Model, for people, line by line; empty when the fleet has none.
  returned: success
  type: list
  elements: str
  sample:
    - SERVICE       URL                                IN USE
    - ml-team/qwen  http://203.0.113.10/ml-team/qwen/  1 of 1
    - "    to: qwen3-8b-c39a9f76d6 (weight 1)"
costs:
  description: What the plan costs for people, line by line; empty for a fleet without prices.
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
  description: Files that were (in check mode, would be) added, relative to O(path).
  returned: success
  type: list
  elements: str
  sample: [control/namespaces/ml-team/modelreplica-qwen3-8b-0d3f1b2c4a.yaml]
modified:
  description: Files that were changed.
  returned: success
  type: list
  elements: str
  sample: [plan.json]
clusters:
  description: Workload clusters whose files, or whose copies of Secrets, are other than before.
  returned: success
  type: list
  elements: str
  sample: [us-central]
removed:
  description: Files that were removed.
  returned: success
  type: list
  elements: str
  sample: []
warnings_found:
  description: All warnings of manifests and of the plan, one line each. Ansible's own show 20 of each.
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
    """Do what the arguments ask for, and end the module with the result."""
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
    more = build_warnings(outcome)
    warn(module, outcome.loaded, more=more)
    result = {
        "changed": bool(outcome.changes),
        "warnings_found": all_warnings(outcome.loaded, more=more),
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

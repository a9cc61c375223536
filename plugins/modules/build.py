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
  resources:
    description:
      - Files, folders and glob patterns with the C(modelplane.ai/v1alpha1) manifests of the fleet.
      - Needed unless O(state=control), where the resources may be on the control cluster.
    type: list
    elements: path
    required: false
    default: []
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
  drain:
    description:
      - InferenceClusters that are to be emptied, as if they had the taint C(modelplane.ai/drain:NoExecute).
      - With O(observations), a replica goes when another one serves in its place; without, at once.
    type: list
    elements: str
    default: []
  hosts:
    description:
      - The clusters that the inventory has hosts for. One that is no InferenceCluster of the fleet, nor a
        cluster in a cloud that a user wrote, is an error.
    type: list
    elements: str
    default: []
  preview:
    description:
      - A folder that in check mode gets what would be built, so that it can be compared with the clusters. It is the
        only thing that check mode writes, and other modes do not use it.
    type: path
  observations:
    description:
      - A file that says what was seen of the fleet, YAML or JSON. Endpoints, routes, caches and edits then follow what
        is ready, and the status of every resource is written below C(status/). A cluster that is not in it counts as
        declared as long as nobody ever looked at it, else as it was last.
      - C(control) has C(unreachable), C(objects), C(secrets) (C(namespace), C(name), C(keys) that have a value) and
        C(controller) (C(ready), C(message)); C(clusters) has for each cluster C(unreachable), C(provisioned) and
        C(stack) (both C(ready), C(message)), C(nodes) by pool and C(objects), or V(true) in C(declared) alone, where
        nobody looks. Objects are as an API server shows them; Secrets with values are refused.
    type: path
  rollout:
    description:
      - How many clusters an edit of a deployment reaches at a time. A cluster is through with it when all its pods are
        of the new revision and ready. Needs O(observations); without, an edit reaches all of them at once.
    type: int
    default: 1
  images:
    description: Images of the containers that are composed beside the engines, such as those of a mirror.
    type: dict
    suboptions:
      picker:
        description: The endpoint picker. A deployment's own C(serving.picker.image) wins.
        type: str
      sidecar:
        description: The proxy in front of Decode engines. A deployment's own C(serving.sidecar.image) wins.
        type: str
      hydration:
        description: Downloads weights into caches. Needs a POSIX shell, and C(hf) or Python with pip.
        type: str
      egress:
        description: An Envoy that adds credentials to requests for endpoints outside of the fleet.
        type: str
  stream_grace:
    description:
      - How long a pod of a replica that is to go serves on, in seconds, so that token streams finish. Engines hold
        their devices meanwhile.
      - A member's own C(terminationGracePeriodSeconds) and C(lifecycle) win.
    type: int
    default: 240
  network_policies:
    description:
      - Whether NetworkPolicies on workload clusters say who reaches the pods of engines and endpoint pickers. They do
        something where the network of the cluster enforces them.
    type: bool
    default: true
  network_sources:
    description: Namespaces of workload clusters whose pods O(network_policies) lets in.
    type: dict
    suboptions:
      gateway:
        description:
          - Where the pods of the Gateway C(inference-gateway) run. They reach engines and endpoint pickers.
          - Without it, C(envoy-gateway-system) and C(modelplane-system).
        type: list
        elements: str
      metrics:
        description:
          - Where metrics are scraped. What runs there reaches engines and endpoint pickers on every port.
          - Without it, C(monitoring).
        type: list
        elements: str
  path:
    description:
      - The build folder. It is created when something is written.
      - Only files that this module wrote are changed or removed.
    type: path
    required: true
  lock_timeout:
    description: Seconds to wait for another run that uses the same folder.
    type: float
    default: 60
  allow_empty:
    description:
      - Whether manifests without any InferenceCluster or without any ModelDeployment may remove what is built.
      - When V(false), that is taken for a wrong O(resources) and fails.
    type: bool
    default: false
  table_width:
    description:
      - Longest line of RV(table) and RV(services), at least 60.
      - The default leaves room for what Ansible puts before it.
    type: int
    default: 72
extends_documentation_fragment:
  - modelplane.fleet.fleet
  - modelplane.fleet.fleet.scheduling
  - modelplane.fleet.fleet.endpoint_hosts
attributes:
  check_mode:
    support: full
    description: Decides and compares, and writes nothing.
  diff_mode:
    support: full
    description: Shows every file that is added, changed or removed. What looks like a secret is masked, such as values
      of variables, flags, headers, parameters of URLs and JSON whose names speak of one, private keys and known tokens.
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
  description: The services for people, line by line; empty when the fleet has none.
  returned: success
  type: list
  elements: str
  sample:
    - SERVICE       URL                                IN USE
    - ml-team/qwen  http://203.0.113.10/ml-team/qwen/  1 of 1
    - "    to: qwen3-8b-c39a9f76d6 (weight 1)"
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
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments.inventory_variables import (
    IMAGES,
    NETWORK,
    SCHEDULING,
    network_problems,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments.manifests import (
    ENDPOINT_HOSTS,
    RESOURCES,
    file_diff,
    prepare,
    run,
    settings,
    warn,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core import table
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.constants import STREAM_GRACE_SECONDS
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import build

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **RESOURCES,
        "resources": {"type": "list", "elements": "path", "default": []},
        "state": {"type": "str", "choices": ["folder", "control"], "default": "folder"},
        "preview": {"type": "path"},
        "drain": {"type": "list", "elements": "str", "default": []},
        "hosts": {"type": "list", "elements": "str", "default": []},
        **SCHEDULING,
        **ENDPOINT_HOSTS,
        "path": {"type": "path", "required": True},
        "lock_timeout": {"type": "float", "default": 60},
        "allow_empty": {"type": "bool", "default": False},
        "observations": {"type": "path"},
        "rollout": {"type": "int", "default": 1},
        "images": {"type": "dict", "options": {name: {"type": "str"} for name in IMAGES}},
        "stream_grace": {"type": "int", "default": STREAM_GRACE_SECONDS},
        **NETWORK,
        "table_width": {"type": "int", "default": 72},
    },
    "supports_check_mode": True,
}


def work(module: AnsibleModule) -> None:
    """Do what the arguments ask for, and end the module with the result."""
    prepare(module)
    if module.params["table_width"] < 60:
        module.fail_json(msg=f"table_width is {module.params['table_width']}, and must be at least 60")
    if module.params["rollout"] < 1:
        module.fail_json(msg=f"rollout is {module.params['rollout']}, and must be at least 1")
    if module.params["stream_grace"] < 0:
        module.fail_json(msg=f"stream_grace is {module.params['stream_grace']}, and must not be negative")
    if module.params["lock_timeout"] < 0:
        module.fail_json(msg=f"lock_timeout is {module.params['lock_timeout']}, and must not be negative")
    for problem in network_problems(module.params["network_sources"], "network_sources"):
        module.fail_json(msg=problem)
    outcome = run(module, build.build, settings(module))
    unknown = [
        f"{name} was observed and is no InferenceCluster of the manifests, so what was seen of it is ignored"
        for name in outcome.plan.unknown_clusters
    ]
    warn(module, outcome.loaded, more=[*outcome.warnings, *outcome.plan.warnings, *unknown])
    result = {
        "changed": bool(outcome.changes),
        "table": table.table(outcome.plan, module.params["table_width"]),
        "services": table.services_table(outcome.plan, module.params["table_width"]),
        "summary": table.document(outcome.plan)["summary"],
        "added": list(outcome.changes.added),
        "modified": list(outcome.changes.changed),
        "removed": list(outcome.changes.removed),
        "clusters": build.touched(outcome),
    }
    if module._diff:
        result["diff"] = file_diff(outcome)
    module.exit_json(**result)


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()

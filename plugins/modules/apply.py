#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.apply."""

from __future__ import annotations

DOCUMENTATION = r"""
module: apply
short_description: Apply a build to the clusters of a fleet
version_added: 0.1.0
description:
  - Applies a build directory (see M(modelplane.fleet.build)) to all clusters in parallel. It uses server-side apply
    with the field manager C(modelplane.fleet), and applies Namespaces and CustomResourceDefinitions first, and routes
    last.
  - Sends no request for an object that already has the desired state. Changes that other managers made to fields of
    this field manager are reverted. Fields of other managers are left unchanged.
  - Applies all objects, and then prunes objects that an earlier run applied and that the build no longer contains. The
    inventory of applied objects is in the ConfigMaps C(modelplane-record-*) in the namespace C(modelplane-system) of
    each cluster.
  - Never changes or removes an object without the label C(app.kubernetes.io/managed-by=modelplane.fleet). If such an
    object has the name of a desired object, the desired object fails, and its message lists the managers of the
    existing object. Other objects are applied.
  - An error of one cluster does not affect other clusters.
  - With O(parts), you can apply to only the control cluster, for example to change routes before you remove workloads.
options:
  path:
    description:
      - The build directory. C(clusters/NAME) contains the objects of a cluster, C(control) and C(status) contain the
        objects of the control cluster, and C(plan.json) lists the Secrets to copy from the control cluster.
      - Mutually exclusive with O(objects). With O(state=absent) it is optional. The state of the emptied clusters is
        then removed from this directory, so that the next plan does not count their replicas as running.
    type: path
  decision:
    description:
      - The generation of a decision to apply to O(clusters), instead of a build. M(modelplane.fleet.reconcile)
        publishes it on O(control) with O(modelplane.fleet.reconcile#module:state=decided).
      - V(0) selects the newest generation. Any other number must be the newest generation, or nothing is applied.
      - The module locks each cluster that needs changes with a separate Lease on O(control), and releases the lock
        after the changes. Several runs can apply one decision at the same time, each to other clusters. After the next
        decision is published, no further cluster is changed.
    type: int
  objects:
    description:
      - Kubernetes objects to apply to each of O(clusters) and to O(control), instead of a build. Secrets are rejected
        because module arguments can appear in logs.
      - Objects that an earlier call with the same O(record) applied, and that this list does not contain, are removed.
    type: list
    elements: dict
  record:
    description:
      - The name of the inventory of O(objects), a DNS label. Required with O(objects). The inventory is separate from
        the inventories of builds and of calls with other names.
      - With O(state=absent), only objects in the inventory of this name are removed.
    type: str
  folders:
    description:
      - Directories with the objects of clusters, by cluster name. A cluster that is not listed uses C(clusters/NAME) in
        O(path).
    type: dict
    default: {}
  state:
    description:
      - V(present) applies the build.
      - V(absent) removes all objects that this module applied to O(clusters) and, if given, to O(control).
        CustomResourceDefinitions are kept. With O(definitions), the CRDs of the fleet's kinds are removed, unless an
        object of these kinds exists, or another inventory of this collection still needs them.
    type: str
    choices: [present, absent]
    default: present
  prune:
    description:
      - Whether to remove objects that are no longer desired.
      - CustomResourceDefinitions are never removed, because Kubernetes would delete all their custom resources.
      - A Namespace is kept, with a warning, if it contains objects that the fleet does not own. Objects with an owner
        reference, and objects that Kubernetes creates in every namespace, do not count.
      - If a route cannot be applied, or if gateways do not accept it within 20 seconds, no object in its namespace is
        removed.
    type: bool
    default: true
  allow_outage:
    description:
      - Whether O(path) or O(decision) may stop a model from serving although the plan keeps the model.
      - If V(false), the module fails before any change, also in check mode, if a ModelDeployment would lose more than
        half of its serving replicas, and more than C(spec.rollout.maxUnavailable), or if a ModelService would lose all
        serving endpoints. The message contains the replicas and the reason.
      - Replicas on O(clusters) count by their live state, and all other replicas count by their last status. A deleted
        ModelDeployment or a lower value of C(replicas) is never an outage.
    type: bool
    default: false
  wait:
    description:
      - Seconds to wait until all applied objects are ready. Waiting ends early if all objects are ready or have failed
        permanently. With O(state=absent), seconds to wait until all objects are deleted.
      - An object that does not become ready is not a failure. Its C(ready) in RV(clusters) is V(false), and its message
        contains its last state.
    type: float
    default: 0
  lease:
    description:
      - The lock of this run, see M(modelplane.fleet.lease). The module renews it while it runs. If another run holds
        the lock, nothing is applied. The module also prevents other runs from applying a decision.
      - With O(decision), the options of the cluster locks, which the module acquires and releases.
    type: dict
    suboptions:
      holder:
        description:
          - The holder name of this run's Lease. Required without O(decision). With O(decision), it
            defaults to a new name.
        type: str
      duration:
        description: The duration of the Lease in seconds.
        type: float
        default: 60
  lock_timeout:
    description: Seconds to wait for another run that writes the build directory.
    type: float
    default: 60
extends_documentation_fragment:
  - modelplane.fleet.applying
  - modelplane.fleet.clusters
  - modelplane.fleet.clusters.parts
requirements:
  - pydantic >= 2.10
  - PyYAML
attributes:
  check_mode:
    support: full
    description: The API servers validate every object with a server-side dry run, and nothing is written. Objects in a
      namespace or of a kind that the run would create count as created.
  diff_mode:
    support: full
    description: Shows the owned fields of every changed object. Values of Secrets, and of environment variables whose
      names indicate a secret, are omitted.
  idempotent:
    support: full
    description: A second run sends no write request.
notes:
  - Several InferenceClusters can share an API server, which can also be the control cluster. Each InferenceCluster has
    a separate inventory.
  - The module updates the status subresource of resources on the control cluster when the status differs. A missing
    resource is skipped.
  - If Kubernetes rejects a change of a Job, ResourceClaimTemplate, RoleBinding, EndpointSlice, ConfigMap or Secret
    because a field is immutable, the object is deleted and created again. Other kinds fail, with a hint.
  - A missing namespace of the fleet's resources is created on the control cluster, and never removed.
seealso:
  - module: modelplane.fleet.build
  - module: modelplane.fleet.cluster_info
"""

EXAMPLES = r"""
- name: Apply the build
  modelplane.fleet.apply:
    path: build/
    clusters:
      - name: us-west
        secret:
          namespace: modelplane-system
          name: us-west-kubeconfig
      - name: onprem
        kubeconfig: ~/.kube/onprem
    control:
      kubeconfig: ~/.kube/control
    wait: 600
  register: applied

- name: Apply a published decision to one cluster
  modelplane.fleet.apply:
    decision: 7
    clusters:
      - name: onprem
        kubeconfig: ~/.kube/onprem
    control:
      kubeconfig: ~/.kube/control

- name: Remove all fleet objects from a cluster
  modelplane.fleet.apply:
    state: absent
    clusters:
      - name: onprem
        kubeconfig: ~/.kube/onprem

- name: Apply additional objects to every cluster
  modelplane.fleet.apply:
    objects: "{{ lookup('ansible.builtin.file', 'priorities.yaml') | from_yaml_all }}"
    record: priorities
    clusters:
      - name: onprem
        kubeconfig: ~/.kube/onprem
"""

RETURN = r"""
summary:
  description: A one-line summary of the result on all clusters.
  returned: always
  type: str
  sample: "3 clusters: 2 changed, 1 unchanged; 12 objects created, 3 changed, 1 removed"
clusters:
  description: The result of each inference cluster.
  returned: always
  type: dict
  contains:
    changed:
      description: Whether the cluster was changed or, in check mode, would be changed.
      type: bool
      returned: always
    failed:
      description: Whether the cluster was unreachable, or an object could not be applied or removed.
      type: bool
      returned: always
    msg:
      description: The counts of all actions, and every failure.
      type: str
      returned: always
    ready:
      description: Whether all objects on the cluster are ready.
      type: bool
      returned: when the cluster is reachable
    objects:
      description:
        - The result of each object. C(action) is one of V(created), V(updated), V(unchanged), V(recreated),
          V(deleted), V(failed), V(skipped). C(ready) is omitted if it is unknown.
      type: list
      elements: dict
      returned: when the cluster is reachable
    kept:
      description:
        - One line for each object that is kept, completely or in part, although it is no longer desired, with the
          reason.
      type: list
      elements: str
      returned: when the cluster is reachable
    notes:
      description: Additional information for users.
      type: list
      elements: str
      returned: when the cluster is reachable
    requests:
      description: The number of requests of each kind.
      type: dict
      returned: when the cluster is reachable
  sample:
    onprem:
      changed: true
      failed: false
      msg: 1 created, 12 unchanged
      ready: false
      objects:
        - kind: Deployment
          namespace: mp-ml-team-51733
          name: qwen3-8b-0d3f1b2c4a-epp
          api_version: apps/v1
          action: created
          ready: false
          message: 0 of 2 pods available
      kept: []
      notes: []
      requests: {apply: 1, get: 1, list: 13, replace: 2}
removal:
  description:
    - Removed objects (in check mode, objects to remove), one line for each cluster, with the number of replicas and the
      number of objects of each kind.
    - One line for each ModelDeployment that loses replicas, and for each ModelService that loses endpoints, according
      to the last plan in O(path). In check mode without such a plan, the module reads the plan from O(control).
  returned: when O(state=absent)
  type: list
  elements: str
  sample:
    - "cluster west: 1 replica (ml-team/qwen3-8b-0d3f1b2c4a); 9 objects: 2 Deployment, 2 Service, 5 others"
    - "deployment ml-team/qwen3-8b: loses 1 of 2 replicas"
    - "service ml-team/chat: loses 1 of 2 endpoints"
build_changed:
  description: Whether the module removed state from O(path).
  returned: when O(state=absent)
  type: bool
  sample: true
control:
  description: The result of the control cluster, with the fields of RV(clusters).
  returned: when O(control) is given
  type: dict
  sample: {changed: false, failed: false, msg: 31 unchanged, ready: true, notes: [], objects: [], requests: {list: 12}}
failed_clusters:
  description: The failed inference clusters, and V(control) for the control cluster.
  returned: always
  type: list
  elements: str
  sample: []
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils import progress
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import (
    apply_results,
    cluster_options,
    libraries,
)

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **cluster_options.CLUSTERS,
        "path": {"type": "path"},
        "decision": {"type": "int"},
        "objects": {"type": "list", "elements": "dict"},
        "record": {"type": "str"},
        "folders": {"type": "dict", "default": {}},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "fleet": {"type": "str", "default": "default"},
        "prune": {"type": "bool", "default": True},
        "force": {"type": "bool", "default": False},
        "allow_outage": {"type": "bool", "default": False},
        "wait": {"type": "float", "default": 0},
        "parts": {
            "type": "list",
            "elements": "str",
            "choices": ["clusters", "control"],
            "default": ["clusters", "control"],
        },
        "definitions": {"type": "bool", "default": True},
        "pending_api_groups": {"type": "list", "elements": "str", "default": []},
        "lease": {
            "type": "dict",
            "options": {
                "holder": {"type": "str"},
                "duration": {"type": "float", "default": 60},
            },
        },
        "lock_timeout": {"type": "float", "default": 60},
    },
    "required_if": [("state", "present", ("path", "objects", "decision"), True)],
    "mutually_exclusive": [("path", "objects", "decision")],
    "supports_check_mode": True,
}


def work(module: AnsibleModule) -> None:
    """Run the module with its arguments, and exit with its result."""
    libraries.need(module, "pydantic", "PyYAML", "urllib3")
    try:
        result, warnings = apply_results.run(
            module.params, check_mode=module.check_mode, diff=module._diff, progress=progress.of(module)
        )
    except apply_results.ApplyError as error:
        module.fail_json(msg=str(error), clusters={}, failed_clusters=[], summary="")
    for warning in warnings:
        module.warn(warning)
    if result["failed_clusters"] and module.params["on_error"] == "fail":
        module.fail_json(**result)
    module.exit_json(**result)


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()

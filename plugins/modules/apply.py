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
  - Applies a build folder (see M(modelplane.fleet.build)) to all clusters at once, by server-side apply with the field
    manager C(modelplane.fleet), Namespaces and CustomResourceDefinitions first, routes last.
  - Sends nothing for an object that is already as desired. Changes that others made to fields of this field manager are
    reverted; fields of other managers are left alone.
  - Prunes objects that an earlier run applied and the build no longer has, after everything else was applied. Applied
    objects are recorded in an inventory, ConfigMaps C(modelplane-record-*) in the namespace C(modelplane-system) of
    each cluster.
  - Never changes or removes an object without the label C(app.kubernetes.io/managed-by=modelplane.fleet). If such an
    object has the name of a desired one, that one fails, with the names of its managers, and the others go on.
  - An error of one cluster does not affect the others.
options:
  path:
    description:
      - The build folder. C(clusters/NAME) has the objects of a cluster, C(control) and C(status) what goes to the
        control cluster, C(plan.json) the Secrets that are copied from there.
      - Not together with O(objects). With O(state=absent) it is optional, and the state of the clusters that were
        emptied is removed from it, so that the next plan does not count their replicas as running.
    type: path
  decision:
    description:
      - The generation of a decision to apply to O(clusters), instead of a build. M(modelplane.fleet.reconcile)
        publishes it on O(control) with O(modelplane.fleet.reconcile#module:state=decided).
      - V(0) is the newest one. Any other number has to be that of the newest one, or nothing is applied.
      - A cluster to which something has to be written is locked until that is done, with a Lease of its own on
        O(control). Several runs can apply a decision at the same time, each to other clusters. Once the next decision
        is published, no further cluster is written to.
    type: int
  objects:
    description:
      - Kubernetes objects to apply, instead of a build, to each of O(clusters) and to O(control). A Secret is refused,
        as arguments of modules get into logs.
      - Objects that an earlier call with the same O(record) applied, and that are not among them, are removed.
    type: list
    elements: dict
  record:
    description:
      - A name, a DNS label, of the inventory of O(objects), which needs it. It is separate from those of builds and of
        calls with other names.
      - With O(state=absent), only objects that were applied under this name are removed.
    type: str
  folders:
    description:
      - Folders with the objects of clusters, by the cluster's name, where that is not C(clusters/NAME) in O(path).
    type: dict
    default: {}
  state:
    description:
      - V(present) applies the build.
      - V(absent) removes all objects that this module applied to O(clusters) and, when it is given, to O(control).
        CustomResourceDefinitions are kept.
    type: str
    choices: [present, absent]
    default: present
  fleet:
    description:
      - The name of the fleet, a DNS label. Several fleets can share a cluster when they have different names and no
        object in common.
    type: str
    default: default
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
  force:
    description:
      - Whether to take ownership of fields from other managers that also apply an object, such as Argo CD or Helm. When
        V(false), such an object fails, with the manager's name and the field.
    type: bool
    default: false
  allow_outage:
    description:
      - Whether O(path) or O(decision) may stop a model from serving although the plan keeps the model.
      - If V(false), the module fails before any change, also in check mode, if a ModelDeployment would lose more than
        half of its serving replicas, and more than C(spec.rollout.maxUnavailable), or if a ModelService would lose all
        serving endpoints. The message contains the replicas and the reason.
      - Replicas on O(clusters) count by their live state, and all other replicas count by their last status. A deleted
        ModelDeployment or fewer C(replicas) are never outages.
    type: bool
    default: false
  wait:
    description:
      - Seconds to wait until all applied objects are ready. Waiting ends early when all are ready or have failed for
        good. With O(state=absent), seconds to wait until all objects are deleted.
      - An object that does not become ready is not a failure; its C(ready) in RV(clusters) is V(false), and its
        message has its last state.
    type: float
    default: 0
  parts:
    description:
      - The clusters to apply to. The control cluster is read for Secrets in any case, when O(control) is given.
      - With V(control) alone, for instance, its routes can be changed before workloads are removed.
    type: list
    elements: str
    choices: [clusters, control]
    default: [clusters, control]
  definitions:
    description:
      - Whether to install and upgrade the CustomResourceDefinitions of the fleet's kinds on the control cluster. With
        O(state=absent) they are removed, unless an object of any of these kinds exists, or another inventory of this
        collection still needs them.
    type: bool
    default: true
  pending_api_groups:
    description:
      - API groups that will be installed by others, such as the role P(modelplane.fleet.serving_stack#role).
      - In check mode, objects of their kinds count as created while these are not served yet.
    type: list
    elements: str
    default: []
  lease:
    description:
      - The lock that this run holds, see M(modelplane.fleet.lease). It is renewed while the module runs; when another
        run holds it, nothing is applied. While others could apply a decision, they are kept from that.
      - With O(decision), the locks of clusters, which the module takes and gives back itself.
    type: dict
    suboptions:
      holder:
        description:
          - The name of this run, as it was given when the Lease was acquired. Required without O(decision), where the
            default is a new one.
        type: str
      duration:
        description: Its duration in seconds.
        type: float
        default: 60
  lock_timeout:
    description: Seconds to wait for another run that is writing the build folder.
    type: float
    default: 60
extends_documentation_fragment:
  - modelplane.fleet.clusters
requirements:
  - pydantic >= 2.10
  - PyYAML
author:
  - The modelplane.fleet authors (@modelplane)
attributes:
  check_mode:
    support: full
    description: The API servers validate every object that would be sent (server-side dry run), and nothing is written.
      Objects in a namespace or of a kind that the run would create count as created.
  diff_mode:
    support: full
    description: Shows the owned fields of every changed object. Values of Secrets are left out, and so are those of
      environment variables with names of secrets.
  idempotent:
    support: full
    description: The second run sends no write request.
notes:
  - Several InferenceClusters may be on one API server, which may also be the control cluster. Each has its own
    inventory.
  - Status is written to the status subresource of resources on the control cluster when it differs. A missing resource
    is skipped.
  - A Job, ResourceClaimTemplate, RoleBinding, EndpointSlice, ConfigMap or Secret whose change Kubernetes refuses
    because a field is immutable is deleted and created again. Other kinds fail, with a hint.
  - A missing namespace of the fleet's resources is created on the control cluster, and never removed.
seealso:
  - module: modelplane.fleet.build
  - module: modelplane.fleet.cluster_info
"""

EXAMPLES = r"""
- name: Apply what was built
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

- name: Apply to these clusters what another run decided for them
  modelplane.fleet.apply:
    decision: 7
    clusters:
      - name: onprem
        kubeconfig: ~/.kube/onprem
    control:
      kubeconfig: ~/.kube/control

- name: Remove all objects of the fleet from a cluster that leaves it
  modelplane.fleet.apply:
    state: absent
    clusters:
      - name: onprem
        kubeconfig: ~/.kube/onprem

- name: Apply your own objects to every cluster
  modelplane.fleet.apply:
    objects: "{{ lookup('ansible.builtin.file', 'priorities.yaml') | from_yaml_all }}"
    record: priorities
    clusters:
      - name: onprem
        kubeconfig: ~/.kube/onprem
"""

RETURN = r"""
summary:
  description: What became of all clusters, in a line.
  returned: always
  type: str
  sample: "3 clusters: 2 changed, 1 unchanged; 12 objects created, 3 changed, 1 removed"
clusters:
  description: The result of each workload cluster.
  returned: always
  type: dict
  contains:
    changed:
      description: Whether anything was (in check mode, would be) changed.
      type: bool
      returned: always
    failed:
      description: Whether the cluster was not reachable, or an object could not be applied or removed.
      type: bool
      returned: always
    msg:
      description: The counts of all actions, and every failure.
      type: str
      returned: always
    ready:
      description: Whether all objects there are ready.
      type: bool
      returned: when the cluster could be worked with
    objects:
      description:
        - The result of each object. C(action) is one of V(created), V(updated), V(unchanged), V(recreated),
          V(deleted), V(failed), V(skipped). C(ready) is missing where it is not known.
      type: list
      elements: dict
      returned: when the cluster could be worked with
    kept:
      description:
        - A line for each object that stays although it, or a part of it, is no longer desired, with the reason.
      type: list
      elements: str
      returned: when the cluster could be worked with
    notes:
      description: What a person should know beside that.
      type: list
      elements: str
      returned: when the cluster could be worked with
    requests:
      description: How many requests of each kind were sent.
      type: dict
      returned: when the cluster could be worked with
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
    - Removed objects (in check mode, objects that would be removed), one line for each cluster, with the number of
      replicas and the number of objects of each kind.
    - After these lines, one line for each ModelDeployment that loses replicas, and for each ModelService that loses
      endpoints, according to the last plan in O(path). In check mode without such a plan, the module reads the plan
      from O(control).
  returned: when O(state=absent)
  type: list
  elements: str
  sample:
    - "cluster west: 1 replica (ml-team/qwen3-8b-0d3f1b2c4a); 9 objects: 2 Deployment, 2 Service, 5 others"
    - "deployment ml-team/qwen3-8b: loses 1 of 2 replicas"
    - "service ml-team/chat: loses 1 of 2 endpoints"
build_changed:
  description: Whether state was removed from O(path).
  returned: when O(state=absent)
  type: bool
  sample: true
control:
  description: The same for the control cluster.
  returned: when O(control) is given
  type: dict
  sample: {changed: false, failed: false, msg: 31 unchanged, ready: true, notes: [], objects: [], requests: {list: 12}}
failed_clusters:
  description: The workload clusters that failed, and V(control) for the control cluster.
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
    """Do what the arguments ask for, and end the module with the result."""
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

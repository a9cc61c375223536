#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.eks_pod_identity."""

from __future__ import annotations

DOCUMENTATION = r"""
module: eks_pod_identity
short_description: A Pod Identity association of a cluster of Amazon EKS
version_added: 0.1.0
description:
  - Gives the pods of a service account a role at AWS, changes which one it is in place, and takes it away.
  - In the cluster it needs the addon C(eks-pod-identity-agent).
options:
  cluster:
    description: Name of the cluster.
    type: str
    required: true
  namespace:
    description: Namespace of the service account. It need not exist yet.
    type: str
    required: true
  service_account:
    description: Name of the service account. It need not exist yet.
    type: str
    required: true
  association_role_arn:
    description:
      - The role that the pods get. It is needed for O(state=present).
    type: str
extends_documentation_fragment:
  - modelplane.fleet.aws
seealso:
  - module: modelplane.fleet.eks_addon
"""

EXAMPLES = r"""
- name: Let the autoscaler scale node groups
  modelplane.fleet.eks_pod_identity:
    region: us-west-2
    cluster: modelplane-system-us-west-eks-03b8e
    namespace: kube-system
    service_account: cluster-autoscaler
    association_role_arn: arn:aws:iam::111122223333:role/us-west-cluster-autoscaler
    tags:
      modelplane.ai/cluster: modelplane-system.us-west
"""

RETURN = r"""
association:
  description:
    - The association. In check mode, what AWS gives to one that is not there yet is empty.
    - Empty when there is none.
  returned: success
  type: dict
  sample:
    id: a-0123456789a
    arn: arn:aws:eks:us-west-2:111122223333:podidentityassociation/modelplane-system-us-west-eks-03b8e/a-0123456789a
    cluster: modelplane-system-us-west-eks-03b8e
    namespace: kube-system
    service_account: cluster-autoscaler
    association_role_arn: arn:aws:iam::111122223333:role/us-west-cluster-autoscaler
    tags: {modelplane.ai/cluster: modelplane-system.us-west, modelplane.ai/managed-by: modelplane.fleet}
arn:
  description: ARN of the association; empty when there is none.
  returned: success
  type: str
  sample: arn:aws:eks:us-west-2:111122223333:podidentityassociation/modelplane-system-us-west-eks-03b8e/a-0123456789a
steps:
  description: What was done, or would be in check mode, in this order.
  returned: always
  type: list
  elements: str
  sample: ["Pod Identity of kube-system/cluster-autoscaler in cluster modelplane-system-us-west-eks-03b8e: create"]
"""

from collections.abc import Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.comparison import change_text
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.eks import Association, association
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.task import STATE, Step, Task, run

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **STATE,
        "cluster": {"type": "str", "required": True},
        "namespace": {"type": "str", "required": True},
        "service_account": {"type": "str", "required": True},
        "association_role_arn": {"type": "str"},
    },
    "required_if": [("state", "present", ("association_role_arn",))],
    "supports_check_mode": True,
}


def work(module: AnsibleModule) -> None:
    """Do what the arguments ask for, and end the module with the result."""
    run(module, _work)


def _work(task: Task) -> None:
    params = task.params
    there = association(task, params["cluster"], params["namespace"], params["service_account"])
    if task.absent:
        found = there.remove("delete_pod_identity_association")
        task.end(_described(found), {}, there.subject, association={}, arn="")
    found = there.ours()
    wanted = {"association_role_arn": params["association_role_arn"], "tags": task.tags}
    if found is None:
        request = {**there.keys, "roleArn": params["association_role_arn"], "tags": task.tags}
        create = Step(f"{there.subject}: create", lambda: there.create("create_pod_identity_association", **request))
        _take(task, there, [create], {}, wanted, there.keys)
    else:
        _take(task, there, _steps(there, wanted, found), _described(found), wanted, found)


def _steps(there: Association, wanted: Mapping[str, Any], found: Mapping[str, Any]) -> list[Step]:
    steps = there.tag_steps(found["associationArn"], found)
    role = wanted["association_role_arn"]
    if found["roleArn"] != role:
        request = {"clusterName": found["clusterName"], "associationId": found["associationId"], "roleArn": role}
        text = change_text("association_role_arn", found["roleArn"], role)
        steps.append(Step(f"{there.subject}: {text}", lambda: there.send("update_pod_identity_association", **request)))
    return steps


def _take(
    task: Task,
    there: Association,
    steps: list[Step],
    before: Mapping[str, Any],
    wanted: Mapping[str, Any],
    found: Mapping[str, Any],
) -> None:
    task.take(steps)
    now = {**_described(found), **wanted} if task.check_mode else _described(there.now() if steps else found)
    compared = there.compared(wanted, before).before if before else {}
    task.end(compared, dict(wanted), there.subject, association=now, arn=now["arn"])


def _described(found: Mapping[str, Any] | None) -> dict[str, Any]:
    """The association as it is returned."""
    if not found:
        return {}
    return {
        "id": found.get("associationId", ""),
        "arn": found.get("associationArn", ""),
        "cluster": found.get("clusterName", ""),
        "namespace": found.get("namespace", ""),
        "service_account": found.get("serviceAccount", ""),
        "association_role_arn": found.get("roleArn", ""),
        "tags": dict(found.get("tags") or {}),
    }


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()

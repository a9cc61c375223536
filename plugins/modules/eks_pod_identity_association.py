#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.eks_pod_identity_association."""

from __future__ import annotations

DOCUMENTATION = r"""
module: eks_pod_identity_association
short_description: Say which IAM roles the pods of an EKS cluster have
version_added: 0.1.0
description:
  - Manages the pod identity associations of a cluster of Amazon EKS, each of which gives the pods of one service
    account an IAM role. The cluster needs the addon C(eks-pod-identity-agent) for them, and neither the namespace nor
    the service account has to be there.
  - The role of an association is changed in place. A role that was just made is not known to EKS for some seconds; that
    is waited for, for up to two minutes.
  - An association without the tag C(modelplane.ai/managed-by=modelplane.fleet) is neither changed nor deleted. Where it
    has another role than the one that is wanted, the task fails.
options:
  cluster:
    description: The name of the cluster at EKS.
    type: str
    required: true
  associations:
    description: The associations.
    type: list
    elements: dict
    default: []
    suboptions:
      namespace:
        description: The namespace of the service account.
        type: str
        required: true
      service_account:
        description: The name of the service account.
        type: str
        required: true
      role_arn:
        description: The role. It is not looked at with O(state=absent).
        type: str
        default: ''
  tags:
    description:
      - Tags of the associations. C(modelplane.ai/managed-by) is always set.
      - Other tags that an association has stay, unless they start with C(modelplane.ai/).
    type: dict
    default: {}
  purge:
    description: Whether to remove the associations that are not listed and have our tag.
    type: bool
    default: false
  state:
    description: V(absent) removes the listed associations, and with O(purge) all that have our tag.
    type: str
    choices: [present, absent]
    default: present
extends_documentation_fragment:
  - modelplane.fleet.aws
  - modelplane.fleet.aws.waiting
attributes:
  check_mode:
    support: full
    description: Nothing is sent that changes anything. Of a cluster that is not there, all associations would be made.
  diff_mode:
    support: full
    description: What changes of each association is shown.
  idempotent:
    support: full
    description: An association that is as wanted stays as it is.
notes:
  - EKS makes, changes and deletes associations at once. What is waited for is a role that EKS does not know yet, with
    O(wait=false) as well.
seealso:
  - module: modelplane.fleet.eks_addon
"""

EXAMPLES = r"""
- name: Let the EFS CSI driver make access points
  modelplane.fleet.eks_pod_identity_association:
    region: us-west-2
    cluster: modelplane-system-eks-us-west-eks-03b8e
    associations:
      - namespace: kube-system
        service_account: efs-csi-controller-sa
        role_arn: arn:aws:iam::123456789012:role/modelplane-system-eks-us-west-efs-csi-1b2c3
    tags:
      modelplane.ai/cluster: modelplane-system-eks-us-west-eks-03b8e
    purge: true
"""

RETURN = r"""
associations:
  description: The listed associations in their order, as EKS describes them; in check mode as they would be.
  returned: when O(state=present)
  type: list
  elements: dict
  sample:
    - clusterName: modelplane-system-eks-us-west-eks-03b8e
      namespace: kube-system
      serviceAccount: efs-csi-controller-sa
      roleArn: arn:aws:iam::123456789012:role/modelplane-system-eks-us-west-efs-csi-1b2c3
      associationId: a-9njjin9gfghecgocd
removed:
  description: Namespace and service account of the associations that were removed (in check mode, would be).
  returned: always
  type: list
  elements: str
  sample: [kube-system/old-controller]
waited:
  description: What was seen while waiting.
  returned: always
  type: list
  elements: str
  sample: []
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.aws import session, task, waiting
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.changes import Changes, described
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.pod_identities import PodIdentities
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.session import Account
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.waiting import Progress

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **session.ARGUMENTS,
        **waiting.ARGUMENTS,
        "cluster": {"type": "str", "required": True},
        "associations": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {
                "namespace": {"type": "str", "required": True},
                "service_account": {"type": "str", "required": True},
                "role_arn": {"type": "str", "default": ""},
            },
        },
        "tags": {"type": "dict", "default": {}},
        "purge": {"type": "bool", "default": False},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    },
    "supports_check_mode": True,
}


def work(module: AnsibleModule) -> None:
    """Do what the arguments ask for, and end the module with the result."""
    params = module.params
    listed = [(each["namespace"], each["service_account"]) for each in params["associations"]]

    def action(account: Account, changes: Changes, progress: Progress) -> dict[str, Any]:
        task.check_unique("associations", map("/".join, listed))
        wait = task.wait(params, progress)
        identities = PodIdentities(account.client("eks"), params["cluster"], task.own_tags(params), changes, wait)
        if params["state"] == "absent":
            removed = identities.remove(listed, only_ours=False)
            return {"removed": removed + (_purged(identities) if params["purge"] else [])}
        _check_roles(module)
        found = identities.bring(params["associations"])
        return {"associations": described(found), "removed": _purged(identities) if params["purge"] else []}

    def _purged(identities: PodIdentities) -> list[str]:
        return identities.remove(place for place in identities.places() if place not in listed)

    task.run(module, action)


def _check_roles(module: AnsibleModule) -> None:
    """In check mode a role may not be there yet, and have no ARN."""
    for index, each in enumerate(module.params["associations"]):
        if not each["role_arn"] and not module.check_mode:
            raise AwsError(f"associations[{index}].role_arn", "it is empty", hint="Give the ARN of the role")


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()

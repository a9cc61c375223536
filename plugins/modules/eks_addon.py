#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.eks_addon."""

from __future__ import annotations

DOCUMENTATION = r"""
module: eks_addon
short_description: Manage the addons of an EKS cluster
version_added: 0.1.0
description:
  - Brings the addons of a cluster of Amazon EKS to the versions and configurations that are given, all at once, and
    waits for them together.
  - An addon that could not be made (C(CREATE_FAILED)) is deleted and made anew. One whose last update failed is updated
    again.
  - An addon without the tag C(modelplane.ai/managed-by=modelplane.fleet) is not changed. Where it differs from what is
    wanted, that is told as a warning and in RV(problems). What EKS puts into a new cluster by itself is no addon of its
    API, and is taken over as O(resolve_conflicts) says.
options:
  cluster:
    description: The name of the cluster at EKS.
    type: str
    required: true
  addons:
    description: The addons.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: The name, as C(aws eks describe-addon-versions) tells them.
        type: str
        required: true
      version:
        description:
          - The version. Without it, EKS takes its default one when the addon is made, and that stays until the
            Kubernetes version of the cluster has outgrown it, when the default one of then takes its place.
        type: str
        default: ''
      configuration:
        description: The configuration values. Those that somebody set by hand are replaced.
        type: dict
        default: {}
  resolve_conflicts:
    description:
      - What becomes of fields in the cluster that something else has set, such as those that EKS put there itself.
      - With V(NONE) the addon fails on them, and with V(PRESERVE) an update leaves them.
    type: str
    choices: [NONE, OVERWRITE, PRESERVE]
    default: OVERWRITE
  tags:
    description:
      - Tags of the addons. C(modelplane.ai/managed-by) is always set.
      - Other tags that an addon has stay, unless they start with C(modelplane.ai/).
    type: dict
    default: {}
  purge:
    description: Whether to remove the addons that are not listed and have our tag.
    type: bool
    default: false
  state:
    description: V(absent) removes the listed addons with what they run, and with O(purge) all that have our tag.
    type: str
    choices: [present, absent]
    default: present
extends_documentation_fragment:
  - modelplane.fleet.aws
  - modelplane.fleet.aws.waiting
attributes:
  check_mode:
    support: full
    description: Nothing is sent that changes anything. Of a cluster that is not there, all addons would be made.
  diff_mode:
    support: full
    description: What changes of each addon is shown.
  idempotent:
    support: full
    description: Versions are compared as texts and configurations as values.
notes:
  - An addon that is C(DEGRADED) only because its pods find no node (C(InsufficientNumberOfReplicas)) gets well by
    itself. It is not waited for any longer, and told as a warning.
seealso:
  - module: modelplane.fleet.eks_pod_identity_association
"""

EXAMPLES = r"""
- name: Give a cluster its addons
  modelplane.fleet.eks_addon:
    region: us-west-2
    cluster: modelplane-system-eks-us-west-eks-03b8e
    addons:
      - name: vpc-cni
      - name: kube-proxy
      - name: coredns
        configuration: {replicaCount: 3}
      - name: eks-pod-identity-agent
    tags:
      modelplane.ai/cluster: modelplane-system-eks-us-west-eks-03b8e

- name: Remove an addon
  modelplane.fleet.eks_addon:
    region: us-west-2
    cluster: modelplane-system-eks-us-west-eks-03b8e
    addons: [{name: aws-efs-csi-driver}]
    state: absent
"""

RETURN = r"""
addons:
  description: The listed addons by name, as EKS describes them; in check mode as they are.
  returned: when O(state=present)
  type: dict
  sample:
    coredns:
      addonName: coredns
      clusterName: modelplane-system-eks-us-west-eks-03b8e
      status: ACTIVE
      addonVersion: v1.12.1-eksbuild.2
      health: {issues: []}
removed:
  description: The names of the addons that were removed (in check mode, would be).
  returned: always
  type: list
  elements: str
  sample: []
problems:
  description: What differs of addons that are not ours to change.
  returned: always
  type: list
  elements: str
  sample: []
waited:
  description: What was seen while waiting.
  returned: always
  type: list
  elements: str
  sample: [addon coredns is CREATING (after 0 s), addon coredns is ACTIVE (after 45 s)]
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.aws import session, task, waiting
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.addons import Addons, Wanted
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.changes import Changes, described
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.session import Account
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.waiting import Progress

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **session.ARGUMENTS,
        **waiting.ARGUMENTS,
        "cluster": {"type": "str", "required": True},
        "addons": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {
                "name": {"type": "str", "required": True},
                "version": {"type": "str", "default": ""},
                "configuration": {"type": "dict", "default": {}},
            },
        },
        "resolve_conflicts": {"type": "str", "choices": ["NONE", "OVERWRITE", "PRESERVE"], "default": "OVERWRITE"},
        "tags": {"type": "dict", "default": {}},
        "purge": {"type": "bool", "default": False},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    },
    "supports_check_mode": True,
}


def work(module: AnsibleModule) -> None:
    """Do what the arguments ask for, and end the module with the result."""
    params = module.params

    def action(account: Account, changes: Changes, progress: Progress) -> dict[str, Any]:
        wanted = [Wanted(each["name"], each["version"], each["configuration"]) for each in params["addons"]]
        task.check_unique("addons", [each.name for each in wanted])
        wait = task.wait(params, progress)
        addons = Addons(account.client("eks"), params["cluster"], task.own_tags(params), changes, wait)
        result = _absent(addons, wanted) if params["state"] == "absent" else _present(addons, wanted)
        return {**result, "problems": changes.problems}

    def _present(addons: Addons, wanted: list[Wanted]) -> dict[str, Any]:
        found = addons.bring(wanted, resolve=params["resolve_conflicts"], until_active=params["wait"])
        listed = {each.name for each in wanted}
        others = [name for name in addons.names() if name not in listed] if params["purge"] else []
        return {"addons": described(found), "removed": addons.remove(others, until_gone=params["wait"])}

    def _absent(addons: Addons, wanted: list[Wanted]) -> dict[str, Any]:
        listed = [each.name for each in wanted]
        removed = addons.remove(listed, only_ours=False, until_gone=params["wait"] and not params["purge"])
        if params["purge"]:
            removed += [name for name in addons.remove(addons.names(), until_gone=params["wait"]) if name not in listed]
        return {"removed": removed}

    task.run(module, action)


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()

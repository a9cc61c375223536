#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.eks_addon."""

from __future__ import annotations

DOCUMENTATION = r"""
module: eks_addon
short_description: An addon of a cluster of Amazon EKS
version_added: 0.1.0
description:
  - Installs an addon, changes its version, configuration and role in place, and removes it.
  - An addon of ours that EKS failed to install is taken out of its care, with what runs left running, and installed
    again by the next run.
options:
  cluster:
    description: Name of the cluster.
    type: str
    required: true
  name:
    description: Name of the addon, such as V(vpc-cni).
    type: str
    required: true
  version:
    description:
      - Version of the addon, such as V(v1.21.1-eksbuild.1). A new one gets the default of EKS without it, and one that
        is there keeps its own.
    type: str
  configuration:
    description:
      - Configuration of the addon, a mapping or JSON text. Without it, what is there is kept.
    type: raw
  service_account_role_arn:
    description:
      - A role for the service account of the addon, where it gets one that way rather than by a Pod Identity
        association.
    type: str
  resolve_conflicts:
    description:
      - What to do about fields of the addon's objects that somebody else has set.
    type: str
    choices: [OVERWRITE, NONE, PRESERVE]
    default: OVERWRITE
  wait_for:
    description:
      - V(ACTIVE) waits until the addon works.
      - V(CREATED) waits for an addon that needs nodes before there are any - it counts as soon as EKS has taken it.
    type: str
    choices: [ACTIVE, CREATED]
    default: ACTIVE
extends_documentation_fragment:
  - modelplane.fleet.aws
seealso:
  - module: modelplane.fleet.eks_cluster
  - module: modelplane.fleet.eks_pod_identity
"""

EXAMPLES = r"""
- name: Install CoreDNS, which works as soon as there are nodes
  modelplane.fleet.eks_addon:
    region: us-west-2
    cluster: modelplane-system-us-west-eks-03b8e
    name: coredns
    configuration:
      replicaCount: 3
    wait_for: CREATED
    tags:
      modelplane.ai/cluster: modelplane-system.us-west
"""

RETURN = r"""
addon:
  description:
    - The addon. In check mode, what AWS gives to one that is not there yet is empty.
    - Empty when there is none.
  returned: success
  type: dict
  sample:
    name: coredns
    cluster: modelplane-system-us-west-eks-03b8e
    arn: arn:aws:eks:us-west-2:111122223333:addon/modelplane-system-us-west-eks-03b8e/coredns/12345678
    status: ACTIVE
    version: v1.13.2-eksbuild.1
    configuration: {replicaCount: 3}
    service_account_role_arn: ""
    issues: []
    tags: {modelplane.ai/cluster: modelplane-system.us-west, modelplane.ai/managed-by: modelplane.fleet}
arn:
  description: ARN of the addon; empty when there is none.
  returned: success
  type: str
  sample: arn:aws:eks:us-west-2:111122223333:addon/modelplane-system-us-west-eks-03b8e/coredns/12345678
steps:
  description: What was done, or would be in check mode, in this order.
  returned: always
  type: list
  elements: str
  sample: ["addon coredns of cluster modelplane-system-us-west-eks-03b8e: create"]
"""

import json
from collections.abc import Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.comparison import change_text, given
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.eks import Thing, addon
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.task import STATE, Step, Task, run

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **STATE,
        "cluster": {"type": "str", "required": True},
        "name": {"type": "str", "required": True},
        "version": {"type": "str"},
        "configuration": {"type": "raw"},
        "service_account_role_arn": {"type": "str"},
        "resolve_conflicts": {"type": "str", "choices": ["OVERWRITE", "NONE", "PRESERVE"], "default": "OVERWRITE"},
        "wait_for": {"type": "str", "choices": ["ACTIVE", "CREATED"], "default": "ACTIVE"},
    },
    "supports_check_mode": True,
}

_NAMES = {
    "version": "addonVersion",
    "configuration": "configurationValues",
    "service_account_role_arn": "serviceAccountRoleArn",
}
_AGAIN = "Remove the cause, and run again: it is then installed anew"


def work(module: AnsibleModule) -> None:
    """Do what the arguments ask for, and end the module with the result."""
    run(module, _work)


def _work(task: Task) -> None:
    there = addon(task, task.params["cluster"], task.params["name"])
    if task.absent:
        found = there.remove("delete_addon")
        task.end(_described(found), {}, there.subject, addon={}, arn="")
    wanted = _wanted(task, there)
    found = there.to_keep()
    if found is not None and found.get("status") == "CREATE_FAILED":
        there.replace(found, "delete_addon", preserve=True)
        found = None
    if found is None:
        _create(task, there, wanted)
    else:
        _change(task, there, wanted, found)


def _wanted(task: Task, there: Thing) -> dict[str, Any]:
    params = task.params
    configuration = _parsed(params["configuration"])
    if configuration is not None and not isinstance(configuration, dict):
        raise AwsError(f"{there.subject}: configuration is neither a mapping nor JSON text of one", "Correct it")
    return given(
        {
            "version": params["version"],
            "configuration": configuration,
            "service_account_role_arn": params["service_account_role_arn"],
            "tags": task.tags,
        }
    )


def _parsed(configuration: Any) -> Any:
    """A configuration as a value; a text that is no JSON (EKS takes YAML too) as it is."""
    if not isinstance(configuration, str):
        return configuration
    if not configuration.strip():
        return {}
    try:
        return json.loads(configuration)
    except ValueError:
        return configuration


def _described(found: Mapping[str, Any] | None) -> dict[str, Any]:
    """The addon as it is returned."""
    if not found:
        return {}
    return {
        "name": found.get("addonName", ""),
        "cluster": found.get("clusterName", ""),
        "arn": found.get("addonArn", ""),
        "status": found.get("status", ""),
        "version": found.get("addonVersion", ""),
        "configuration": _parsed(found.get("configurationValues") or ""),
        "service_account_role_arn": found.get("serviceAccountRoleArn") or "",
        "issues": [dict(issue) for issue in (found.get("health") or {}).get("issues") or ()],
        "tags": dict(found.get("tags") or {}),
    }


def _request(task: Task, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """What CreateAddon and UpdateAddon take alike."""
    request = {api: wanted[name] for name, api in _NAMES.items() if name in wanted}
    if "configurationValues" in request:
        request["configurationValues"] = json.dumps(request["configurationValues"], sort_keys=True)
    return {**request, "resolveConflicts": task.params["resolve_conflicts"]}


def _create(task: Task, there: Thing, wanted: Mapping[str, Any]) -> None:
    request = {**there.keys, **_request(task, wanted), "tags": task.tags}
    task.take([Step(f"{there.subject}: create", lambda: there.create("create_addon", **request))])
    made = {**_described(there.keys), **wanted} if task.check_mode else _described(_after(task, there))
    task.end({}, wanted, there.subject, addon=made, arn=made["arn"])


def _after(task: Task, there: Thing) -> Mapping[str, Any]:
    """The description when the work is done, and what `wait_for` names is so."""
    if not task.waits:
        return there.now()
    enough = {"ACTIVE"}
    if task.params["wait_for"] == "CREATED":
        enough |= {"CREATING", "DEGRADED", "UPDATING"}
    return there.settled(enough, _AGAIN)


def _change(task: Task, there: Thing, wanted: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    if found.get("status") in there.failed:
        raise there.failure(found, "Remove it (state: absent), and install it again")
    comparison = there.compared(wanted, _described(found))
    steps = there.tag_steps(str(found.get("addonArn", "")), found)
    names = [name for name in _NAMES if comparison.any(name)]
    if names or found.get("status") == "UPDATE_FAILED":
        text = ", ".join(change_text(name, comparison.found[name], wanted[name]) for name in names)
        request = {**there.keys, **_request(task, wanted)}
        steps.append(
            Step(f"{there.subject}: {text or 'update again'}", lambda: there.update("update_addon", **request))
        )
    there.take_updates(steps, found)
    now = _described(found if task.check_mode else _after(task, there))
    task.end(comparison.before, {**comparison.before, **wanted}, there.subject, addon=now, arn=now["arn"])


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()

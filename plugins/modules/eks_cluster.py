#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.eks_cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: eks_cluster
short_description: A cluster of Amazon EKS
version_added: 0.1.0
description:
  - Makes the control plane of a cluster, changes it in place where AWS can, and removes it.
  - Version, subnets, access to the endpoint, authentication mode and tags are changed in place. For everything else the
    module says that only a new cluster would do, and changes nothing.
options:
  name:
    description: Name of the cluster.
    type: str
    required: true
  version:
    description:
      - Kubernetes version, such as V("1.36"), in quotes. Without it, a new cluster gets the default of EKS, and one
        that is there keeps its own.
      - EKS goes up one minor version at a time; several are several updates, one after the other. It never goes down.
    type: str
  cluster_role_arn:
    description:
      - The role that EKS acts with. It is needed for O(state=present).
    type: str
  subnet_ids:
    description:
      - The subnets in which EKS puts its network interfaces, in two zones at least. It is needed for O(state=present).
    type: list
    elements: str
  endpoint_private_access:
    description: Whether the API server is reached from within the VPC.
    type: bool
    default: true
  endpoint_public_access:
    description: Whether the API server is reached from the internet.
    type: bool
    default: true
  public_access_cidrs:
    description:
      - Who on the internet reaches it, as CIDR blocks; everybody when it is not given for a new cluster.
    type: list
    elements: str
  authentication_mode:
    description:
      - How people are known. EKS changes it from V(CONFIG_MAP) to V(API_AND_CONFIG_MAP) to V(API), never back.
    type: str
    choices: [API, API_AND_CONFIG_MAP, CONFIG_MAP]
    default: API_AND_CONFIG_MAP
  bootstrap_admin:
    description:
      - Whether who makes the cluster becomes its administrator. It counts when the cluster is made.
    type: bool
    default: true
extends_documentation_fragment:
  - modelplane.fleet.aws
seealso:
  - module: modelplane.fleet.eks_node_group
  - module: modelplane.fleet.eks_addon
"""

EXAMPLES = r"""
- name: Make the cluster, and wait until it is there
  modelplane.fleet.eks_cluster:
    region: us-west-2
    name: modelplane-system-us-west-eks-03b8e
    version: "1.36"
    cluster_role_arn: arn:aws:iam::111122223333:role/us-west-cluster
    subnet_ids: [subnet-0a, subnet-0b, subnet-0c]
    public_access_cidrs: [203.0.113.0/24]
    tags:
      modelplane.ai/cluster: modelplane-system.us-west
  register: made

- name: Remove it
  modelplane.fleet.eks_cluster:
    region: us-west-2
    name: modelplane-system-us-west-eks-03b8e
    state: absent
    tags:
      modelplane.ai/cluster: modelplane-system.us-west
"""

RETURN = r"""
cluster:
  description:
    - The cluster. In check mode, what AWS gives to a cluster that is not there yet is empty.
    - Empty when there is none.
  returned: success
  type: dict
  sample:
    name: modelplane-system-us-west-eks-03b8e
    arn: arn:aws:eks:us-west-2:111122223333:cluster/modelplane-system-us-west-eks-03b8e
    status: ACTIVE
    version: "1.36"
    endpoint: https://0123456789ABCDEF.gr7.us-west-2.eks.amazonaws.com
    certificate_authority: LS0tLS1CRUdJTi...
    vpc_id: vpc-0123456789abcdef0
    security_group_id: sg-0123456789abcdef0
    role_arn: arn:aws:iam::111122223333:role/us-west-cluster
    subnet_ids: [subnet-0a, subnet-0b, subnet-0c]
    endpoint_private_access: true
    endpoint_public_access: true
    public_access_cidrs: [203.0.113.0/24]
    authentication_mode: API_AND_CONFIG_MAP
    tags: {modelplane.ai/cluster: modelplane-system.us-west, modelplane.ai/managed-by: modelplane.fleet}
arn:
  description: ARN of the cluster; empty when there is none.
  returned: success
  type: str
  sample: arn:aws:eks:us-west-2:111122223333:cluster/modelplane-system-us-west-eks-03b8e
steps:
  description: What was done, or would be in check mode, in this order.
  returned: always
  type: list
  elements: str
  sample: ["cluster modelplane-system-us-west-eks-03b8e: version: 1.35 -> 1.36"]
"""

from collections.abc import Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.comparison import (
    Comparison,
    change_text,
    given,
    unordered,
    version_number,
    version_steps,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.eks import Thing, cluster
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.task import STATE, Step, Task, run

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **STATE,
        "name": {"type": "str", "required": True},
        "version": {"type": "str"},
        "cluster_role_arn": {"type": "str"},
        "subnet_ids": {"type": "list", "elements": "str"},
        "endpoint_private_access": {"type": "bool", "default": True},
        "endpoint_public_access": {"type": "bool", "default": True},
        "public_access_cidrs": {"type": "list", "elements": "str"},
        "authentication_mode": {
            "type": "str",
            "choices": ["API", "API_AND_CONFIG_MAP", "CONFIG_MAP"],
            "default": "API_AND_CONFIG_MAP",
        },
        "bootstrap_admin": {"type": "bool", "default": True},
    },
    "required_if": [("state", "present", ("cluster_role_arn", "subnet_ids"))],
    "supports_check_mode": True,
}

# EKS API reference, AccessConfigResponse: each may follow those before it.
_MODES = ("CONFIG_MAP", "API_AND_CONFIG_MAP", "API")
_ENDPOINT = {
    "endpoint_private_access": "endpointPrivateAccess",
    "endpoint_public_access": "endpointPublicAccess",
    "public_access_cidrs": "publicAccessCidrs",
}
_FAILED = "Remove it (state: absent), and make it again"
_ANEW = "Keep it as it is, or remove the cluster (state: absent) and make it again"


def work(module: AnsibleModule) -> None:
    """Do what the arguments ask for, and end the module with the result."""
    run(module, _work)


def _work(task: Task) -> None:
    there = cluster(task, task.params["name"])
    if task.absent:
        found = there.remove("delete_cluster")
        task.end(_described(found), {}, there.subject, cluster={}, arn="")
    wanted = _wanted(task)
    found = there.to_keep()
    if found is None:
        _create(task, there, wanted)
    else:
        _change(task, there, wanted, found)


def _wanted(task: Task) -> dict[str, Any]:
    """The options that count, in the form that `_described` brings the description of AWS into."""
    params = task.params
    if params["version"] is not None:
        version_number(params["version"])
    return given(
        {
            "version": params["version"],
            "role_arn": params["cluster_role_arn"],
            "subnet_ids": unordered(params["subnet_ids"]),
            "authentication_mode": params["authentication_mode"],
            "endpoint_private_access": params["endpoint_private_access"],
            "endpoint_public_access": params["endpoint_public_access"],
            # AWS keeps no list of who reaches what nobody reaches.
            "public_access_cidrs": unordered(params["public_access_cidrs"])
            if params["endpoint_public_access"]
            else None,
            "tags": task.tags,
        }
    )


def _described(found: Mapping[str, Any] | None) -> dict[str, Any]:
    """The cluster as it is returned."""
    if not found:
        return {}
    network = found.get("resourcesVpcConfig") or {}
    return {
        "name": found.get("name", ""),
        "arn": found.get("arn", ""),
        "status": found.get("status", ""),
        "version": found.get("version", ""),
        "endpoint": found.get("endpoint") or "",
        "certificate_authority": (found.get("certificateAuthority") or {}).get("data") or "",
        "vpc_id": network.get("vpcId") or "",
        "security_group_id": network.get("clusterSecurityGroupId") or "",
        "role_arn": found.get("roleArn", ""),
        "subnet_ids": unordered(network.get("subnetIds") or []),
        "endpoint_private_access": bool(network.get("endpointPrivateAccess")),
        "endpoint_public_access": bool(network.get("endpointPublicAccess")),
        "public_access_cidrs": unordered(network.get("publicAccessCidrs") or []),
        "authentication_mode": (found.get("accessConfig") or {}).get("authenticationMode") or "",
        "tags": dict(found.get("tags") or {}),
    }


def _create(task: Task, there: Thing, wanted: Mapping[str, Any]) -> None:
    network = {
        "subnetIds": task.params["subnet_ids"],
        **{api: wanted[name] for name, api in _ENDPOINT.items() if name in wanted},
    }
    request = {
        **there.keys,
        "version": task.params["version"],
        "roleArn": task.params["cluster_role_arn"],
        "resourcesVpcConfig": network,
        "accessConfig": {
            "authenticationMode": task.params["authentication_mode"],
            "bootstrapClusterCreatorAdminPermissions": task.params["bootstrap_admin"],
        },
        "tags": task.tags,
    }
    task.take([Step(f"{there.subject}: create", lambda: there.create("create_cluster", **request))])
    made = {**_described({"name": task.params["name"]}), **wanted} if task.check_mode else _after(task, there)
    task.end({}, wanted, there.subject, cluster=made, arn=made["arn"])


def _after(task: Task, there: Thing) -> dict[str, Any]:
    """The cluster when the work is done; active, if that is waited for."""
    return _described(there.settled(hint=_FAILED) if task.waits else there.now())


def _change(task: Task, there: Thing, wanted: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    if found.get("status") in there.failed:
        raise there.failure(found, _FAILED)
    comparison = _compared(there, wanted, found)
    steps = _steps(task, there, comparison, found)
    there.take_updates(steps, found)
    now = _described(found) if task.check_mode else _after(task, there)
    task.end(comparison.before, {**comparison.before, **wanted}, there.subject, cluster=now, arn=now["arn"])


def _compared(there: Thing, wanted: Mapping[str, Any], found: Mapping[str, Any]) -> Comparison:
    now = _described(found)
    comparison = there.compared(wanted, now)
    comparison.refuse(there.subject, ("role_arn",), _ANEW)
    have, want = now["authentication_mode"], wanted["authentication_mode"]
    if have in _MODES and _MODES.index(want) < _MODES.index(have):
        comparison.refuse(
            there.subject, ("authentication_mode",), f"Set authentication_mode to {have}, or make it anew"
        )
    return comparison


def _steps(task: Task, there: Thing, comparison: Comparison, found: Mapping[str, Any]) -> list[Step]:
    """What has to be done, in an order that EKS takes, one kind of update for each call."""
    wanted, now = comparison.wanted, comparison.found

    def step(text: str, **request: Any) -> Step:
        return Step(f"{there.subject}: {text}", lambda: there.update("update_cluster_config", **there.keys, **request))

    steps = there.tag_steps(str(found.get("arn", "")), found)
    if comparison.any("authentication_mode"):
        mode = wanted["authentication_mode"]
        for passed in _MODES[_MODES.index(now["authentication_mode"] or _MODES[0]) + 1 : _MODES.index(mode) + 1]:
            text = change_text("authentication_mode", now["authentication_mode"], passed)
            steps.append(step(text, accessConfig={"authenticationMode": passed}))
    access = [name for name in _ENDPOINT if name in comparison.differing]
    if access:
        text = ", ".join(change_text(name, now[name], wanted[name]) for name in access)
        request = {api: wanted[name] for name, api in _ENDPOINT.items() if name in wanted}
        steps.append(step(text, resourcesVpcConfig=request))
    if comparison.any("subnet_ids"):
        text = change_text("subnet_ids", now["subnet_ids"], wanted["subnet_ids"])
        steps.append(step(text, resourcesVpcConfig={"subnetIds": task.params["subnet_ids"]}))
    if comparison.any("version"):
        steps += _version_steps(there, str(now["version"]), wanted["version"])
    return steps


def _version_steps(there: Thing, found: str, wanted: str) -> list[Step]:
    def update(version: str) -> Step:
        return Step(
            f"{there.subject}: version: -> {version}",
            lambda: there.update("update_cluster_version", **there.keys, version=version),
        )

    try:
        return [update(version) for version in version_steps(found, wanted)]
    except AwsError as error:
        raise AwsError(f"{there.subject}: {error.message}", error.hint) from None


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()

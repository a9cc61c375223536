#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.eks_preflight."""

from __future__ import annotations

DOCUMENTATION = r"""
module: eks_preflight
short_description: What would keep clusters of Amazon EKS from being made
version_added: 0.1.0
description:
  - Looks, before anything is made, whether the credentials work, the region and its zones are there, the zones offer
    the instance types, these have the network cards that are asked for, capacity blocks run and are large enough,
    quotas leave room for a machine of each type, and EKS offers the Kubernetes version.
  - It reads only. What the credentials may not read is a warning.
options:
  region:
    description:
      - The region of clusters that name none.
    type: str
    required: false
  clusters:
    description:
      - The clusters, each as the key C(preflight) of its plan.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the cluster, by which findings are told.
        type: str
        required: true
      region:
        description: Its region; O(region) by default.
        type: str
      zones:
        description: The zones of its subnets.
        type: list
        elements: str
        default: []
      instance_types:
        description: By zone, the list of instance types that it wants there.
        type: dict
        default: {}
      efa:
        description: By instance type, how many network cards get an EFA interface.
        type: dict
        default: {}
      capacity_reservations:
        description: The capacity blocks of its pools.
        type: list
        elements: dict
        default: []
        suboptions:
          id:
            description: Id of the capacity reservation.
            type: str
            required: true
          instance_type:
            description: Instance type of the pool.
            type: str
            required: true
          zones:
            description: Zones of the pool.
            type: list
            elements: str
            default: []
          count:
            description: How many nodes the pool starts with.
            type: int
            default: 1
      version:
        description: Its Kubernetes version, in quotes.
        type: str
      vpc_cidr:
        description:
          - The addresses of its VPC. A plan has them; that those of two clusters overlap is told when plans are made.
        type: str
extends_documentation_fragment:
  - modelplane.fleet.aws.account
  - modelplane.fleet.attributes.read_only
author:
  - The modelplane.fleet authors (@modelplane)
seealso:
  - module: modelplane.fleet.eks_cluster
"""

EXAMPLES = r"""
- name: Look before the clusters are made
  modelplane.fleet.eks_preflight:
    clusters:
      - name: us-west
        region: us-west-2
        zones: [us-west-2a, us-west-2b]
        instance_types:
          us-west-2a: [p5en.48xlarge]
        efa:
          p5en.48xlarge: 16
        capacity_reservations:
          - {id: cr-0123456789abcdef0, instance_type: p5en.48xlarge, zones: [us-west-2a], count: 2}
        version: "1.36"
  register: looked

- name: Stop when there is an error
  ansible.builtin.assert:
    that: looked.findings | selectattr('severity', 'equalto', 'error') | length == 0
"""

RETURN = r"""
findings:
  description: What was found, the errors of each cluster first. Empty when all is well.
  returned: success
  type: list
  elements: dict
  contains:
    cluster:
      description: Name of the cluster.
      type: str
      returned: always
    severity:
      description: V(error) when the cluster cannot be made like that, V(warning) otherwise.
      type: str
      returned: always
    message:
      description: What it is, and what to do.
      type: str
      returned: always
  sample:
    - cluster: us-west
      severity: error
      message: instance type p5en.48xlarge is not offered in us-west-2a. Zones with it are us-west-2c, us-west-2d
"""

from dataclasses import asdict
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.preflight import findings, look
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.session import Account
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.task import ACCOUNT, Task, run

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **ACCOUNT,
        "region": {"type": "str"},
        "clusters": {
            "type": "list",
            "elements": "dict",
            "required": True,
            "options": {
                "name": {"type": "str", "required": True},
                "region": {"type": "str"},
                "zones": {"type": "list", "elements": "str", "default": []},
                "instance_types": {"type": "dict", "default": {}},
                "efa": {"type": "dict", "default": {}},
                "capacity_reservations": {
                    "type": "list",
                    "elements": "dict",
                    "default": [],
                    "options": {
                        "id": {"type": "str", "required": True},
                        "instance_type": {"type": "str", "required": True},
                        "zones": {"type": "list", "elements": "str", "default": []},
                        "count": {"type": "int", "default": 1},
                    },
                },
                "version": {"type": "str"},
                "vpc_cidr": {"type": "str"},
            },
        },
    },
    "supports_check_mode": True,
}


def work(module: AnsibleModule) -> None:
    """Do what the arguments ask for, and end the module with the result."""
    run(module, _work)


def _work(task: Task) -> None:
    clusters = task.params["clusters"]
    by_region: dict[str, list[dict[str, Any]]] = {}
    for cluster in clusters:
        region = cluster["region"] or task.params["region"]
        if not region:
            raise AwsError(f"clusters: {cluster['name']} has no region", "Give it, or the option region")
        _need_types(cluster)
        by_region.setdefault(region, []).append(cluster)
    seen = {
        region: look(lambda region=region: Account.of(task.params, region), region, those)
        for region, those in by_region.items()
    }
    found = [
        asdict(finding)
        for cluster in clusters
        for finding in findings(cluster, seen[cluster["region"] or task.params["region"]])
    ]
    task.finish(findings=found)


def _need_types(cluster: dict[str, Any]) -> None:
    """Bring the free mappings into shape. Raises AwsError."""
    name = cluster["name"]
    for zone, types in cluster["instance_types"].items():
        if not isinstance(types, list) or not all(isinstance(each, str) for each in types):
            raise AwsError(f"clusters: {name}: instance_types of {zone} is no list of names", "Correct it")
    for each, cards in cluster["efa"].items():
        if not str(cards).isdigit():
            raise AwsError(f"clusters: {name}: efa of {each} is no number", "Correct it")
        cluster["efa"][each] = int(cards)


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()

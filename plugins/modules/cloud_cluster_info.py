#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.cloud_cluster_info."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cloud_cluster_info
short_description: What the resources of a fleet say of the clusters that are built in clouds
version_added: 0.1.0
description:
  - Tells the InferenceClusters, InferenceClasses and EKSClusters of a fleet, from which the filter
    P(modelplane.fleet.eks_plan#filter) makes plans, and which replicas are on each cluster.
  - Reads manifests, and the control cluster when one is given. What both have is taken from the manifests.
  - An EKSCluster on the control cluster that was composed of an InferenceCluster is left out, as that one says it.
options:
  resources:
    description: Files, folders and patterns with manifests.
    type: list
    elements: path
    default: []
  chdir:
    description: The folder that relative paths of O(resources) start from.
    type: path
extends_documentation_fragment:
  - modelplane.fleet.clusters.control
  - modelplane.fleet.attributes.read_only
requirements:
  - pydantic >= 2.10
  - PyYAML
author:
  - The modelplane.fleet authors (@modelplane)
"""

EXAMPLES = r"""
- name: Read which clusters there are to be
  modelplane.fleet.cloud_cluster_info:
    resources: [manifests/]
  register: declared

- name: Tell their networks
  ansible.builtin.debug:
    msg: "{{ (declared.resources | modelplane.fleet.eks_plan).plans['eks-us-west'].network }}"
"""

RETURN = r"""
resources:
  description: The resources, as manifests have them, without status.
  returned: success
  type: list
  elements: dict
  sample:
    - apiVersion: modelplane.ai/v1alpha1
      kind: InferenceCluster
      metadata: {name: eks-us-west}
      spec:
        cluster: {source: EKS, eks: {region: us-west-2}}
replicas:
  description: By cluster, the ModelReplicas on the control cluster that are on it.
  returned: success
  type: dict
  sample: {eks-us-west: [ml-team/qwen3-8b-0d3f1b2c4a]}
"""

from collections.abc import Iterable
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils import libraries
from ansible_collections.modelplane.fleet.plugins.module_utils.connections import OPTIONS
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api, names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observed import Object, fields, text
from ansible_collections.modelplane.fleet.plugins.module_utils.declared import declared
from ansible_collections.modelplane.fleet.plugins.module_utils.module import prepare

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        "resources": {"type": "list", "elements": "path", "default": []},
        "chdir": {"type": "path"},
        "control": {"type": "dict", "options": OPTIONS},
        "timeout": {"type": "float", "default": 30.0},
        "retries": {"type": "int", "default": 5},
    },
    "supports_check_mode": True,
}
_REPLICA = "ModelReplica"
_KINDS = ("InferenceClass", "InferenceCluster", "EKSCluster")


def work(module: AnsibleModule) -> None:
    """Do what the arguments ask for, and end the module with the result."""
    libraries.need(module, "kubernetes")
    prepare(module)
    live, written = declared(module, (*_KINDS, _REPLICA))
    found = [*live, *map(api.wire, written)]
    module.exit_json(
        changed=False,
        resources=_latest(value for value in found if text(value, "kind") in _KINDS and not _is_composed(value)),
        replicas=_replicas(value for value in found if text(value, "kind") == _REPLICA),
    )


def _is_composed(value: Object) -> bool:
    labels = fields(value, "metadata", "labels")
    ours = labels.get(names.MANAGED_BY_LABEL) == names.MANAGED_BY and names.CLUSTER_LABEL in labels
    return ours and names.PUBLISHED_LABEL not in labels


def _place(value: Object) -> tuple[str, str, str]:
    return text(value, "kind"), text(value, "metadata", "namespace"), text(value, "metadata", "name")


def _latest(values: Iterable[Object]) -> list[dict[str, Any]]:
    """One for each name, the later of two, without what a server adds."""
    found = {_place(value): value for value in values}
    return [
        {
            "apiVersion": value["apiVersion"],
            "kind": value["kind"],
            "metadata": {
                key: value["metadata"][key] for key in ("name", "namespace", "labels") if key in value["metadata"]
            },
            "spec": value["spec"],
        }
        for _place, value in sorted(found.items())
    ]


def _replicas(values: Iterable[Object]) -> dict[str, list[str]]:
    found: dict[str, set[str]] = {}
    for value in values:
        _kind, namespace, name = _place(value)
        found.setdefault(text(value, "metadata", "labels", names.CLUSTER_LABEL), set()).add(f"{namespace}/{name}")
    return {cluster: sorted(names) for cluster, names in sorted(found.items())}


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()

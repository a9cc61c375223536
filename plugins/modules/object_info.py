#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.object_info."""

from __future__ import annotations

DOCUMENTATION = r"""
module: object_info
short_description: List objects of given kinds on clusters
version_added: 0.1.0
description:
  - Lists objects by kind and labels, with one request for each kind. For a kind that the API server does not serve, the
    list is empty.
options:
  kinds:
    description: The kinds to list.
    type: list
    elements: dict
    required: true
    suboptions:
      api_version:
        description: The API group and version.
        type: str
        required: true
      kind:
        description: The name of the kind.
        type: str
        required: true
      labels:
        description: Label selectors. An object must match all of them.
        type: list
        elements: str
        default: []
      allocated_by:
        description: For ResourceClaims, lists only claims with allocated devices of this driver.
        type: str
extends_documentation_fragment:
  - modelplane.fleet.clusters
  - modelplane.fleet.attributes.read_only
"""

EXAMPLES = r"""
- name: List claims with devices of the driver
  modelplane.fleet.object_info:
    clusters:
      - name: onprem
        kubeconfig: ~/.kube/onprem
    kinds:
      - {api_version: resource.k8s.io/v1, kind: ResourceClaim, allocated_by: gpu.nvidia.com}
  register: claims
"""

RETURN = r"""
clusters:
  description: The objects on each inference cluster.
  returned: always
  type: dict
  contains:
    objects:
      description: The objects, each with C(apiVersion), C(kind) and C(metadata) with name and namespace.
      type: list
      elements: dict
      returned: when the cluster is reachable
    names:
      description: The objects as strings.
      type: list
      elements: str
      returned: when the cluster is reachable
    failed:
      description: Whether the cluster could not be read.
      type: bool
      returned: always
    msg:
      description: The reason of the failure.
      type: str
      returned: always
  sample:
    onprem:
      failed: false
      msg: ""
      objects:
        - apiVersion: resource.k8s.io/v1
          kind: ResourceClaim
          metadata: {name: gpu-0, namespace: mp-ml-team-51733}
      names: [ResourceClaim mp-ml-team-51733/gpu-0]
failed_clusters:
  description: The clusters that could not be read.
  returned: always
  type: list
  elements: str
  sample: []
"""

from collections.abc import Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import cluster_options, libraries, per_cluster
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, entries, text
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.observe import listed

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **cluster_options.CLUSTERS,
        "kinds": {
            "type": "list",
            "elements": "dict",
            "required": True,
            "options": {
                "api_version": {"type": "str", "required": True},
                "kind": {"type": "str", "required": True},
                "labels": {"type": "list", "elements": "str", "default": []},
                "allocated_by": {"type": "str"},
            },
        },
    },
    "supports_check_mode": True,
}


def work(module: AnsibleModule) -> None:
    """Run the module with its arguments, and exit with its result."""
    libraries.need(module, "urllib3")

    def found(client: Client) -> dict[str, Any]:
        objects = [_projection(value, kind) for kind in module.params["kinds"] for value in _matching(client, kind)]
        return {"objects": objects, "names": [_name(value) for value in objects]}

    with per_cluster.reported_arguments(module):
        per_cluster.end(module, per_cluster.on_each(module, found))


def _matching(client: Client, kind: Mapping[str, Any]) -> list[Object]:
    values = listed(client, kind["api_version"], kind["kind"], labels=",".join(kind["labels"]))
    driver = kind["allocated_by"]
    return [value for value in values if not driver or driver in _drivers(value)]


def _drivers(claim: Object) -> set[str]:
    """Return the drivers of the devices that a ResourceClaim was given."""
    return {text(allocation, "driver") for allocation in entries(claim, "status", "allocation", "devices", "results")}


def _projection(value: Object, kind: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {key: text(value, "metadata", key) for key in ("name", "namespace") if text(value, "metadata", key)}
    return {"apiVersion": kind["api_version"], "kind": kind["kind"], "metadata": metadata}


def _name(value: Mapping[str, Any]) -> str:
    return f"{value['kind']} {'/'.join(reversed(value['metadata'].values()))}"


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()

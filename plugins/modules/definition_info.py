#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.definition_info."""

from __future__ import annotations

DOCUMENTATION = r"""
module: definition_info
short_description: Gather the CustomResourceDefinitions of clusters and the number of their objects
version_added: 0.1.0
description:
  - Determines which CustomResourceDefinitions can be removed without losing objects. All objects of a kind are deleted
    with its definition.
  - Sends one request for the definitions of a cluster, and one for the objects of each chosen one.
options:
  groups:
    description: API groups whose definitions are chosen.
    type: list
    elements: str
    default: []
  names:
    description: Names of further definitions.
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - modelplane.fleet.clusters
  - modelplane.fleet.attributes.read_only
author:
  - The modelplane.fleet authors (@modelplane)
seealso:
  - module: modelplane.fleet.helm_release_info
"""

EXAMPLES = r"""
- name: Gather the remaining definitions of cert-manager
  modelplane.fleet.definition_info:
    clusters:
      - name: onprem
        kubeconfig: ~/.kube/onprem
    groups: [cert-manager.io, acme.cert-manager.io]
  register: left
"""

RETURN = r"""
clusters:
  description: What is on each workload cluster.
  returned: always
  type: dict
  contains:
    definitions:
      description: The definitions by name.
      type: dict
      returned: when the cluster could be asked
    unused:
      description:
        - Those without objects, with the fields that name each one, as a task of M(kubernetes.core.k8s) takes them to
          delete them all. Of those that only O(names) names, those with the label C(app.kubernetes.io/managed-by), as
          others are of other owners.
      type: list
      elements: dict
      returned: when the cluster could be asked
    kept:
      description: A line for each that has objects, or whose objects cannot be counted.
      type: list
      elements: str
      returned: when the cluster could be asked
    changed:
      description: Always V(false).
      type: bool
      returned: always
    failed:
      description: Whether the cluster could not be asked.
      type: bool
      returned: always
    msg:
      description: Why not.
      type: str
      returned: always
  sample:
    onprem:
      changed: false
      failed: false
      msg: ""
      definitions:
        issuers.cert-manager.io:
          group: cert-manager.io
          kind: Issuer
          # The label app.kubernetes.io/managed-by.
          managed_by: Helm
          # -1 where no version is served, so that they cannot be counted.
          objects: 0
      unused:
        - apiVersion: apiextensions.k8s.io/v1
          kind: CustomResourceDefinition
          metadata: {name: issuers.cert-manager.io}
      kept: []
failed_clusters:
  description: The clusters that could not be asked.
  returned: always
  type: list
  elements: str
  sample: []
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import cluster_options, libraries, per_cluster
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.definitions import described

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **cluster_options.CLUSTERS,
        "groups": {"type": "list", "elements": "str", "default": []},
        "names": {"type": "list", "elements": "str", "default": []},
    },
    "supports_check_mode": True,
}


def work(module: AnsibleModule) -> None:
    """Do what the arguments ask for, and end the module with the result."""
    libraries.need(module, "urllib3")

    params = module.params

    def read(client: Client) -> dict[str, Any]:
        definitions = described(client, params["groups"], params["names"])
        removable_names = [
            name for name, definition in definitions.items() if definition["managed_by"] or name not in params["names"]
        ]
        return {
            "definitions": definitions,
            "unused": [_definition(name) for name in removable_names if definitions[name]["objects"] == 0],
            "kept": [
                _kept(name, definition["objects"]) for name, definition in definitions.items() if definition["objects"]
            ],
        }

    with per_cluster.reported_arguments(module):
        per_cluster.end(module, per_cluster.on_each(module, read))


def _definition(name: str) -> dict[str, Any]:
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name}}


def _kept(name: str, objects: int) -> str:
    if objects < 0:
        return f"CustomResourceDefinition {name}: no version of it is served, so its objects cannot be counted"
    return f"CustomResourceDefinition {name}: {objects} objects of its kind are there"


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()

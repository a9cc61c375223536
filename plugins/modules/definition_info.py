#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.definition_info."""

from __future__ import annotations

DOCUMENTATION = r"""
module: definition_info
short_description: Gather CustomResourceDefinitions and the number of their objects
version_added: 0.1.0
description:
  - Determines which CustomResourceDefinitions (CRDs) you can remove without losing objects. Kubernetes deletes all
    objects of a kind with its CRD.
  - Sends one request for the CRDs of a cluster, and one request for the objects of each selected CRD.
options:
  groups:
    description: API groups whose CRDs are selected.
    type: list
    elements: str
    default: []
  names:
    description: Names of additional CRDs.
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - modelplane.fleet.clusters
  - modelplane.fleet.attributes.read_only
seealso:
  - module: modelplane.fleet.helm_release_info
"""

EXAMPLES = r"""
- name: Gather the remaining CRDs of cert-manager
  modelplane.fleet.definition_info:
    clusters:
      - name: onprem
        kubeconfig: ~/.kube/onprem
    groups: [cert-manager.io, acme.cert-manager.io]
  register: left
"""

RETURN = r"""
clusters:
  description: The result of each inference cluster.
  returned: always
  type: dict
  contains:
    definitions:
      description: The selected CRDs by name.
      type: dict
      returned: when the cluster is reachable
    unused:
      description:
        - CRDs without objects, in the format of O(kubernetes.core.k8s#module:definition), for a task that deletes them.
          A CRD that is only in O(names) is included only if it has the label C(app.kubernetes.io/managed-by), because
          other CRDs have another owner.
      type: list
      elements: dict
      returned: when the cluster is reachable
    kept:
      description: One line for each CRD that has objects, or whose objects cannot be counted.
      type: list
      elements: str
      returned: when the cluster is reachable
    changed:
      description: Always V(false).
      type: bool
      returned: always
    failed:
      description: Whether the cluster could not be queried.
      type: bool
      returned: always
    msg:
      description: The reason of the failure.
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
          # -1 if no version is served, so that the objects cannot be counted.
          objects: 0
      unused:
        - apiVersion: apiextensions.k8s.io/v1
          kind: CustomResourceDefinition
          metadata: {name: issuers.cert-manager.io}
      kept: []
failed_clusters:
  description: The clusters that could not be queried.
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
    """Run the module with its arguments, and exit with its result."""
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

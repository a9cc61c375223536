#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.helm_release_info."""

from __future__ import annotations

DOCUMENTATION = r"""
module: helm_release_info
short_description: Gather the Helm releases of clusters
version_added: 0.1.0
description:
  - Reads the latest revision of every release in all namespaces from the Secrets of Helm 3 and 4. Sends six requests to
    each cluster, and does not need Helm.
options:
  kinds:
    description:
      - The kinds of objects to return for each release, from its manifest.
    type: list
    elements: str
    default: [DaemonSet, Deployment, StatefulSet, CustomResourceDefinition]
  recorded_in:
    description:
      - A ConfigMap, as C(namespace/name), whose C(data.releases) contains release names, one per line. They are
        returned as RV(clusters[].recorded).
    type: str
extends_documentation_fragment:
  - modelplane.fleet.clusters
  - modelplane.fleet.attributes.read_only
notes:
  - The result contains the values of releases. If these values contain secrets, set C(no_log) on the task.
"""

EXAMPLES = r"""
- name: Gather the installed releases
  modelplane.fleet.helm_release_info:
    clusters:
      - name: onprem
        kubeconfig: ~/.kube/onprem
  register: helm
"""

RETURN = r"""
clusters:
  description: The result of each inference cluster.
  returned: always
  type: dict
  contains:
    releases:
      description: The releases.
      type: list
      elements: dict
      returned: when the cluster is reachable
    definitions:
      description: Each CustomResourceDefinition with its release, as C(namespace/name). Empty if it has no release.
      type: dict
      returned: when the cluster is reachable
    version:
      description: The Kubernetes version.
      type: str
      returned: when the cluster is reachable
    load_balancer_annotations:
      description: Annotations that prevent load balancers of the cluster from closing idle requests.
      type: dict
      returned: when the cluster is reachable
    devices:
      description: Whether the API server serves C(resource.k8s.io/v1), the API for device claims.
      type: bool
      returned: when the cluster is reachable
    openshift:
      description: Whether the cluster is an OpenShift cluster.
      type: bool
      returned: when the cluster is reachable
    has_model_gateway:
      description: Whether objects of a Model gateway exist at the names of a path-based inference gateway.
      type: bool
      returned: when the cluster is reachable
    foreign_namespaces:
      description: Namespaces without the label C(app.kubernetes.io/managed-by=modelplane.fleet).
      type: list
      elements: str
      returned: when the cluster is reachable
    recorded:
      description: The names in O(recorded_in).
      type: list
      elements: str
      returned: when the cluster is reachable
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
      failed: false
      msg: ''
      releases:
        - name: mp-lws
          namespace: lws-system
          status: deployed
          revision: 1
          deployed_revision: 1
          age: 4711.0
          chart: lws
          version: v0.8.0
          values: {}
          objects: []
      version: '1.36'
      load_balancer_annotations: {}
      devices: true
      openshift: false
      has_model_gateway: false
      definitions: {leaderworkersets.leaderworkerset.x-k8s.io: ''}
      foreign_namespaces: [default, kube-system]
      recorded: [mp-lws]
failed_clusters:
  description: The clusters that could not be queried.
  returned: always
  type: list
  elements: str
  sample: []
"""

import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import cluster_options, libraries, per_cluster
from ansible_collections.modelplane.fleet.plugins.module_utils.core import names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.load_balancer import (
    load_balancer_annotations,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.openshift import CONSTRAINTS
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import text
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.helm_releases import (
    WORKLOADS,
    definitions,
    recorded,
    releases,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.model_gateway import has_model_gateway

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **cluster_options.CLUSTERS,
        "kinds": {"type": "list", "elements": "str", "default": list(WORKLOADS)},
        "recorded_in": {"type": "str"},
    },
    "supports_check_mode": True,
}


def work(module: AnsibleModule) -> None:
    """Run the module with its arguments, and exit with its result."""
    libraries.need(module, "PyYAML", "urllib3")

    def read(client: Client) -> dict[str, Any]:
        version, build = client.version_and_build()
        return {
            "version": ".".join(map(str, version)),
            "load_balancer_annotations": load_balancer_annotations(build),
            "devices": client.serves("resource.k8s.io/v1", "ResourceClaim"),
            "openshift": client.serves(*CONSTRAINTS),
            "releases": releases(client, time.time(), module.params["kinds"]),
            "definitions": definitions(client),
            "has_model_gateway": has_model_gateway(client),
            "recorded": recorded(client, module.params["recorded_in"] or ""),
            "foreign_namespaces": [
                text(value, "metadata", "name")
                for value in client.list("v1", "Namespace").items
                if text(value, "metadata", "labels", names.MANAGED_BY_LABEL) != names.MANAGED_BY
            ],
        }

    with per_cluster.reported_arguments(module):
        per_cluster.end(module, per_cluster.on_each(module, read))


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()

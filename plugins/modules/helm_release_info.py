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
  - Reads the latest revision of every release in all namespaces from the Secrets of Helm 3 and 4, with six requests
    for each cluster and without Helm.
options:
  kinds:
    description:
      - Kinds of objects that are returned for each release, from its manifest.
    type: list
    elements: str
    default: [DaemonSet, Deployment, StatefulSet, CustomResourceDefinition]
  recorded_in:
    description:
      - A ConfigMap, as C(namespace/name), whose C(data.releases) has names of releases, one a line. They are returned
        as RV(clusters[].recorded).
    type: str
extends_documentation_fragment:
  - modelplane.fleet.clusters
  - modelplane.fleet.attributes.read_only
author:
  - The modelplane.fleet authors (@modelplane)
notes:
  - Values of releases are in the result. Some people keep secrets in them; use C(no_log) there.
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
  description: What is on each workload cluster.
  returned: always
  type: dict
  contains:
    releases:
      description: Each release.
      type: list
      elements: dict
      returned: when the cluster could be asked
    definitions:
      description: Each CustomResourceDefinition, and the release that it is of, as C(namespace/name); empty for none.
      type: dict
      returned: when the cluster could be asked
    version:
      description: Version of Kubernetes.
      type: str
      returned: when the cluster could be asked
    load_balancer_annotations:
      description: Annotations with which load balancers there cut no request that is silent for long.
      type: dict
      returned: when the cluster could be asked
    devices:
      description: Whether C(resource.k8s.io/v1) is served, with which pods claim devices.
      type: bool
      returned: when the cluster could be asked
    openshift:
      description: Whether it is OpenShift.
      type: bool
      returned: when the cluster could be asked
    has_model_gateway:
      description: Whether the objects of a gateway in mode C(Model) are where those of a workload gateway would be.
      type: bool
      returned: when the cluster could be asked
    foreign_namespaces:
      description: Namespaces without the label C(app.kubernetes.io/managed-by=modelplane.fleet).
      type: list
      elements: str
      returned: when the cluster could be asked
    recorded:
      description: The names in O(recorded_in).
      type: list
      elements: str
      returned: when the cluster could be asked
    failed:
      description: Whether the cluster could not be asked.
      type: bool
      returned: always
    msg:
      description: Why.
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
  description: The clusters that could not be asked.
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
    """Do what the arguments ask for, and end the module with the result."""
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

#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.serving_stack_info."""

from __future__ import annotations

DOCUMENTATION = r"""
module: serving_stack_info
short_description: Gather serving stack and gateway settings from fleet resources
version_added: 0.1.0
description:
  - Returns three values for each InferenceCluster. These are the DRA drivers of its node pools' devices, which
    determine the components to install, the components that Model gateways need, and the C(spec) of its ServingStack.
  - Returns the Helm releases and the objects of the path-based InferenceGateway.
  - Reads manifests, and the control cluster if O(control) is given. Manifests override resources of the same name on
    the control cluster, except a ServingStack, which can only be changed on the control cluster.
options:
  names:
    description:
      - Names of clusters. Defaults to all clusters, which is a large result for each host of a large fleet.
    type: list
    elements: str
extends_documentation_fragment:
  - modelplane.fleet.declared
  - modelplane.fleet.clusters.control
  - modelplane.fleet.attributes.read_only
"""

EXAMPLES = r"""
- name: Gather the devices of the clusters
  modelplane.fleet.serving_stack_info:
    resources: [manifests/]
  register: stacks

- name: Show the drivers of a cluster
  ansible.builtin.debug:
    msg: "{{ stacks.clusters['us-west'].drivers }}"
"""

RETURN = r"""
clusters:
  description: The settings of each InferenceCluster by name.
  returned: success
  type: dict
  contains:
    drivers:
      description: The DRA drivers of the cluster's devices.
      type: list
      elements: str
      returned: always
    pools:
      description: The DRA drivers of each node pool.
      type: dict
      returned: always
    gateway_needs:
      description:
        - The serving stack features that Model gateways need on this cluster.
        - C(gateway) if a Model gateway runs on the cluster.
        - C(certificates) if a Model gateway runs on the cluster or sends requests to it.
        - C(budgets) if a Model gateway on the cluster authenticates clients.
        - C(strict-budgets) if a CallerPolicy has budgets with C(whenUnavailable=Refuse) for the services of such a
          gateway.
      type: list
      elements: str
      returned: always
    source:
      description: The C(spec.cluster.source) of the InferenceCluster.
      type: str
      returned: always
    stack:
      description: The C(spec) of the ServingStack without C(secrets). Empty if the cluster has no ServingStack.
      type: dict
      returned: always
    replicas:
      description: The ModelReplicas of the cluster on the control cluster. Empty without a control cluster.
      type: list
      elements: str
      returned: always
  sample:
    onprem:
      drivers: [gpu.nvidia.com]
      pools: {gpu: [gpu.nvidia.com]}
      gateway_needs: [certificates]
      source: Existing
      stack: {nvidiaDriverRoot: /run/nvidia/driver}
      replicas: [ml-team/qwen3-8b-0d3f1b2c4a]
held:
  description:
    - The clusters that are frozen because their manifest, or the manifest of one of their classes, has errors. They are
      not in RV(clusters).
    - All clusters if a ServingStack has errors.
    - Always empty unless O(invalid=hold).
  returned: success
  type: list
  elements: str
  sample: []
gateway_held:
  description:
    - Whether an InferenceGateway has errors. The mode of such a gateway is unknown, so the objects of the path-based
      gateway are frozen.
  returned: success
  type: bool
  sample: false
gateway:
  description: The releases and objects of the path-based InferenceGateway. Empty if the fleet has none.
  returned: success
  type: dict
  contains:
    releases:
      description: The Helm releases, in the order of installation.
      type: list
      elements: dict
      returned: when the fleet has a path-based gateway
    objects:
      description: The objects to apply after the releases are installed.
      type: list
      elements: dict
      returned: when the fleet has a path-based gateway
    published:
      description:
        - The desired manifest of the gateway on the control cluster. Empty if the InferenceGateway was created there.
      type: list
      elements: dict
      returned: when the fleet has a path-based gateway
    address_pool:
      description: The addresses for MetalLB. Empty if the gateway does not use MetalLB.
      type: str
      returned: when the fleet has a path-based gateway
  sample:
    releases:
      - {name: mp-traefik, chart: traefik, version: 40.2.0, repository: "https://traefik.github.io/charts",
         namespace: traefik-system, values: {gateway: {enabled: false}}}
    objects: []
    published: []
    address_pool: 198.51.100.10-198.51.100.20
"""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import declared_resources, libraries
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments.manifests import fail, prepare
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api, names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.inference_gateway import mode_of
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.cluster import InvalidPool, cluster_objects
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.gateway import backend_of
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.needs import stack_needs
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.expected import expected
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, fields, text
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.control_cluster import (
    declared_gateway,
    published_copy,
)

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {**declared_resources.ARGUMENTS, "names": {"type": "list", "elements": "str"}},
    "supports_check_mode": True,
}
_KINDS = ("InferenceClass", "InferenceCluster", "InferenceGateway", "ServingStack", "ModelReplica")
_COUNTED = ("ModelService", "CallerPolicy")
"""Kinds that define the budgets of a gateway."""
Resource = TypeVar("Resource", bound=api.Resource)


def work(module: AnsibleModule) -> None:
    """Run the module with its arguments, and exit with its result."""
    libraries.need(module, "urllib3")
    prepare(module)
    declared = declared_resources.declared(module, _KINDS)
    try:
        gateway = _gateway(declared.loaded.resources, declared.live)
    except api.InvalidResource as error:
        fail(module, error.problems)
    resources = [*declared.live, *map(api.wire, declared.loaded.resources)]
    if any(_is_model_gateway(value) for value in resources):
        resources = [*declared_resources.on_control_cluster(module, _COUNTED), *resources]
    stacks = _clusters(resources)
    invalid = {ref.kind for ref in declared.loaded.unusable}
    # The cluster of an invalid ServingStack is unknown.
    held_clusters = declared.held_clusters.union(stacks) if "ServingStack" in invalid else declared.held_clusters
    names = module.params["names"]
    requested = held_clusters.union(stacks) if names is None else frozenset(names)
    module.exit_json(
        changed=False,
        clusters={name: cluster for name, cluster in stacks.items() if name in requested - held_clusters},
        held=sorted(held_clusters & requested),
        gateway=gateway,
        gateway_held="InferenceGateway" in invalid,
    )


def _clusters(resources: list[Object]) -> dict[str, dict[str, Any]]:
    """Return the settings by cluster. Later resources override earlier resources of the same name."""
    by_kind: dict[str, dict[str, Object]] = {}
    for value in resources:
        name = "/".join(filter(None, (text(value, "metadata", "namespace"), text(value, "metadata", "name"))))
        by_kind.setdefault(text(value, "kind"), {})[name] = value
    expected_state = expected(resources)
    needs = _gateway_needs(by_kind)
    settings_by_cluster = {}
    for name, cluster in sorted(by_kind.get("InferenceCluster", {}).items()):
        composed = _composed(cluster, by_kind.get("InferenceClass", {}))
        stacks = [value for value in by_kind.get("ServingStack", {}).values() if _cluster_of(value) == name] or composed
        spec = fields(stacks[0], "spec") if stacks else {}
        settings_by_cluster[name] = {
            "drivers": expected_state.cluster(name).drivers,
            "pools": {promise.pool: sorted(promise.drivers) for promise in expected_state.cluster(name).promises},
            "gateway_needs": needs.get(name, []),
            "source": text(cluster, "spec", "cluster", "source"),
            "stack": {key: value for key, value in spec.items() if key != "secrets"},
            "replicas": sorted(
                replica_key
                for replica_key, value in by_kind.get("ModelReplica", {}).items()
                if _cluster_of(value) == name
            ),
        }
    return settings_by_cluster


def _gateway(resources: Sequence[api.Resource], live: Sequence[Object]) -> dict[str, Any]:
    """Return the releases and objects of the InferenceGateway. Raise InvalidResource."""
    desired, is_live = declared_gateway(resources, live)
    if desired is None:
        return {}
    settings = desired.spec.traefik
    backend = backend_of(desired)
    return {
        "releases": [asdict(release) for release in backend.releases(desired)],
        "objects": list(backend.objects(desired)),
        "published": [] if is_live else [published_copy(desired)],
        "address_pool": settings.metallb.address_pool
        if settings and settings.load_balancer and settings.metallb
        else "",
    }


def _is_model_gateway(value: Object) -> bool:
    if text(value, "kind") != "InferenceGateway":
        return False
    return mode_of(text(value, "spec", "mode"), text(value, "spec", "clusterName")) == "Model"


def _gateway_needs(by_kind: Mapping[str, Mapping[str, Object]]) -> dict[str, list[str]]:
    """Return the needs of Model gateways, by cluster. Invalid resources are ignored."""
    gateways = [value for value in by_kind.get("InferenceGateway", {}).values() if _is_model_gateway(value)]
    if not gateways:
        return {}
    clusters = _parsed(api.InferenceCluster, by_kind.get("InferenceCluster", {}).values())
    return stack_needs(
        {cluster.name: cluster for cluster in clusters},
        _parsed(api.InferenceGateway, gateways),
        _parsed(api.ModelService, by_kind.get("ModelService", {}).values()),
        _parsed(api.CallerPolicy, by_kind.get("CallerPolicy", {}).values()),
        {text(value, "spec", "clusterName") for value in by_kind.get("ModelReplica", {}).values()},
    )


def _parsed(model: type[Resource], values: Iterable[Object]) -> list[Resource]:
    resources = []
    for value in values:
        with contextlib.suppress(api.InvalidResource):
            resource = api.parse(value)
            if isinstance(resource, model):
                resources.append(resource)
    return resources


def _cluster_of(value: Object) -> str:
    return text(value, "metadata", "labels", names.CLUSTER_LABEL)


def _composed(cluster: Object, classes: dict[str, Object]) -> list[Object]:
    try:
        resource = api.parse(cluster)
        parsed_classes = {name: api.parse(value) for name, value in classes.items()}
        if not isinstance(resource, api.InferenceCluster):
            return []
        sound = {name: value for name, value in parsed_classes.items() if isinstance(value, api.InferenceClass)}
        return [value for value in cluster_objects(resource, sound) if value["kind"] == "ServingStack"]
    except (InvalidPool, api.InvalidResource):
        # Problems of its pools are reported when the cluster is built.
        return []


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()

#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.wait_ready."""

from __future__ import annotations

DOCUMENTATION = r"""
module: wait_ready
short_description: Wait until objects are ready
version_added: 0.1.0
description:
  - Waits on all clusters in parallel until every object is ready, regardless of its creator. The module uses the rules
    of C(kubectl rollout status) and of the API reference of each kind. For example, all pods of the latest revision of
    a Deployment are available, a CustomResourceDefinition is established, or a Gateway is programmed. A DaemonSet that
    matches no node is ready.
  - Reports each object that is not ready in time, with the reason. Reasons include failures of its pods, such as an
    image that cannot be pulled or a missing node.
  - Waiting ends early if all objects are ready or have failed permanently. In check mode the module checks once and
    never fails.
options:
  objects:
    description:
      - The objects. The module reads only C(apiVersion), C(kind) and C(metadata) with C(name) and C(namespace), so that
        you can use complete manifests, such as C(status.manifest) of M(kubernetes.core.helm_info). It also accepts
        C(apiVersion), C(kind), C(namespace) and C(name) without C(metadata).
      - Kinds without readiness, such as ConfigMap, are skipped unless O(state=absent).
    type: list
    elements: dict
    default: []
  releases:
    description:
      - Helm releases, as C(namespace/name), whose Deployments, StatefulSets, DaemonSets and CustomResourceDefinitions
        must be ready too. A missing release has no objects.
    type: list
    elements: str
    default: []
  namespace:
    description:
      - The default namespace for objects of namespaced kinds.
    type: str
    default: default
  conditions:
    description:
      - The condition in C(status.conditions) that defines readiness, by kind. Use it for kinds without built-in rules.
    type: dict
    default: {}
  accepted:
    description:
      - Objects that the API servers must accept in a dry run. The dry run requires responses from their webhooks, which
        may start some seconds after their pods are ready.
      - A webhook that rejects the object has also responded.
    type: list
    elements: dict
    default: []
  devices:
    description:
      - The node pools of each DRA driver. On each of their nodes, the driver must publish devices in a ResourceSlice.
        The nodes of a node pool are the nodes with the label C(modelplane.ai/pool) when the module starts. For a node
        pool without nodes, the module does not wait.
    type: dict
    default: {}
  state:
    description:
      - V(present) waits until all objects are ready. V(absent) waits until none of O(objects) exists.
    type: str
    choices: [present, absent]
    default: present
  wait:
    description:
      - Seconds to wait. V(0) checks once.
    type: float
    default: 300
extends_documentation_fragment:
  - modelplane.fleet.clusters
  - modelplane.fleet.attributes.read_only
seealso:
  - module: modelplane.fleet.apply
"""

EXAMPLES = r"""
- name: Gather the objects of a release
  kubernetes.core.helm_info:
    name: prometheus
    namespace: monitoring
  register: release

- name: Wait for the release and its Prometheus
  modelplane.fleet.wait_ready:
    clusters:
      - name: onprem
        kubeconfig: ~/.kube/onprem
    objects: "{{ release.status.manifest }}"
    namespace: monitoring
    conditions:
      Prometheus: Available
    wait: 600

- name: Wait for devices on the nodes of two pools
  modelplane.fleet.wait_ready:
    clusters:
      - name: onprem
        kubeconfig: ~/.kube/onprem
    devices:
      gpu.nvidia.com: [h100, l4]

- name: Wait until the webhook responds
  modelplane.fleet.wait_ready:
    clusters:
      - name: onprem
        kubeconfig: ~/.kube/onprem
    accepted:
      - apiVersion: cert-manager.io/v1
        kind: Issuer
        metadata: {name: probe, namespace: default}
        spec: {selfSigned: {}}
"""

RETURN = r"""
clusters:
  description: The result of each inference cluster.
  returned: always
  type: dict
  contains:
    changed:
      description: Always V(false).
      type: bool
      returned: always
    failed:
      description: Whether the cluster was unreachable, or an object is not ready.
      type: bool
      returned: always
    msg:
      description: The objects that are not ready, with reasons, one line each. Empty if all objects are ready.
      type: str
      returned: always
    objects:
      description: The objects that the module waited for.
      type: list
      elements: dict
      returned: when the cluster is reachable
  sample:
    onprem:
      changed: false
      failed: true
      msg: >-
        Deployment cert-manager/mp-cert-manager-webhook: 0 of 1 pods available; pod mp-cert-manager-webhook-7b-x:
        ImagePullBackOff
      objects:
        - api_version: apps/v1
          kind: Deployment
          namespace: cert-manager
          name: mp-cert-manager-webhook
          ready: false
          message: "0 of 1 pods available; pod mp-cert-manager-webhook-7b-x: ImagePullBackOff"
failed_clusters:
  description: The clusters that failed.
  returned: always
  type: list
  elements: str
  sample: []
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils import progress
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import cluster_options, libraries, per_cluster
from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import is_dns_label
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, text
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.external_objects import Awaited, settle
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.helm_releases import WORKLOADS, releases

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **cluster_options.CLUSTERS,
        "objects": {"type": "list", "elements": "dict", "default": []},
        "releases": {"type": "list", "elements": "str", "default": []},
        "namespace": {"type": "str", "default": "default"},
        "conditions": {"type": "dict", "default": {}},
        "accepted": {"type": "list", "elements": "dict", "default": []},
        "devices": {"type": "dict", "default": {}},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "wait": {"type": "float", "default": 300.0},
    },
    "supports_check_mode": True,
}


def work(module: AnsibleModule) -> None:
    """Run the module with its arguments, and exit with its result."""
    libraries.need(module, "PyYAML", "urllib3")
    seconds = 0.0 if module.check_mode else module.params["wait"]
    seen_progress = progress.of(module)
    with per_cluster.reported_arguments(module):
        awaited = _awaited(module.params)

        def settled(client: Client) -> dict[str, Any]:
            objects = (*awaited.objects, *_of_releases(client, module.params["releases"]))
            return _result(settle(client, replace(awaited, objects=objects), time.monotonic() + seconds, seen_progress))

        per_cluster.end(module, per_cluster.on_each(module, settled), may_fail=not module.check_mode)


def _of_releases(client: Client, names: Sequence[str]) -> list[Object]:
    """Return the objects of releases that can become ready."""
    helm_releases = releases(client, time.time(), WORKLOADS) if names else []
    return [
        value
        for release in helm_releases
        if f"{release['namespace']}/{release['name']}" in names
        for value in release["objects"]
    ]


def _awaited(params: Mapping[str, Any]) -> Awaited:
    if not 0 <= params["wait"] < float("inf"):
        raise cluster_options.ArgumentsError(f"wait is {params['wait']}, and must not be negative")
    return Awaited(
        objects=_objects("objects", params["objects"], params["namespace"]),
        accepted=_objects("accepted", params["accepted"], params["namespace"]),
        conditions={str(kind): str(condition) for kind, condition in params["conditions"].items()},
        devices={str(driver): _pools(driver, pools) for driver, pools in params["devices"].items()},
        absent=params["state"] == "absent",
    )


def _pools(driver: Any, value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(pool, str) and is_dns_label(pool) for pool in value):
        raise cluster_options.ArgumentsError(f"devices[{driver}] is {value!r}, and must be a list of names of pools")
    return value


def _objects(option: str, values: Sequence[Mapping[str, Any]], namespace: str) -> tuple[Object, ...]:
    """Return objects in their wire format, each with a name and a namespace."""
    objects = []
    for index, value in enumerate(values):
        metadata = value.get("metadata")
        if not isinstance(metadata, Mapping):
            metadata = {key: value[key] for key in ("name", "namespace") if value.get(key)}
        complete_object = {**value, "metadata": {**metadata, "namespace": metadata.get("namespace") or namespace}}
        if not (
            text(complete_object, "apiVersion")
            and text(complete_object, "kind")
            and text(complete_object, "metadata", "name")
        ):
            raise cluster_options.ArgumentsError(f"{option}[{index}] has no apiVersion, kind or metadata.name")
        objects.append(complete_object)
    return tuple(objects)


def _result(states: Iterable[tuple[Object, Any]]) -> dict[str, Any]:
    objects = [
        {
            "api_version": text(value, "apiVersion"),
            "kind": text(value, "kind"),
            "namespace": text(value, "metadata", "namespace"),
            "name": text(value, "metadata", "name"),
            "ready": state.ready,
            "message": state.message,
        }
        for value, state in states
    ]
    wrong = [object_state for object_state in objects if not object_state["ready"]]
    object_names = ["/".join(filter(None, (object_state["namespace"], object_state["name"]))) for object_state in wrong]
    lines = [
        f"{object_state['kind']} {object_name}: {object_state['message']}"
        for object_state, object_name in zip(wrong, object_names, strict=True)
    ]
    return {"changed": False, "failed": bool(wrong), "msg": "\n".join(lines), "objects": objects}


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()

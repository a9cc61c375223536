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
  - Waits, on all clusters concurrently, until every object is ready, whoever created it. The rules are those of
    C(kubectl rollout status) and of the API reference of each kind, such as that all pods of the latest revision of a
    Deployment are available, that a CustomResourceDefinition is established, that a Gateway is programmed. A DaemonSet
    that is scheduled on no node is ready.
  - An object that is not ready in time is reported with the reason, including failures of its pods (an image that
    cannot be pulled, a missing node).
  - Waiting ends early when all are ready, or have failed for good. In check mode it checks once, and never fails.
options:
  objects:
    description:
      - The objects. Only C(apiVersion), C(kind) and C(metadata) with C(name) and C(namespace) are read, so that whole
        manifests can be given, such as C(status.manifest) of M(kubernetes.core.helm_info). C(apiVersion), C(kind),
        C(namespace) and C(name) without C(metadata) are accepted as well.
      - Kinds without a readiness, such as a ConfigMap, are skipped, unless O(state=absent).
    type: list
    elements: dict
    default: []
  releases:
    description:
      - Releases of Helm, each as C(namespace/name), whose Deployments, StatefulSets, DaemonSets and
        CustomResourceDefinitions have to be ready too. One that is not there has none.
    type: list
    elements: str
    default: []
  namespace:
    description:
      - The namespace of objects that have none, where their kind needs one.
    type: str
    default: default
  conditions:
    description:
      - By kind, the condition in C(status.conditions) that makes an object of it ready, for kinds that the module does
        not know.
    type: dict
    default: {}
  accepted:
    description:
      - Objects that the API servers have to accept in a dry run, which requires that their webhooks answer. That may be
        some seconds after the pods of the webhooks are ready.
      - A webhook that refuses the object has answered as well.
    type: list
    elements: dict
    default: []
  devices:
    description:
      - By DRA driver, pools on each of whose nodes it has to publish devices, in a ResourceSlice. Nodes of a pool are
        those with the label C(modelplane.ai/pool) as waiting begins; a pool without nodes has nothing to wait for.
    type: dict
    default: {}
  state:
    description:
      - V(absent) waits until none of O(objects) exists.
    type: str
    choices: [present, absent]
    default: present
  wait:
    description:
      - Seconds to wait. C(0) checks once.
    type: float
    default: 300
extends_documentation_fragment:
  - modelplane.fleet.clusters
  - modelplane.fleet.attributes.read_only
author:
  - The modelplane.fleet authors (@modelplane)
seealso:
  - module: modelplane.fleet.apply
"""

EXAMPLES = r"""
- name: Gather the objects of a release
  kubernetes.core.helm_info:
    name: prometheus
    namespace: monitoring
  register: release

- name: Wait until they are ready, and the Prometheus that its operator creates
  modelplane.fleet.wait_ready:
    clusters:
      - name: onprem
        kubeconfig: ~/.kube/onprem
    objects: "{{ release.status.manifest }}"
    namespace: monitoring
    conditions:
      Prometheus: Available
    wait: 600

- name: Wait until the nodes of two pools have devices
  modelplane.fleet.wait_ready:
    clusters:
      - name: onprem
        kubeconfig: ~/.kube/onprem
    devices:
      gpu.nvidia.com: [h100, l4]

- name: Wait until the webhook answers
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
  description: The result of each workload cluster.
  returned: always
  type: dict
  contains:
    changed:
      description: Always V(false).
      type: bool
      returned: always
    failed:
      description: Whether the cluster was not reachable, or an object is not ready.
      type: bool
      returned: always
    msg:
      description: The objects that are not ready, with reasons, one line each; empty when all are ready.
      type: str
      returned: always
    objects:
      description: Each object that was waited for.
      type: list
      elements: dict
      returned: when the cluster could be asked
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
    """Do what the arguments ask for, and end the module with the result."""
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
    """Return the objects of releases that become ready."""
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

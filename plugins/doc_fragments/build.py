# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Options of a build. The argument spec is `BUILD` in `module_utils/arguments/manifests.py`."""

from __future__ import annotations


class ModuleDocFragment:
    """Options of modules that build a fleet."""

    DOCUMENTATION = r"""
options:
  resources:
    description:
      - Files, directories and glob patterns with the C(modelplane.ai/v1alpha1) manifests of the fleet.
      - Optional if the resources are on the control cluster.
    type: list
    elements: path
    required: false
    default: []
  drain:
    description:
      - InferenceClusters to drain, as if they had the taint C(modelplane.ai/drain:NoExecute).
      - With O(observations), a replica is removed after its replacement serves. Otherwise it is removed immediately.
    type: list
    elements: str
    default: []
  hosts:
    description:
      - The clusters that have hosts in the inventory. A name that is neither an InferenceCluster of the fleet nor a
        cloud cluster resource that a user created is an error.
    type: list
    elements: str
    default: []
  observations:
    description:
      - A YAML or JSON file with the observed state of the fleet. Endpoints, routes, caches and edits then depend on
        readiness, and the status of every resource is written below C(status/). A cluster that is not in the file
        counts as declared before its first observation. Later, its last observed state is used.
      - C(control) contains C(unreachable), C(objects), C(secrets) (each with C(namespace), C(name), and C(keys) that
        have a value) and C(controller) (C(ready), C(message)).
      - C(clusters) contains for each cluster C(unreachable), C(provisioned) and C(stack) (both C(ready), C(message)),
        C(nodes) by node pool, and C(objects). An unobserved cluster contains only C(declared) with the value V(true).
      - Objects have the format of the API server. Secrets with values are rejected.
    type: path
  prices:
    description:
      - The price catalog, a YAML file with node prices by cloud, instance type, and region or zone. Prices in an
        InferenceClass override it.
    type: path
  rollout:
    description:
      - The maximum number of clusters on which an edit of a deployment rolls out at the same time. The rollout on a
        cluster is complete when all pods have the new revision and are ready.
      - Requires O(observations). Otherwise an edit rolls out on all clusters at the same time.
    type: int
    default: 1
  images:
    description: Container images that run next to the engines, for example from a mirror.
    type: dict
    suboptions:
      picker:
        description: The endpoint picker. C(serving.picker.image) of a deployment overrides it.
        type: str
      sidecar:
        description: The proxy in front of Decode engines. C(serving.sidecar.image) of a deployment overrides it.
        type: str
      hydration:
        description: The image that downloads weights to caches. It needs a POSIX shell, and C(hf) or Python with pip.
        type: str
      egress:
        description: The Envoy image that adds credentials to requests to endpoints outside the fleet.
        type: str
  stream_grace:
    description:
      - The maximum number of seconds that a terminating engine pod keeps serving, so that token streams finish.
        vLLM and SGLang engines stop earlier if they have no requests. The pod uses its devices during this time.
      - At most V(86370), which is a C(terminationGracePeriodSeconds) of one day.
      - C(terminationGracePeriodSeconds) and C(lifecycle) of a member override it.
    type: int
    default: 240
  network_policies:
    description:
      - Whether NetworkPolicies on inference clusters restrict access to the pods of engines and endpoint pickers. They
        require a cluster network that enforces NetworkPolicies.
    type: bool
    default: true
  export_pools:
    description:
      - Whether InferencePools accept requests from other clusters, with the annotation
        C(inference.networking.x-k8s.io/export). This is a draft of the Gateway API Inference Extension, for controllers
        that this collection does not install.
    type: bool
    default: false
    version_added: 0.1.0
  network_sources:
    description: Namespaces of inference clusters whose pods have access with O(network_policies).
    type: dict
    suboptions:
      gateway:
        description:
          - The namespaces of the pods of the Gateway C(inference-gateway), with access to engines and endpoint pickers.
          - If unset, C(envoy-gateway-system) and C(modelplane-system).
        type: list
        elements: str
      metrics:
        description:
          - The namespaces of pods that scrape metrics, with access to all ports of engines and endpoint pickers.
          - If unset, C(monitoring).
        type: list
        elements: str
  path:
    description:
      - The build directory. It is created if it does not exist.
      - The module changes or removes only files that it wrote.
    type: path
    required: true
  lock_timeout:
    description: Seconds to wait for another run that uses the same build directory.
    type: float
    default: 60
  allow_empty:
    description:
      - Whether manifests without an InferenceCluster or without a ModelDeployment can remove existing objects of the
        build.
      - If V(false), the module fails, because O(resources) is probably wrong.
    type: bool
    default: false
  allow_outage:
    description:
      - Whether the run may stop models from serving although no manifest requests it.
      - If V(false), a run changes nothing if a ModelService would lose all serving endpoints, or a ModelDeployment more
        than half of its serving replicas.
    type: bool
    default: false
  staged:
    description:
      - Whether each run performs only one step of a rollout on GitOps clusters, which no run observes.
      - If V(false), an edit changes all replicas on these clusters in one run.
    type: bool
    default: false
  remove_unknown:
    description:
      - Whether the run may remove running replicas that are missing from the manifests and from the fleet's state, for
        example after the build directory was lost.
      - If V(false), the module fails before any change if it finds such replicas.
    type: bool
    default: false
  table_width:
    description:
      - The maximum line length of RV(table) and RV(services), at least 60.
      - The default leaves space for the prefix that Ansible prints.
    type: int
    default: 72
requirements:
  - Jinja2
"""

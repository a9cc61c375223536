# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Options of a build; the argument spec is `BUILD` in `module_utils/arguments/manifests.py`."""

from __future__ import annotations


class ModuleDocFragment:
    """Options of modules that build a fleet."""

    DOCUMENTATION = r"""
options:
  resources:
    description:
      - Files, folders and glob patterns with the C(modelplane.ai/v1alpha1) manifests of the fleet.
      - Not needed where the resources are on the control cluster.
    type: list
    elements: path
    required: false
    default: []
  drain:
    description:
      - InferenceClusters that are to be emptied, as if they had the taint C(modelplane.ai/drain:NoExecute).
      - With O(observations), a replica goes when another one serves in its place; without, at once.
    type: list
    elements: str
    default: []
  hosts:
    description:
      - The clusters that the inventory has hosts for. One that is no InferenceCluster of the fleet, nor a
        cluster in a cloud that a user wrote, is an error.
    type: list
    elements: str
    default: []
  observations:
    description:
      - A file that says what was seen of the fleet, YAML or JSON. Endpoints, routes, caches and edits then follow what
        is ready, and the status of every resource is written below C(status/). A cluster that is not in it counts as
        declared until it is observed for the first time, and later as it was last.
      - C(control) has C(unreachable), C(objects), C(secrets) (C(namespace), C(name), C(keys) that have a value) and
        C(controller) (C(ready), C(message)); C(clusters) has for each cluster C(unreachable), C(provisioned) and
        C(stack) (both C(ready), C(message)), C(nodes) by pool and C(objects), or V(true) in C(declared) alone, where
        it is not read. Objects are as an API server shows them; Secrets with values are refused.
    type: path
  prices:
    description:
      - The price catalog, one YAML file with prices of nodes by cloud, machine, and region or zone. Prices that an
        InferenceClass has win over it.
    type: path
  rollout:
    description:
      - How many clusters an edit of a deployment reaches at a time. A cluster is through with it when all its pods are
        of the new revision and ready. Needs O(observations); without, an edit reaches all of them at once.
    type: int
    default: 1
  images:
    description: Images of the containers that are composed beside the engines, such as those of a mirror.
    type: dict
    suboptions:
      picker:
        description: The endpoint picker. A deployment's own C(serving.picker.image) wins.
        type: str
      sidecar:
        description: The proxy in front of Decode engines. A deployment's own C(serving.sidecar.image) wins.
        type: str
      hydration:
        description: Downloads weights into caches. Needs a POSIX shell, and C(hf) or Python with pip.
        type: str
      egress:
        description: An Envoy that adds credentials to requests for endpoints outside of the fleet.
        type: str
  stream_grace:
    description:
      - Maximum number of seconds that a terminating engine pod keeps serving, so that token streams finish.
        vLLM and SGLang engines stop earlier if they have no requests. The pod uses its devices during this time.
      - At most V(86370), which is a C(terminationGracePeriodSeconds) of one day.
      - A member's own C(terminationGracePeriodSeconds) and C(lifecycle) win.
    type: int
    default: 240
  network_policies:
    description:
      - Whether NetworkPolicies on workload clusters say who reaches the pods of engines and endpoint pickers. They do
        something where the network of the cluster enforces them.
    type: bool
    default: true
  export_pools:
    description:
      - Whether InferencePools ask for requests from other clusters, by the annotation
        C(inference.networking.x-k8s.io/export). A draft of the Gateway API Inference Extension, for controllers that
        this collection does not install.
    type: bool
    default: false
    version_added: 0.1.0
  network_sources:
    description: Namespaces of workload clusters whose pods O(network_policies) lets in.
    type: dict
    suboptions:
      gateway:
        description:
          - Where the pods of the Gateway C(inference-gateway) run. They reach engines and endpoint pickers.
          - Without it, C(envoy-gateway-system) and C(modelplane-system).
        type: list
        elements: str
      metrics:
        description:
          - Where metrics are scraped. What runs there reaches engines and endpoint pickers on every port.
          - Without it, C(monitoring).
        type: list
        elements: str
  path:
    description:
      - The build folder. It is created when something is written.
      - Only files that this module wrote are changed or removed.
    type: path
    required: true
  lock_timeout:
    description: Seconds to wait for another run that uses the same folder.
    type: float
    default: 60
  allow_empty:
    description:
      - Whether manifests without any InferenceCluster or without any ModelDeployment may remove what is built.
      - When V(false), that is taken for a wrong O(resources) and fails.
    type: bool
    default: false
  allow_outage:
    description:
      - Whether the run may stop models from serving although no manifest asks for it.
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
      - Longest line of RV(table) and RV(services), at least 60.
      - The default leaves room for what Ansible puts before it.
    type: int
    default: 72
requirements:
  - Jinja2
"""

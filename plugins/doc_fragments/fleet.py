# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Documentation that modules share."""

from __future__ import annotations


class ModuleDocFragment:
    """Options of modules that read the manifests of a fleet."""

    DOCUMENTATION = r"""
options:
  resources:
    description:
      - Files, directories and glob patterns with the C(modelplane.ai/v1alpha1) manifests of the fleet.
      - For a directory, the module reads all C(*.yaml), C(*.yml) and C(*.json) files recursively, except hidden files.
      - Manifests are data. The module neither templates nor executes their content.
    type: list
    elements: path
    required: true
  chdir:
    description:
      - The base directory of relative paths, and of file names in messages. Defaults to the directory of the playbook.
    type: path
requirements:
  - pydantic >= 2.10
  - PyYAML
author:
  - The modelplane.fleet authors (@modelplane)
"""

    SCHEDULING = r"""
options:
  accounting:
    description:
      - The method to count capacity.
      - V(Devices) lets pods share a node while it has free devices. V(Nodes) reserves a whole node for every pod that
        claims a device.
    type: str
    choices: [Devices, Nodes]
    default: Devices
  search:
    description:
      - The search strategy of the scheduler.
      - V(Exact) tries other node pools and devices if the first choice does not fit, and other clusters for replicas
        that are new in this run, within O(search_budget). V(Greedy) never revises a choice.
    type: str
    choices: [Exact, Greedy]
    default: Exact
  search_budget:
    description:
      - The maximum number of steps of all V(Exact) searches together. A step tries one choice, and takes about ten
        microseconds.
      - Half of the steps are divided equally among the namespaces with pending replicas, and then among their
        deployments. The other half is available to all deployments.
      - If a search reaches this limit, the reason of the pending replica contains it.
    type: int
    default: 1000000
  selector_budget:
    description:
      - The maximum cost of all CEL selectors of the fleet together, in Kubernetes CEL cost units. One selector costs
        about ten units for each kind of device, and at most one million.
      - If the selectors exceed the budget, it is divided equally among namespaces, and then among their deployments. A
        deployment whose selectors exceed its share keeps its replicas unchanged and gets no new replicas.
    type: int
    default: 100000000
  invalid:
    description:
      - The action for manifests with errors.
      - V(fail) changes nothing and reports all errors.
      - V(hold) freezes invalid resources at their last applied state, reports their errors as warnings, and continues
        with the other resources. A document whose resource cannot be identified fails the task in both cases.
    type: str
    choices: [fail, hold]
    default: fail
"""

    ENDPOINT_HOSTS = r"""
options:
  endpoint_hosts:
    description:
      - Hosts inside the cluster or its cloud that ModelEndpoints can use. Each entry is a host name
        (V(vllm.models.svc.cluster.local)), a suffix (V(*.models.svc.cluster.local)) or a CIDR (V(10.96.8.0/24)).
      - Other internal hosts are rejected. These are names and addresses of cloud metadata services, names of the
        cluster (C(*.svc), C(*.svc.*), C(*.cluster.local)), and the default Service CIDR ranges of Kubernetes
        distributions.
    type: list
    elements: str
    default: []
"""

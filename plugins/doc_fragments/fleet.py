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
      - Files, folders and glob patterns with the C(modelplane.ai/v1alpha1) manifests of the fleet.
      - Of a folder, every C(*.yaml), C(*.yml) and C(*.json) file below it is read; hidden ones are skipped.
      - Manifests are data. Nothing in them is templated or executed.
    type: list
    elements: path
    required: true
  chdir:
    description:
      - The folder that relative paths start from, and that file names in messages are relative to.
      - Without it, that is the folder of the playbook.
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
      - How capacity is counted.
      - V(Devices) lets pods share a node as long as its devices last; V(Nodes) charges a whole node for every pod that
        claims a device.
    type: str
    choices: [Devices, Nodes]
    default: Devices
  search:
    description:
      - How hard a fit is searched.
      - V(Exact) tries other pools and devices when the first choice leads nowhere, and other places for replicas that
        are new in this run, within O(search_budget); V(Greedy) never takes a choice back.
    type: str
    choices: [Exact, Greedy]
    default: Exact
  search_budget:
    description:
      - What all searches of V(Exact) together may cost, in steps. A step is one choice that is tried, and takes about
        ten microseconds.
      - Half of the steps are divided equally among the namespaces with pending replicas, and then among their
        deployments. The other half is available to all deployments.
      - A replica that is refused because a search ended at this bound has that as a reason.
    type: int
    default: 1000000
  selector_budget:
    description:
      - What all CEL selectors of the fleet together may cost, in the units that Kubernetes counts. One selector costs
        about ten units on each kind of device, and at most a million.
      - If the selectors exceed the budget, it is divided equally among namespaces, and then among their deployments. A
        deployment whose selectors exceed its share keeps its replicas unchanged and gets no new replicas.
    type: int
    default: 100000000
  invalid:
    description:
      - What to do when manifests have errors.
      - V(fail) changes nothing and reports all errors.
      - V(hold) leaves everything that belongs to an invalid resource as it is, reports its errors as warnings, and goes
        on with the rest. A document of which it is unknown which resource it is fails in both cases.
    type: str
    choices: [fail, hold]
    default: fail
"""

    ENDPOINT_HOSTS = r"""
options:
  endpoint_hosts:
    description:
      - Hosts inside of the cluster or of its cloud that ModelEndpoints may lead to all the same. Each is a host
        (V(vllm.models.svc.cluster.local)), a suffix (V(*.models.svc.cluster.local)) or a CIDR (V(10.96.8.0/24)).
      - Refused without it are names and addresses of metadata services of clouds, names of the cluster
        (C(*.svc), C(*.svc.*), C(*.cluster.local)), and the ranges that Kubernetes distributions take for Services by
        default.
    type: list
    elements: str
    default: []
"""

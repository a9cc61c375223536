#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.cluster_check."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_check
short_description: Check existing clusters for problems with the serving stack and replicas
version_added: 0.1.0
description:
  - Checks existing clusters before anything is installed on them, and reports all findings together, each with its
    location and a hint.
  - An error prevents the serving stack or replicas from working. A warning is a problem that occurs later or under a
    condition, or a check that is not possible from outside the cluster.
  - The module checks the Kubernetes version, the nodes of each node pool with their labels and taints, the StorageClass
    of caches, and components that other tools installed. It also checks the Secrets of replicas, caches and gateways,
    the permissions of the credentials, published devices, load balancers, and, on OpenShift, the
    SecurityContextConstraints.
  - Components are checked with the rules of the role P(modelplane.fleet.serving_stack#role). Nothing is changed.
options:
  components:
    description:
      - The components of the serving stack, as C(serving_stack_components) of its role. If empty, components that other
        tools installed are not checked.
    type: list
    elements: dict
    default: []
  choices:
    description:
      - The serving stack variables of the cluster, in the format of the filter P(modelplane.fleet.stack_plan#filter).
        C(drivers) defaults to the drivers of the node pools.
    type: dict
    default: {}
  adopt:
    description: Components that the stack may adopt from other owners.
    type: list
    elements: str
    default: []
  stuck_after:
    description: Seconds after which a release with a pending operation is recovered.
    type: float
    default: 900
  recorded_in:
    description: A ConfigMap, in the format of O(modelplane.fleet.helm_release_info#module:recorded_in).
    type: str
  gateway_api_crds:
    description: The owner of the Gateway API CRDs, as C(serving_stack_gateway_api_crds) of the role.
    type: str
    choices: [chart, external]
    default: chart
  pull_secrets:
    description: The image pull secrets that pods of the serving stack refer to and that the role does not create.
    type: list
    elements: str
    default: []
  rights:
    description:
      - Objects of the API group C(rbac.authorization.k8s.io/v1). The credentials of the connection need the permissions
        that the bindings in this list grant to their subjects.
    type: list
    elements: dict
    default: []
  engine_constraint:
    description:
      - The SecurityContextConstraints that engines need on OpenShift. Empty if their images need none.
    type: str
    default: modelplane-engines
  grants:
    description:
      - Whether the caller applies RV(clusters[].engine_rights) next. If V(true), missing SecurityContextConstraints of
        engines are not an error.
    type: bool
    default: false
extends_documentation_fragment:
  - modelplane.fleet.clusters
  - modelplane.fleet.declared
  - modelplane.fleet.attributes.read_only
notes:
  - The module warns about objects that the credentials cannot read, and does not check them. Use administrator
    credentials.
seealso:
  - module: modelplane.fleet.cluster_info
  - module: modelplane.fleet.helm_release_info
"""

EXAMPLES = r"""
- name: Check a cluster
  modelplane.fleet.cluster_check:
    resources: [manifests/]
    clusters:
      - name: onprem
        kubeconfig: ~/.kube/onprem
    on_error: report
  register: checked

- name: Show the report
  ansible.builtin.debug:
    msg: "{{ checked.clusters.onprem.report }}"
"""

RETURN = r"""
clusters:
  description: The result of each cluster.
  returned: always
  type: dict
  contains:
    changed:
      description: Always V(false).
      type: bool
      returned: always
    failed:
      description: Whether the cluster could not be checked, or has errors.
      type: bool
      returned: always
    msg:
      description: The reason if the cluster could not be checked. Otherwise the errors, one line each.
      type: str
      returned: always
    findings:
      description: The findings, errors first.
      type: list
      elements: dict
      returned: when the cluster could be checked
      contains:
        severity:
          description: V(error) or V(warning).
          type: str
          returned: always
        check:
          description: The name of the check.
          type: str
          returned: always
        where:
          description: The object, the manifest field or the variable that the finding is about.
          type: str
          returned: always
        message:
          description: The problem.
          type: str
          returned: always
        hint:
          description: The fix.
          type: str
          returned: always
    report:
      description: The report as text, line by line.
      type: list
      elements: str
      returned: always
    installed:
      description: Whether releases of O(components) were installed before, according to O(recorded_in).
      type: bool
      returned: when the cluster could be checked
    openshift:
      description: Whether the cluster is an OpenShift cluster.
      type: bool
      returned: when the cluster could be checked
    engine_rights:
      description: On OpenShift, the ClusterRole that the RoleBindings of engines refer to, and its
        SecurityContextConstraints. Otherwise empty.
      type: list
      elements: dict
      returned: when the cluster could be checked
  sample:
    onprem:
      changed: false
      failed: true
      msg: >-
        spec.nodePools[0] (gpu): no node has the label modelplane.ai/pool=gpu, 4 or more are desired. Label the nodes of
        the pool (kubectl label node NAME modelplane.ai/pool=gpu), or correct the pool
      findings:
        - severity: error
          check: nodes
          where: spec.nodePools[0] (gpu)
          message: no node has the label modelplane.ai/pool=gpu, 4 or more are desired
          hint: Label the nodes of the pool (kubectl label node NAME modelplane.ai/pool=gpu), or correct the pool
      report:
        - "onprem: 1 error"
        - "  error: spec.nodePools[0] (gpu): no node has the label modelplane.ai/pool=gpu, 4 or more are desired"
        - "    Label the nodes of the pool (kubectl label node NAME modelplane.ai/pool=gpu), or correct the pool"
      openshift: false
      engine_rights: []
failed_clusters:
  description: The clusters that failed.
  returned: always
  type: list
  elements: str
  sample: [onprem]
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import (
    cluster_options,
    declared_resources,
    libraries,
    per_cluster,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments.manifests import prepare
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api, checks
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks import rights
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks.components import planned_stack
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks.finding import errors, report
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks.snapshot import Desired, Snapshot, desired_of
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.openshift import engine_rights
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.stack import Choices
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.expected import expected
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, identity, text
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import ApiError
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.observe import secret_keys
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.snapshot import take_snapshot

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **cluster_options.CLUSTERS,
        **declared_resources.ARGUMENTS,
        "components": {"type": "list", "elements": "dict", "default": []},
        "choices": {"type": "dict", "default": {}},
        "adopt": {"type": "list", "elements": "str", "default": []},
        "stuck_after": {"type": "float", "default": 900.0},
        "pull_secrets": {"type": "list", "elements": "str", "default": [], "no_log": False},
        "recorded_in": {"type": "str"},
        "gateway_api_crds": {"type": "str", "choices": ["chart", "external"], "default": "chart"},
        "rights": {"type": "list", "elements": "dict", "default": []},
        "engine_constraint": {"type": "str", "default": "modelplane-engines"},
        "grants": {"type": "bool", "default": False},
    },
    "supports_check_mode": True,
}
_KINDS = ("InferenceClass", "InferenceCluster", "InferenceGateway", "ModelCache", "ModelDeployment", "ModelEndpoint")
"""Kinds that determine the requirements of a cluster."""
_RUNNING = ("ModelCache", "ModelDeployment")


def work(module: AnsibleModule) -> None:
    """Run the module with its arguments, and exit with its result."""
    libraries.need(module, "urllib3")
    prepare(module)
    with per_cluster.reported_arguments(module):
        desired = _desired(module)

        def checked(client: Client) -> dict[str, Any]:
            initial_state = desired(client.name, None)
            snapshot = take_snapshot(client, initial_state, module.params["recorded_in"] or "")
            return _checked(snapshot, desired(client.name, snapshot) if module.params["components"] else initial_state)

        results = per_cluster.on_each(module, checked)
        for name, result in results.items():
            result.setdefault("report", [f"{name}: it could not be checked", f"  error: {result['msg']}"])
        per_cluster.end(module, results)


def _checked(snapshot: Snapshot, desired: Desired) -> dict[str, Any]:
    findings = checks.check(snapshot, desired)
    wrong = errors(findings)
    is_openshift = snapshot.openshift is not None
    return {
        "changed": False,
        "failed": bool(wrong),
        "msg": "\n".join(map(str, wrong)),
        "findings": [finding.wire() for finding in findings],
        "report": report(desired.name, findings),
        "installed": bool(snapshot.recorded),
        "openshift": is_openshift,
        "engine_rights": engine_rights(desired.engine_constraint) if is_openshift else [],
    }


def _desired(module: AnsibleModule) -> Callable[[str, Snapshot | None], Desired]:
    """Return a function that maps a cluster name to its desired state. Raise ArgumentsError.

    The desired state keeps the parts that a snapshot of the cluster requires."""
    params = module.params
    resources = _resources(module)
    bound_rights = rights.bound(params["rights"])
    control_secrets = _control_secrets(module, resources)

    def of(name: str, snapshot: Snapshot | None) -> Desired:
        plain = desired_of(name, resources)
        choices = {"drivers": plain.expected.drivers, **params["choices"]}
        planned, problems = planned_stack(params["components"], Choices(**choices), snapshot)
        return desired_of(
            name,
            resources,
            planned=planned,
            problems=problems,
            stuck_after=params["stuck_after"],
            adopt=params["adopt"],
            gateway_api_crds=params["gateway_api_crds"],
            driver_root=text(choices, "stack", "nvidiaDriverRoot"),
            control_secrets=control_secrets,
            pull_secrets=params["pull_secrets"],
            rights=rights.needed(bound_rights, plain.expected),
            engine_constraint=params["engine_constraint"],
            grants=params["grants"],
        )

    try:
        of("", None)
    except KeyError as error:
        raise cluster_options.ArgumentsError(f"components: one has no {error.args[0]}, which is required") from None
    except (TypeError, ValueError) as error:
        raise cluster_options.ArgumentsError(f"components or choices cannot be used: {error}") from None
    return of


def _control_secrets(module: AnsibleModule, resources: Sequence[Object]) -> dict[tuple[str, str], frozenset[str]]:
    """Return the keys of the readable Secrets on the control cluster that resources refer to."""
    with contextlib.suppress(ApiError), per_cluster.control_client(module) as control:
        if control is not None:
            return secret_keys(control, expected(resources).secrets)
    return {}


def _resources(module: AnsibleModule) -> list[Object]:
    """Return the resources on the control cluster, overridden by manifests."""
    declared = declared_resources.declared(module, _KINDS)
    resources_by_identity = {
        identity(value): value for value in (*declared.live, *map(api.wire, declared.loaded.resources))
    }
    for ref in declared.loaded.unusable:
        if ref.kind in _RUNNING:
            # The replicas of an invalid resource keep running, and keep their requirements.
            value = {
                "apiVersion": api.KINDS[ref.kind].group_version(),
                "kind": ref.kind,
                "metadata": {"namespace": ref.namespace, "name": ref.name},
            }
            resources_by_identity.setdefault(identity(value), value)
    return list(resources_by_identity.values())


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()

#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.wait_for_change."""

from __future__ import annotations

DOCUMENTATION = r"""
module: wait_for_change
short_description: Wait for a change of a fleet
version_added: 0.1.0
description:
  - Observes manifests and clusters periodically, and returns when something has changed. Unchanged fleets cause few
    requests. The playbook C(loop) uses this module.
  - Compares the inputs of a reconciliation, which are resources, workloads, routes and gateways. See
    M(modelplane.fleet.cluster_info).
  - Detects new values of Secrets on the control cluster, such as rotated API keys and provider keys, by the resource
    versions of these Secrets. The results do not contain the values.
options:
  since:
    description:
      - The RV(fingerprint) of an earlier call. If empty, the module observes once and returns.
    type: dict
    default: {}
  interval:
    description: Seconds between two observations.
    type: float
    default: 30
  max_wait:
    description: The maximum number of seconds to wait for a change.
    type: float
    default: 600
extends_documentation_fragment:
  - modelplane.fleet.observed
  - modelplane.fleet.clusters
  - modelplane.fleet.attributes.read_only
"""

EXAMPLES = r"""
- name: Wait for a change of manifests or replicas
  modelplane.fleet.wait_for_change:
    resources: [manifests/]
    clusters:
      - name: onprem
        kubeconfig: ~/.kube/onprem
    since: "{{ seen.fingerprint | default({}) }}"
  register: seen
"""

RETURN = r"""
changes:
  description: The changed parts, V(manifests), V(control) or V(cluster NAME). Empty after O(max_wait).
  returned: success
  type: list
  elements: str
  sample: [cluster onprem]
fingerprint:
  description: Digests of the current state, for O(since).
  returned: success
  type: dict
  sample: {manifests: 61ab05ae99c2d5a4b8f1, control: 0c1d2e3f405162738495, cluster onprem: 9b8a7c6d5e4f30211203}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import libraries
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments.cluster_options import (
    CLUSTERS,
    ArgumentsError,
    connections,
    control_connection,
    forks,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments.manifests import prepare
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.observe_fleet import (
    FleetSnapshot,
    observe_fleet,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import fleet_inputs, watch

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **CLUSTERS,
        "resources": {"type": "list", "elements": "path", "default": []},
        "chdir": {"type": "path"},
        "since": {"type": "dict", "default": {}},
        "interval": {"type": "float", "default": 30.0},
        "max_wait": {"type": "float", "default": 600.0},
    },
    "supports_check_mode": True,
}


def work(module: AnsibleModule) -> None:
    """Run the module with its arguments, and exit with its result."""
    libraries.need(module, "urllib3")
    prepare(module)
    params = module.params
    for name in ("interval", "max_wait"):
        if not 0 <= params[name] < float("inf"):
            module.fail_json(msg=f"{name} is {params[name]}, and must not be negative")
    try:
        reached, control, width = list(connections(params).values()), control_connection(params), forks(params)
    except ArgumentsError as error:
        module.fail_json(msg=str(error))

    def observe() -> FleetSnapshot:
        resources = [api.wire(resource) for resource in fleet_inputs.read_manifests(params["resources"]).resources]
        return observe_fleet(reached, control, resources, width=width, write_cache=not module.check_mode)

    current, changes = watch.wait(
        params["since"],
        params["resources"],
        observe,
        interval=params["interval"],
        timeout=params["max_wait"] if params["since"] else 0.0,
    )
    module.exit_json(changed=False, changes=changes, fingerprint=current)


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()

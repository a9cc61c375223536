#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.lease."""

from __future__ import annotations

DOCUMENTATION = r"""
module: lease
short_description: Lock a fleet so that only one run changes it
version_added: 0.1.0
description:
  - Acquires, renews or releases the lock of a fleet, a Lease in the namespace C(modelplane-system) of the control
    cluster.
  - If the holder does not renew a Lease for its duration, another run can take it over, as in Kubernetes leader
    election. A stale lock blocks the next run at most for this duration.
options:
  control:
    description: The connection to the control cluster.
    required: true
  holder:
    description:
      - A unique name for this run. The module prepends the host name.
    type: str
    required: true
  state:
    description:
      - V(held) acquires the Lease, or renews it if this holder has it.
      - V(released) releases the Lease. If another holder has the Lease, nothing happens.
    type: str
    choices: [held, released]
    default: held
  fleet:
    description: The name of the fleet.
    type: str
    default: default
  duration:
    description:
      - Seconds without renewal until other holders can take over the Lease. It must be longer than the longest step
        between two renewals.
    type: float
    default: 60
  wait:
    description:
      - Seconds to wait for another holder. Defaults to slightly more than O(duration), so that a stale lock is taken
        over.
    type: float
  create_namespace:
    description:
      - Whether to create the namespace of the Lease if it is missing. If V(false) and the namespace is missing, the
        fleet has no objects on the control cluster, and nothing is locked.
    type: bool
    default: true
extends_documentation_fragment:
  - modelplane.fleet.clusters.control
attributes:
  check_mode:
    support: full
    description: Acquires nothing, and returns the current holder of the Lease.
  diff_mode:
    support: none
    description: The Lease is not part of the desired state of the fleet.
  idempotent:
    support: full
    description: RV(ignore:changed) is always V(false) because a lock is temporary.
"""

EXAMPLES = r"""
- name: Acquire the lock
  modelplane.fleet.lease:
    control:
      kubeconfig: ~/.kube/control
    holder: nightly-4711

- name: Release the lock
  modelplane.fleet.lease:
    control:
      kubeconfig: ~/.kube/control
    holder: nightly-4711
    state: released
"""

RETURN = r"""
holder:
  description: The holder of the Lease. Empty if the Lease has no holder.
  returned: success
  type: str
  sample: runner-7/nightly-4711
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils import progress
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import libraries
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments.cluster_options import (
    CLUSTERS,
    LIMITS,
    ArgumentsError,
    control_connection,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.constants import SYSTEM_NAMESPACE
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import connect
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import ApiError
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.lease import (
    InUseError,
    Lease,
    acquire,
    holder_name,
    lease_name,
)

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        "control": {**CLUSTERS["control"], "required": True},
        "holder": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["held", "released"], "default": "held"},
        "fleet": {"type": "str", "default": "default"},
        "duration": {"type": "float", "default": 60.0},
        "wait": {"type": "float"},
        "create_namespace": {"type": "bool", "default": True},
        **LIMITS,
    },
    "supports_check_mode": True,
}


def work(module: AnsibleModule) -> None:
    """Run the module with its arguments, and exit with its result."""
    libraries.need(module, "urllib3")
    if module.params["duration"] < 1:
        module.fail_json(msg=f"duration is {module.params['duration']:g}, and must be at least 1")
    try:
        connection = control_connection(module.params)
        if connection is None:
            module.fail_json(msg="control is empty")
        with connect(connection, write_cache=not module.check_mode) as client:
            module.exit_json(changed=False, holder=_holder(module, client))
    except (ApiError, ArgumentsError, InUseError) as error:
        module.fail_json(msg=str(error))


def _holder(module: AnsibleModule, client: Client) -> str:
    params = module.params
    fleet, holder, duration = params["fleet"], holder_name(params["holder"]), params["duration"]
    lease = Lease(client, lease_name(fleet), SYSTEM_NAMESPACE, holder, duration)
    if module.check_mode:
        return lease.read_holder()
    if params["state"] == "released":
        lease.release()
        return lease.read_holder()
    if not params["create_namespace"] and client.get("v1", "Namespace", SYSTEM_NAMESPACE) is None:
        return ""
    return acquire(client, fleet, holder, duration, params["wait"], progress.of(module)).held_by


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()

#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.lease."""

from __future__ import annotations

DOCUMENTATION = r"""
module: lease
short_description: Let one run at a time change a fleet
version_added: 0.1.0
description:
  - Takes, renews or gives back the lock of a fleet, a Lease in the namespace C(modelplane-system) of the control
    cluster.
  - A Lease that its holder has not renewed for its duration is taken over, by the rules of leader election in
    Kubernetes. So a run that was killed blocks the next one no longer than that.
options:
  control:
    description: How the control cluster is reached.
    required: true
  holder:
    description:
      - A name for this run, which no other run has. The name of the machine is put before it.
    type: str
    required: true
  state:
    description:
      - V(held) takes the Lease, or renews it when this holder has it.
      - V(released) gives it back. Nothing happens when another holder has it.
    type: str
    choices: [held, released]
    default: held
  fleet:
    description: The name of the fleet.
    type: str
    default: default
  duration:
    description:
      - Seconds without renewal until others may take the Lease over. It has to be longer than the longest step between
        two renewals.
    type: float
    default: 60
  wait:
    description:
      - Seconds to wait for another holder. The default is somewhat longer than O(duration), so that the Lease of a run
        that was killed is taken over.
    type: float
  create_namespace:
    description:
      - Whether to make the namespace of the Lease where it is missing. Where it may not be made there is nothing of the
        fleet on the control cluster, and nothing is locked.
    type: bool
    default: true
extends_documentation_fragment:
  - modelplane.fleet.clusters.control
author:
  - The modelplane.fleet authors (@modelplane)
attributes:
  check_mode:
    support: full
    description: Nothing is taken, and the task says who holds the Lease.
  diff_mode:
    support: none
    description: The Lease is no part of what the fleet should be.
  idempotent:
    support: full
    description: RV(ignore:changed) is always V(false), as a lock changes nothing that lasts.
"""

EXAMPLES = r"""
- name: Take the lock
  modelplane.fleet.lease:
    control:
      kubeconfig: ~/.kube/control
    holder: nightly-4711

- name: Give it back
  modelplane.fleet.lease:
    control:
      kubeconfig: ~/.kube/control
    holder: nightly-4711
    state: released
"""

RETURN = r"""
holder:
  description: The holder of the Lease; empty when it is free.
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
    """Do what the arguments ask for, and end the module with the result."""
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

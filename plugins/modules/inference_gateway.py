#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.inference_gateway."""

from __future__ import annotations

DOCUMENTATION = r"""
module: inference_gateway
short_description: Wait for the fleet gateway and update its status
version_added: 0.1.0
description:
  - Waits until the gateway of the control cluster is accepted and has an address. Then it writes the status of the
    path-based InferenceGateway, in the same way as a run of the fleet.
  - The address is the IP address or host name in the status of the Gateway. If the gateway controller is only reachable
    through node ports, it is the address of a node with that port. A known address is kept until it is replaced.
  - Without a path-based InferenceGateway, the module does nothing.
options:
  state:
    description:
      - V(present) waits for the gateway. V(absent) writes the status of an uninstalled gateway, without an address.
    type: str
    choices: [present, absent]
    default: present
  wait:
    description:
      - Seconds to wait. If the gateway is not ready in time, the module writes its status and fails.
      - V(0) checks once. A gateway that is not ready is then not a failure.
    type: float
    default: 300
extends_documentation_fragment:
  - modelplane.fleet.declared
  - modelplane.fleet.clusters.control
attributes:
  check_mode:
    support: full
    description: The module checks once and writes nothing. A gateway that is not ready is not a failure.
  diff_mode:
    support: none
    description: The result contains the status.
  idempotent:
    support: full
    description: A second run sends no write request.
notes:
  - O(control) is required.
seealso:
  - module: modelplane.fleet.apply
  - module: modelplane.fleet.wait_ready
"""

EXAMPLES = r"""
- name: Wait for the fleet gateway
  modelplane.fleet.inference_gateway:
    control: {kubeconfig: ~/.kube/control}
    resources: [manifests/]
    wait: 600
  register: gateway

- name: Show the gateway address
  ansible.builtin.debug:
    var: gateway.address
"""

RETURN = r"""
address:
  description: The address for client requests to the fleet. Empty if the gateway has no address.
  returned: always
  type: str
  sample: 198.51.100.7
conditions:
  description: The conditions of the InferenceGateway.
  returned: when the fleet has an InferenceGateway
  type: list
  elements: dict
  sample:
    - {type: ControllerReady, status: "True", reason: ControllerHealthy}
    - {type: Ready, status: "True", reason: Available}
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import (
    cluster_options,
    declared_resources,
    libraries,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments.manifests import fail, prepare
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.inference_gateway import (
    CONTROL_CLUSTER_GATEWAY,
    InferenceGatewayStatus,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import parse
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.conditions import READY, Status
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.inference_gateway import (
    inference_gateway,
    removed_gateway,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, fields, number
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import connect
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import ApiError
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.observe_control import observe_gateway
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.statuses import apply_statuses
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.control_cluster import (
    declared_gateway,
    is_path_gateway,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import StoreError

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **declared_resources.ARGUMENTS,
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "wait": {"type": "float", "default": 300.0},
    },
    "supports_check_mode": True,
}
_KIND = "InferenceGateway"
_INTERVAL = 2.0


@dataclass(frozen=True)
class _Gateway:
    """An InferenceGateway: its copy on the control cluster, and its status."""

    live: Object | None
    status: Status[InferenceGatewayStatus]
    warnings: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        return self.status.fields.address or ""

    @property
    def finding(self) -> str:
        """Return the reason for an unusable gateway, or "" for a usable gateway."""
        ready = self.status.condition(READY)
        if ready is None or ready.status != "True":
            return ready.message if ready else ""
        return "" if self.address else _NO_ADDRESS


_NO_ADDRESS = (
    "it is accepted but has no address: its Service waits for a load balancer. Install one, set "
    "spec.traefik.loadBalancer of the InferenceGateway to MetalLB with a pool of addresses, or use node ports "
    "(control_plane_gateway_service: NodePort)"
)


def work(module: AnsibleModule) -> None:
    """Run the module with its arguments, and exit with its result."""
    libraries.need(module, "urllib3")
    prepare(module)
    loaded = declared_resources.manifests(module)
    try:
        control_options = cluster_options.control_connection(module.params)
        if control_options is None:
            module.fail_json(msg="control, the connection to the control cluster, is required", address="")
        if not 0 <= module.params["wait"] < float("inf"):
            module.fail_json(msg=f"wait is {module.params['wait']}, and must not be negative", address="")
        with connect(control_options, write_cache=not module.check_mode) as client:
            live = _copy(client)
            desired, __ = declared_gateway(loaded.resources, [live] if live else [])
            if desired is None and not (live and module.params["state"] == "absent"):
                module.exit_json(changed=False, address="")
            gateway_state = _waited(module, client, desired)
            _end(
                module,
                gateway_state,
                _write(client, gateway_state, check_mode=module.check_mode) if gateway_state.live else {},
            )
    except api.InvalidResource as error:
        fail(module, error.problems)
    except (ApiError, cluster_options.ArgumentsError, StoreError) as error:
        module.fail_json(msg=str(error), address="")


def _copy(client: Client) -> Object | None:
    """Return the copy of the InferenceGateway of the control cluster, or None without one."""
    live = client.get(api.KINDS[_KIND].group_version(), _KIND, CONTROL_CLUSTER_GATEWAY)
    return live if live and is_path_gateway(live) else None


def _waited(module: AnsibleModule, client: Client, gateway: api.InferenceGateway | None) -> _Gateway:
    """Return the state of a gateway once it is usable, or the last one after the timeout."""
    seconds = 0.0 if module.check_mode else module.params["wait"]
    deadline = time.monotonic() + seconds
    while True:
        client.forget_discovery()
        gateway_state = _observed(client, gateway, absent=module.params["state"] == "absent")
        if module.params["state"] == "absent" or not gateway_state.finding or time.monotonic() >= deadline:
            return gateway_state
        time.sleep(min(_INTERVAL, max(0.0, deadline - time.monotonic())))


def _observed(client: Client, gateway: api.InferenceGateway | None, *, absent: bool) -> _Gateway:
    live = _copy(client)
    previous = fields(live, "status") if live else None
    if absent or gateway is None:
        return _Gateway(live, removed_gateway(previous))
    objects, controller, warnings = observe_gateway(client, gateway)
    observed = parse({"control": {"objects": objects, "controller": controller}})
    status = inference_gateway(gateway, observed.control, observed.controller, previous=previous)
    return _Gateway(live, status, tuple(warnings))


def _wire(gateway_state: _Gateway) -> dict[str, Any]:
    """Return the status in its wire format."""
    timestamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    generation = number(gateway_state.live, "metadata", "generation") or None
    return gateway_state.status.wire(fields(gateway_state.live, "status"), generation, timestamp)


def _write(client: Client, gateway_state: _Gateway, *, check_mode: bool) -> Mapping[str, str]:
    """Write the status to the control cluster. Return `action` and `message` of the result, empty for none."""
    value = {
        "apiVersion": api.KINDS[_KIND].group_version(),
        "kind": _KIND,
        "metadata": {"name": CONTROL_CLUSTER_GATEWAY},
        "status": _wire(gateway_state),
    }
    results = apply_statuses(client, [value], check_mode=check_mode)
    return {"action": results[0].action, "message": results[0].message} if results else {}


def _end(module: AnsibleModule, gateway_state: _Gateway, status_result: Mapping[str, str]) -> None:
    for warning in gateway_state.warnings:
        module.warn(warning)
    result = {
        "changed": status_result.get("action") == "updated",
        "address": gateway_state.address,
        "conditions": _wire(gateway_state)["conditions"],
    }
    if status_result.get("action") == "failed":
        module.fail_json(msg=f"InferenceGateway {CONTROL_CLUSTER_GATEWAY}: {status_result['message']}", **result)
    waits = module.params["wait"] > 0 and not module.check_mode
    if gateway_state.finding and module.params["state"] == "present" and waits:
        module.fail_json(msg=f"The gateway of the fleet is not usable yet: {gateway_state.finding}", **result)
    module.exit_json(**result)


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()

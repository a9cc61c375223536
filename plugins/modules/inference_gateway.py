#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.inference_gateway."""

from __future__ import annotations

DOCUMENTATION = r"""
module: inference_gateway
short_description: Wait for the gateway of a fleet, and write its address into its status
version_added: 0.1.0
description:
  - Looks at the gateway of the control cluster until it is accepted and has an address, and writes the status of the
    InferenceGateway, just as a run of the fleet does.
  - The address is what the Gateway itself says, an IP address or a host name. Where its controller is reached through
    ports of nodes, it is the address of a node with that port. An address that is known stays while nothing else is.
  - Without an InferenceGateway there is nothing to do.
options:
  state:
    description:
      - V(absent) writes that there is no gateway, and no address, for when it was taken away.
    type: str
    choices: [present, absent]
    default: present
  wait:
    description:
      - Seconds to wait. A gateway that is not ready in time is a failure; its status is written all the same.
      - C(0) looks once, and a gateway that is not ready is no failure.
    type: float
    default: 300
extends_documentation_fragment:
  - modelplane.fleet.declared
  - modelplane.fleet.clusters.control
author:
  - The modelplane.fleet authors (@modelplane)
attributes:
  check_mode:
    support: full
    description: It looks once, writes nothing, and a gateway that is not ready is no failure.
  diff_mode:
    support: none
    description: The result has the status.
  idempotent:
    support: full
    description: The second run sends no write request.
notes:
  - O(control) is needed.
seealso:
  - module: modelplane.fleet.apply
  - module: modelplane.fleet.wait_ready
"""

EXAMPLES = r"""
- name: Wait for the gateway of the fleet
  modelplane.fleet.inference_gateway:
    control: {kubeconfig: ~/.kube/control}
    resources: [manifests/]
    wait: 600
  register: gateway

- name: Tell where it is
  ansible.builtin.debug:
    var: gateway.address
"""

RETURN = r"""
address:
  description: The address by which clients reach the fleet; empty while there is none.
  returned: always
  type: str
  sample: 198.51.100.7
conditions:
  description: What is said of the gateway, as the InferenceGateway has it.
  returned: when there is an InferenceGateway
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
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.inference_gateway import InferenceGatewayStatus
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
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.control_cluster import declared_gateway
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
_NAME = "default"
_LOOK_AGAIN = 2.0


@dataclass(frozen=True)
class _Look:
    """An InferenceGateway: its copy on the control cluster, and its status."""

    live: Object | None
    status: Status[InferenceGatewayStatus]
    warnings: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        return self.status.fields.address or ""

    @property
    def fault(self) -> str:
        """Return why it cannot be used yet; empty when it can."""
        ready = self.status.condition(READY)
        if ready is None or ready.status != "True":
            return ready.message if ready else ""
        return "" if self.address else _NO_ADDRESS


_NO_ADDRESS = (
    "it is accepted and has no address: its Service waits for a load balancer. Give the cluster one, set "
    "spec.traefik.loadBalancer of the InferenceGateway to MetalLB with a pool of addresses, or let ports of nodes lead "
    "to it (control_plane_gateway_service: NodePort)"
)


def work(module: AnsibleModule) -> None:
    """Do what the arguments ask for, and end the module with the result."""
    libraries.need(module, "kubernetes")
    prepare(module)
    loaded = declared_resources.manifests(module)
    try:
        given = cluster_options.control_connection(module.params)
        if given is None:
            module.fail_json(msg="control says how the control cluster is reached, and is needed", address="")
        if not 0 <= module.params["wait"] < float("inf"):
            module.fail_json(msg=f"wait is {module.params['wait']}, and must not be negative", address="")
        with connect(given, write_cache=not module.check_mode) as client:
            live = client.get(api.KINDS[_KIND].group_version(), _KIND, _NAME)
            desired, __ = declared_gateway(loaded.resources, [live] if live else [])
            if desired is None and not (live and module.params["state"] == "absent"):
                module.exit_json(changed=False, address="")
            look = _waited(module, client, desired)
            _end(module, look, _write(client, look, check_mode=module.check_mode) if look.live else {})
    except api.InvalidResource as error:
        fail(module, error.problems)
    except (ApiError, cluster_options.ArgumentsError, StoreError) as error:
        module.fail_json(msg=str(error), address="")


def _waited(module: AnsibleModule, client: Client, gateway: api.InferenceGateway | None) -> _Look:
    """The first look at a gateway that can be used, or the last one."""
    seconds = 0.0 if module.check_mode else module.params["wait"]
    deadline = time.monotonic() + seconds
    while True:
        client.forget_discovery()
        look = _look(client, gateway, absent=module.params["state"] == "absent")
        if module.params["state"] == "absent" or not look.fault or time.monotonic() >= deadline:
            return look
        time.sleep(min(_LOOK_AGAIN, max(0.0, deadline - time.monotonic())))


def _look(client: Client, gateway: api.InferenceGateway | None, *, absent: bool) -> _Look:
    live = client.get(api.KINDS[_KIND].group_version(), _KIND, _NAME)
    previous = fields(live, "status") if live else None
    if absent or gateway is None:
        return _Look(live, removed_gateway(previous))
    objects, controller, warnings = observe_gateway(client, gateway)
    observed = parse({"control": {"objects": objects, "controller": controller}})
    status = inference_gateway(gateway, observed.control, observed.controller, previous=previous)
    return _Look(live, status, tuple(warnings))


def _wire(look: _Look) -> dict[str, Any]:
    """The status in its written form."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    generation = number(look.live, "metadata", "generation") or None
    return look.status.wire(fields(look.live, "status"), generation, now)


def _write(client: Client, look: _Look, *, check_mode: bool) -> Mapping[str, str]:
    """Bring the status to the control cluster; what came of it, as `action` and `message`, empty for nothing."""
    value = {"apiVersion": api.KINDS[_KIND].group_version(), "kind": _KIND, "metadata": {"name": _NAME}}
    results = apply_statuses(client, [{**value, "status": _wire(look)}], check_mode=check_mode)
    return {"action": results[0].action, "message": results[0].message} if results else {}


def _end(module: AnsibleModule, look: _Look, written: Mapping[str, str]) -> None:
    for warning in look.warnings:
        module.warn(warning)
    result = {
        "changed": written.get("action") == "updated",
        "address": look.address,
        "conditions": _wire(look)["conditions"],
    }
    if written.get("action") == "failed":
        module.fail_json(msg=f"InferenceGateway {_NAME}: {written['message']}", **result)
    waits = module.params["wait"] > 0 and not module.check_mode
    if look.fault and module.params["state"] == "present" and waits:
        module.fail_json(msg=f"The gateway of the fleet cannot be used yet: {look.fault}", **result)
    module.exit_json(**result)


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()

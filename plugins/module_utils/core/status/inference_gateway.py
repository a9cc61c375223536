# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The status of an InferenceGateway: whether its controller runs and took the gateway, and its address."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import constants
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observed import (
    Component,
    Object,
    Objects,
    first_address,
    is_true,
    text,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.conditions import (
    Condition,
    Status,
    cut,
    earlier,
    hold,
    ready,
    unknown,
)

_CONTROLLER = "ControllerReady"


def inference_gateway(
    gateway: Object,
    control: Objects | None,
    controller: Component,
    *,
    previous: Mapping[str, Any] | None = None,
) -> Status:
    """The status of an InferenceGateway (wire form).

    `control` is what was seen on the control cluster, None when nobody looked. `controller` stands for all that is
    installed for the gateway. An address that was known stays until there is another one.
    """
    before = earlier(gateway, previous)
    seen = control.find("Gateway", constants.SYSTEM_NAMESPACE, constants.CONTROL_GATEWAY) if control else None
    address = first_address(seen) or text(before, "address")
    fields = {"address": address} if address else {}
    if control is None:
        message = "the control cluster has not been observed"
        return Status(tuple(hold(kind, before, unknown(kind, message)) for kind in (_CONTROLLER, "Ready")), fields)
    if not controller.ready:
        message = cut(controller.message) or "Waiting for the controller of the gateway"
        return Status((Condition(_CONTROLLER, "False", "Installing", message), ready(False, before, message)), fields)
    healthy = Condition(_CONTROLLER, "True", "ControllerHealthy", cut(controller.message))
    missing = _missing(control, seen)
    return Status((healthy, ready(not missing, before, "; ".join(missing))), fields)


def _missing(control: Objects, gateway: Object | None) -> list[str]:
    """What the controller still has to take."""
    missing = [
        f"CustomResourceDefinition {text(crd, 'metadata', 'name')} is not established yet"
        for crd in control.of_kind("CustomResourceDefinition")
        if text(crd, "spec", "group") == constants.GATEWAY_GROUP and not is_true(crd, "Established")
    ]
    name = f"{constants.SYSTEM_NAMESPACE}/{constants.CONTROL_GATEWAY}"
    if gateway is None:
        return [*missing, f"Gateway {name} is not there yet"]
    class_name = text(gateway, "spec", "gatewayClassName")
    if not is_true(control.find("GatewayClass", "", class_name), "Accepted"):
        missing.append(f"GatewayClass {class_name} is not accepted yet")
    if not is_true(gateway, "Accepted"):
        missing.append(f"Gateway {name} is not accepted yet")
    return missing

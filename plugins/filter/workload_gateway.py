# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The filter `modelplane.fleet.workload_gateway`."""

from __future__ import annotations

DOCUMENTATION = r"""
name: workload_gateway
author:
  - The modelplane.fleet authors
version_added: 0.1.0
short_description: Objects of a cluster's inference gateway
description:
  - Converts the gateway settings of the role P(modelplane.fleet.serving_stack#role) to the objects for Envoy Gateway.
    These are an EnvoyProxy, a GatewayClass and a Gateway, and the objects that Model gateways need.
  - Listeners are validated like the listeners of a ServingStack, and all errors are reported together.
options:
  _input:
    description:
      - C(class_name) of the GatewayClass, and C(listeners) in the format of a ServingStack.
      - C(replicas) of Envoy, and C(drain_timeout), the maximum seconds that a terminating Envoy pod keeps streams open.
      - C(annotations) and C(source_ranges) of the Service.
      - C(proxy), the C(spec) of the EnvoyProxy, which overrides the other settings.
      - C(image_registry), the mirror of docker.io, and C(image_pull_secrets).
      - C(endpoint_hosts), the internal hosts that endpoints can use. Proxies of a Model gateway can connect to the
        networks of these hosts.
      - C(model_gateway), whether a Model gateway replaces the path-based gateway. C(certificates), whether Model
        gateways send requests to the cluster. C(keepalive), whether policies configure Envoy to probe idle connections.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show a gateway with three pods
  ansible.builtin.debug:
    msg: "{{ {'class_name': 'envoy', 'replicas': 3} | modelplane.fleet.workload_gateway }}"
"""

RETURN = r"""
_value:
  description: The objects, without the labels and other metadata that identify them in later runs.
  type: list
  elements: dict
  returned: always
"""

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.modelplane.fleet.plugins.plugin_utils.plain import plain

_NAME = "modelplane.fleet.workload_gateway"
_LISTENERS = "spec.gateway."


def workload_gateway(choices: Any) -> list[dict[str, Any]]:
    """Return the objects of the gateway."""
    from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
    from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.workload_gateway import (
        GatewayChoices,
        gateway_objects,
        traffic_policies,
    )

    if not isinstance(choices, Mapping):
        raise AnsibleFilterError(f"{_NAME}: the input must be a mapping")
    try:
        values = plain(choices)
        # Templates make texts of numbers and truth values.
        numbers = {name: int(values[name]) for name in ("replicas", "drain_timeout") if values.get(name) is not None}
        flags = [name for name in ("model_gateway", "certificates", "keepalive") if name in values]
        truths = {name: str(values[name]).lower() == "true" for name in flags}
        settings = GatewayChoices(**{**values, **numbers, **truths})
        return [dict(gateway_object) for gateway_object in (*gateway_objects(settings), *traffic_policies(settings))]
    except api.InvalidResource as error:
        lines = [
            f"{problem.path.removeprefix(_LISTENERS)} {problem.message}{f'. {problem.hint}' if problem.hint else ''}"
            for problem in error.problems
        ]
        raise AnsibleFilterError("the gateway cannot be made:\n" + "\n".join(lines)) from None
    except (TypeError, ValueError) as error:
        raise AnsibleFilterError(f"{_NAME}: {error}") from None


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"workload_gateway": workload_gateway}

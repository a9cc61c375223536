# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The filter `modelplane.fleet.workload_gateway`."""

from __future__ import annotations

DOCUMENTATION = r"""
name: workload_gateway
author:
  - The modelplane.fleet authors
version_added: 0.1.0
short_description: The objects of the gateway of a workload cluster
description:
  - Turns what the role C(modelplane.fleet.serving_stack) knows of the gateway into the objects out of which Envoy
    Gateway makes it, an EnvoyProxy, a GatewayClass and a Gateway, and into what gateways in mode C(Model) need.
  - Listeners are checked as those of a ServingStack are, and all findings in them are reported at once.
options:
  _input:
    description:
      - C(class_name) of the GatewayClass; C(listeners), in the form of a ServingStack; C(replicas) of Envoy, and
        C(drain_timeout), the seconds that one which is going lets streams last; C(annotations) and C(source_ranges) of
        its Service; C(proxy), C(spec) of the EnvoyProxy, merged over what is made of the rest; C(image_registry), the
        mirror of docker.io, and C(image_pull_secrets); C(endpoint_hosts), internal hosts that endpoints may use, to
        whose networks proxies of a gateway in mode C(Model) may connect; C(model_gateway), whether a gateway in mode
        C(Model) takes its place, C(certificates), whether such gateways send requests to the cluster, and
        C(keepalive), whether policies make Envoy probe silent connections.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show a gateway of three pods
  ansible.builtin.debug:
    msg: "{{ {'class_name': 'envoy', 'replicas': 3} | modelplane.fleet.workload_gateway }}"
"""

RETURN = r"""
_value:
  description: The objects, each without what others need to find them again, such as labels.
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
    """The objects of the gateway."""
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

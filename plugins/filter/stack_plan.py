# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The filter `modelplane.fleet.stack_plan`."""

from __future__ import annotations

DOCUMENTATION = r"""
name: stack_plan
author:
  - The modelplane.fleet authors
version_added: 0.1.0
short_description: Plan the components of a serving stack
description:
  - Turns the components of the role C(modelplane.fleet.serving_stack), or others of the same format, and the variables
    of a cluster into Helm releases with charts and values, and, with the observed releases of the cluster, into the
    action for each.
  - All findings in the variables are reported together.
positional: choices
options:
  _input:
    description: The components.
    type: list
    elements: dict
    required: true
  choices:
    description:
      - C(states), C(versions) and C(values) by component; C(drivers) of the cluster's devices; C(stack), the C(spec) of
        its ServingStack; C(charts_dir), C(archives) (the names of the files in it), C(charts_required),
        C(chart_repositories), C(image_registries), C(image_pull_secrets); C(variables), the prefix of the names of
        variables in messages.
    type: dict
    required: true
  seen:
    description:
      - The result of M(modelplane.fleet.helm_release_info) for the cluster.
    type: dict
  stuck_after:
    description: Seconds after which a release with a pending operation is recovered.
    type: float
    default: 900
  adopt:
    description: Components that may be adopted from other owners.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Show the components that would be installed
  ansible.builtin.debug:
    msg: "{{ components | modelplane.fleet.stack_plan({'drivers': ['gpu.nvidia.com']}) | map(attribute='key') }}"
  vars:
    components:
      - key: lws
        wave: 1
        chart: lws
        source: oci://registry.k8s.io/lws/charts
        version: v0.8.0
        namespace: lws-system
"""

RETURN = r"""
_value:
  description:
    - Each component with C(state) and C(why) it is not installed, and, for a release, C(release), C(version), C(ref),
      C(repository) and C(values).
    - With O(seen), also C(action) (V(install), V(upgrade), V(recover), V(none), V(apply), V(skip), V(refuse)) and
      its message, C(told).
  type: list
  elements: dict
  returned: always
"""

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.modelplane.fleet.plugins.plugin_utils.plain import plain

_NAME = "modelplane.fleet.stack_plan"


def stack_plan(
    components: Any, choices: Any, seen: Any = None, stuck_after: float = 900.0, adopt: Any = ()
) -> list[dict[str, Any]]:
    """Return the plan of the components, with the action for each when `seen` is given."""
    from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.stack import (
        Choices,
        StackError,
        actions,
        plan,
    )

    if isinstance(components, (str, Mapping)) or not isinstance(choices, Mapping):
        raise AnsibleFilterError(f"{_NAME}: the input must be a list of components, the argument a mapping")
    try:
        chosen = Choices(**plain(choices))
        planned = plan(plain(components), chosen)
        if seen is None:
            return planned
        return actions(planned, plain(seen), float(stuck_after), plain(adopt), chosen.variables)
    except StackError as error:
        raise AnsibleFilterError(f"the variables of these components cannot be used:\n{error}") from None
    except (TypeError, KeyError, ValueError) as error:
        raise AnsibleFilterError(f"{_NAME}: {error}") from None


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"stack_plan": stack_plan}

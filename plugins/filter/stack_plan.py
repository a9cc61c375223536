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
  - Converts the components of the role P(modelplane.fleet.serving_stack#role), or components of the same format, and
    the variables of a cluster to Helm releases with charts and values. With the observed state of the cluster, it also
    returns the steps that install and remove them.
  - All errors in the variables are reported together.
positional: choices, observed
options:
  _input:
    description: The components. The items of their C(objects) can be JSON strings.
    type: list
    elements: dict
    required: true
  choices:
    description:
      - C(states), C(versions) and C(values) contain settings by component.
      - C(drivers) contains the DRA drivers of the cluster's devices. C(gateway_needs) contains the components that
        Model gateways need on the cluster, and C(keeps_needs) keeps the components of a removed gateway.
      - C(stack) is the C(spec) of the cluster's ServingStack.
      - C(charts_dir), C(archives) (the file names in that directory), C(charts_required), C(chart_repositories),
        C(image_registries) and C(image_pull_secrets) configure mirrors.
      - C(variables) is the prefix of the variable names in messages.
    type: dict
    required: true
  observed:
    description:
      - The result of M(modelplane.fleet.helm_release_info) for the cluster.
    type: dict
  stuck_after:
    description: Seconds after which a release with a pending operation is recovered.
    type: float
    default: 900
  adopt:
    description: Components that can be adopted from other owners.
    type: list
    elements: str
    default: []
  name:
    description: The name of the inventory of applied objects.
    type: str
    default: serving-stack
  foundation:
    description: Objects that all other objects need, such as namespaces with custom labels.
    type: list
    elements: dict
    default: []
"""

EXAMPLES = r"""
- name: Show the components that would be installed
  ansible.builtin.debug:
    msg: "{{ (components | modelplane.fleet.stack_plan({'drivers': ['gpu.nvidia.com']})).components }}"
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
  description: The plan.
  type: dict
  returned: always
  contains:
    components:
      description:
        - The components by key, in the order of waves, with C(state) and C(why) (the reason if the component is not
          installed). A Helm release also has C(release), C(version), C(ref), C(repository) and C(values).
        - With O(observed), a component also has C(action) (V(install), V(upgrade), V(recover), V(none), V(apply),
          V(skip), V(refuse)), C(message) (a description of the action), and C(installed) (the release, if this
          collection owns it).
      type: dict
      returned: always
    problems:
      description: The reasons why components are rejected. C(report) contains a line for each component.
      type: list
      elements: str
      returned: with O(observed)
    waves:
      description:
        - The waves with actions. C(apply) contains the component keys with objects to apply, C(release) the keys
          of releases to install or remove, and C(wait) the component keys to wait for.
        - C(base) contains the objects that are applied before all waves, C(objects) contains all applied objects.
          C(readiness) contains the arguments of M(modelplane.fleet.wait_ready) for a complete cluster.
        - C(hosts_gateway) is V(true) if a Model gateway replaces the path-based inference gateway. After the Model
          gateway is removed, the cluster needs a new plan.
        - C(needs_helm) is V(true) if a release is installed or removed. C(is_empty) is V(true) if nothing is desired or
          installed. C(credential_namespaces) contains the namespaces that need image pull secrets.
      type: list
      elements: dict
      returned: with O(observed)
    removal:
      description:
        - All component keys in the order of removal. C(needed) contains components that users' objects may
          need, C(orphans) contains objects that the components leave behind, and C(definition_groups) contains the API
          groups of CustomResourceDefinitions that the components leave behind.
      type: list
      elements: str
      returned: with O(observed)
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.modelplane.fleet.plugins.plugin_utils.plain import plain

_NAME = "modelplane.fleet.stack_plan"


def stack_plan(
    components: Any,
    choices: Any,
    observed: Any = None,
    stuck_after: float = 900.0,
    adopt: Any = (),
    name: str = "serving-stack",
    foundation: Any = (),
) -> dict[str, Any]:
    """Return the plan of the components, with `observed` as steps."""
    from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.stack import (
        GATEWAY,
        Choices,
        StackError,
        actions,
        plan,
        with_kept_needs,
    )
    from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.stack_steps import steps

    if isinstance(components, (str, Mapping)) or not isinstance(choices, Mapping):
        raise AnsibleFilterError(f"{_NAME}: the input must be a list of components, the argument a mapping")
    try:
        chosen = Choices(**plain(choices))
        known_components = [_with_objects(component, _read) for component in plain(components)]
        snapshot = plain(observed)
        if snapshot is not None:
            chosen = with_kept_needs(known_components, chosen, snapshot)
        planned = plan(known_components, chosen)
        if snapshot is None:
            return {"components": {entry["key"]: entry for entry in planned}}
        decided = actions(planned, snapshot, float(stuck_after), plain(adopt), chosen.variables)
        planned_steps = steps(decided, snapshot, chosen, str(name), plain(foundation))
    except StackError as error:
        raise AnsibleFilterError(f"the variables of these components cannot be used:\n{error}") from None
    except (TypeError, KeyError, ValueError) as error:
        raise AnsibleFilterError(f"{_NAME}: {error}") from None
    return {
        **_with_objects(planned_steps, _write),
        "hosts_gateway": GATEWAY in chosen.gateway_needs and not chosen.gateway_left,
        "base": _write(planned_steps["base"]),
        "readiness": _with_objects(planned_steps["readiness"], _write),
        "components": {key: _with_objects(component, _write) for key, component in planned_steps["components"].items()},
    }


def _with_objects(part: dict[str, Any], convert: Callable[[Iterable[Any]], list[Any]]) -> dict[str, Any]:
    return {**part, "objects": convert(part["objects"])} if isinstance(part.get("objects"), list) else part


def _read(objects: Iterable[Any]) -> list[Any]:
    return [json.loads(encoded) if isinstance(encoded, str) else encoded for encoded in objects]


def _write(objects: Iterable[Any]) -> list[Any]:
    return [json.dumps(kubernetes_object) for kubernetes_object in objects]


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"stack_plan": stack_plan}

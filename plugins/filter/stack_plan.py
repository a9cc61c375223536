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
    of a cluster into Helm releases with charts and values, and, with a snapshot of the cluster, into the steps that
    install and remove them.
  - All findings in the variables are reported together.
positional: choices, observed
options:
  _input:
    description: The components. Their C(objects) may be JSON text each.
    type: list
    elements: dict
    required: true
  choices:
    description:
      - C(states), C(versions) and C(values) by component; C(drivers) of the cluster's devices; C(gateway_needs), what
        gateways in mode C(Model) need there, and C(keeps_needs), whether that of a gateway which has left stays;
        C(stack), the C(spec) of its ServingStack; C(charts_dir), C(archives) (the names of the files in it),
        C(charts_required), C(chart_repositories), C(image_registries), C(image_pull_secrets); C(variables), the prefix
        of the names of variables in messages.
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
    description: Components that may be adopted from other owners.
    type: list
    elements: str
    default: []
  name:
    description: The name of the inventory of what is applied.
    type: str
    default: serving-stack
  foundation:
    description: Objects that all others need, such as namespaces with labels of their own.
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
        - Each component by its key, in the order of waves, with C(state) and C(why) it is not installed, and, of a
          release, C(release), C(version), C(ref), C(repository) and C(values).
        - With O(observed), also C(action) (V(install), V(upgrade), V(recover), V(none), V(apply), V(skip), V(refuse)),
          C(message) (a line about it), and C(installed), the release if it is ours.
      type: dict
      returned: always
    problems:
      description: Why components are refused. C(report) has a line for each component.
      type: list
      elements: str
      returned: with O(observed)
    waves:
      description:
        - Each wave in which something is done, with keys of components in C(apply) (their objects), C(release) (to
          install and remove) and C(wait) (until they are ready).
        - C(base) are the objects before all waves, C(objects) these and all others that are applied. C(readiness) has
          arguments of M(modelplane.fleet.wait_ready) for a cluster that has everything.
        - C(hosts_gateway) says whether a gateway in mode C(Model) has the place of the workload gateway. Once it is
          removed, the cluster needs another plan.
        - C(needs_helm) says whether a release is installed or removed, C(is_empty) whether nothing is desired or
          installed. C(credential_namespaces) are the namespaces where pods pull images.
      type: list
      elements: dict
      returned: with O(observed)
    removal:
      description:
        - Keys of all components in the order in which they are removed. C(needed) are those that objects of users may
          need, C(orphans) are objects that they leave behind, and C(definition_groups) the API groups of the
          CustomResourceDefinitions that they do.
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

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The filter `modelplane.fleet.chart_definitions`."""

from __future__ import annotations

DOCUMENTATION = r"""
name: chart_definitions
author:
  - The modelplane.fleet authors
version_added: 0.1.0
short_description: CustomResourceDefinitions in the output of helm show crds
description:
  - Returns the CustomResourceDefinitions (CRDs) in the output of C(helm show crds).
positional: without
options:
  _input:
    description: The output of C(helm show crds).
    type: str
    required: true
  without:
    description: API groups whose CRDs are omitted.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Show the CRDs of a chart
  ansible.builtin.debug:
    msg: "{{ shown.stdout | modelplane.fleet.chart_definitions(['gateway.networking.k8s.io']) }}"
"""

RETURN = r"""
_value:
  description: The CRDs.
  type: list
  elements: dict
  returned: always
"""

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError


def chart_definitions(shown: Any, without: Any = ()) -> list[dict[str, Any]]:
    """Return the CustomResourceDefinitions of a chart."""
    from ansible.module_utils.common.yaml import yaml_load_all
    from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import stack_steps

    if not isinstance(shown, str):
        raise AnsibleFilterError("modelplane.fleet.chart_definitions: the input must be the output of helm show crds")
    documents = yaml_load_all(stack_steps.separated(str(shown)))
    return stack_steps.definitions(documents, frozenset(map(str, without)))


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"chart_definitions": chart_definitions}

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The filter `modelplane.fleet.cloud_names`."""

from __future__ import annotations

DOCUMENTATION = r"""
name: cloud_names
author:
  - The modelplane.fleet authors
version_added: 0.1.0
short_description: Insert the names of supported clouds into a text
description:
  - Inserts the name of each supported cloud into a text, such as a variable name.
options:
  _input:
    description: The text, with C({}) as a placeholder for the cloud name.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Show the roles that create clusters
  ansible.builtin.debug:
    msg: "{{ 'modelplane.fleet.{}_cluster' | modelplane.fleet.cloud_names }}"
"""

RETURN = r"""
_value:
  description: One text for each cloud, in the order of registration.
  type: list
  elements: str
  returned: always
"""

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError


def cloud_names(text: Any) -> list[str]:
    """Return the text with the name of each cloud."""
    from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.registry import BY_NAME

    if not isinstance(text, str) or "{}" not in text:
        raise AnsibleFilterError("modelplane.fleet.cloud_names: the input must be a text with {} in it")
    return [text.replace("{}", name) for name in BY_NAME]


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"cloud_names": cloud_names}

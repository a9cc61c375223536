# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Options of modules for the cloud, its credentials, and waiting.

The argument specs are in `module_utils/cloud/registry.py` and `module_utils/cloud/waiting.py`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ansible.module_utils.common.yaml import yaml_dump, yaml_load
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.registry import BY_NAME

_FRAGMENTS = "ansible_collections.modelplane.fleet.plugins.doc_fragments"
_LOGINS = {name: import_module(f"{_FRAGMENTS}.{name}").ModuleDocFragment.ACCOUNT for name in BY_NAME}


def _documentation() -> dict[str, Any]:
    """Return the options of all clouds, each with its provider."""
    provider = {"description": "The cloud provider.", "type": "str", "choices": list(_LOGINS), "required": True}
    found: dict[str, Any] = {"options": {"provider": provider}}
    for name, documentation in _LOGINS.items():
        of_cloud = yaml_load(documentation)
        for option, described in of_cloud.pop("options").items():
            text = described["description"]
            listed = [text] if isinstance(text, str) else text
            found["options"][option] = {**described, "description": [*listed, f"Only for O(provider={name})."]}
        for key, lines in of_cloud.items():
            found[key] = list(dict.fromkeys([*found.get(key, ()), *lines]))
    return found


class ModuleDocFragment:
    """Options of modules that work in any of the clouds."""

    # Annotated, because ansible-test stops at assignments of anything but a literal.
    DOCUMENTATION: object = yaml_dump(_documentation())

    WAITING = r"""
options:
  wait:
    description:
      - Whether to wait until the cloud has finished. The module shows the progress with C(-v), and returns it in
        RV(waited).
    type: bool
    default: true
  wait_timeout:
    description:
      - The number of seconds to wait for each operation, or, in some clouds, for all orphaned resources. After this
        time the task fails, the operation in the cloud continues, and the next run resumes.
    type: int
    default: 2700
  wait_delay:
    description: Seconds between two checks.
    type: float
    default: 15
"""

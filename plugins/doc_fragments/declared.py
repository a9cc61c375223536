# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""How modules are told what is declared of a fleet; the argument spec is in `module_utils/declared.py`."""

from __future__ import annotations


class ModuleDocFragment:
    """Options of modules that read manifests where there are any."""

    DOCUMENTATION = r"""
options:
  resources:
    description:
      - Files, folders and glob patterns with the manifests of the fleet. Resources on the control cluster count as
        well, where there is one.
    type: list
    elements: path
    default: []
  chdir:
    description:
      - The folder that relative paths of O(resources) start from.
      - Without it, that is the folder of the playbook.
    type: path
requirements:
  - pydantic >= 2.10
  - PyYAML
"""

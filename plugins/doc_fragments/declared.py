# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Options that name the declared resources of a fleet; spec: `module_utils/arguments/declared_resources.py`."""

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
  invalid:
    description:
      - What to do when manifests have errors.
      - V(fail) reports all errors, and nothing else.
      - V(hold) reports them as warnings, and goes on with the rest. A document of which it is unknown which resource
        it is fails in both cases, as does a path at which there is nothing.
    type: str
    choices: [fail, hold]
    default: fail
requirements:
  - pydantic >= 2.10
  - PyYAML
"""

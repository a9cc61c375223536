# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Options for declared resources. The argument spec is in `module_utils/arguments/declared_resources.py`."""

from __future__ import annotations


class ModuleDocFragment:
    """Options of modules that can read manifests."""

    DOCUMENTATION = r"""
options:
  resources:
    description:
      - Files, directories and glob patterns with the manifests of the fleet. Resources on the control cluster are
        included if the fleet has a control cluster.
    type: list
    elements: path
    default: []
  chdir:
    description:
      - The base directory of relative paths in O(resources). Defaults to the directory of the playbook.
    type: path
  invalid:
    description:
      - The action for manifests with errors.
      - V(fail) reports only the errors.
      - V(hold) reports the errors as warnings, and continues with the other resources. A document whose resource cannot
        be identified, and a path that does not exist, fail the task in both cases.
    type: str
    choices: [fail, hold]
    default: fail
requirements:
  - pydantic >= 2.10
  - PyYAML
"""

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Options of modules that observe a fleet. The argument spec is in `module_utils/arguments/observed_fleet.py`."""

from __future__ import annotations


class ModuleDocFragment:
    """Options of modules that observe a fleet."""

    DOCUMENTATION = r"""
options:
  resources:
    description:
      - Files, directories and glob patterns with the manifests of the fleet, which determine what to observe. Resources
        on the control cluster are included.
      - Manifests with errors are skipped. M(modelplane.fleet.resource_info) reports the errors.
    type: list
    elements: path
    default: []
  chdir:
    description:
      - The base directory of relative paths. Defaults to the directory of the playbook.
    type: path
requirements:
  - pydantic >= 2.10
  - PyYAML
"""

    UNOBSERVED = r"""
options:
  others:
    description:
      - Names of other clusters of the fleet that are not part of this run, for example because of C(--limit).
      - They are recorded as unobserved, so that nothing on them changes.
    type: list
    elements: str
    default: []
  declared:
    description:
      - Names of other clusters of the fleet that are not observed because their objects are files (GitOps clusters).
      - They are recorded as declared, and count as ready. They take precedence over O(others).
    type: list
    elements: str
    default: []
"""

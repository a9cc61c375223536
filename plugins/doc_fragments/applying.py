# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Options of modules that apply objects to clusters."""

from __future__ import annotations


class ModuleDocFragment:
    """Options of modules that apply objects to clusters."""

    DOCUMENTATION = r"""
options:
  fleet:
    description:
      - The name of the fleet, a DNS label. Several fleets can share a cluster if their names differ and they have no
        object in common.
    type: str
    default: default
  force:
    description:
      - Whether to take ownership of fields from other managers that also apply an object, such as Argo CD or Helm. If
        V(false), such an object fails, and its message contains the manager and the field.
    type: bool
    default: false
  definitions:
    description:
      - Whether to install and upgrade the CustomResourceDefinitions of the fleet's kinds on the control cluster.
    type: bool
    default: true
  pending_api_groups:
    description:
      - API groups that another tool will install, such as the role P(modelplane.fleet.serving_stack#role).
      - In check mode, objects of their kinds count as created while the API server does not serve these groups.
    type: list
    elements: str
    default: []
"""

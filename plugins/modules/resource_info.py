#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.resource_info."""

from __future__ import annotations

DOCUMENTATION = r"""
module: resource_info
short_description: Validate the manifests of a fleet and list their resources
version_added: 0.1.0
description:
  - Reads all manifests, validates every document and its references to other documents, and reports all errors
    together. Each error contains file, line, document, field path, value and a hint. The errors include cluster
    settings that a cloud would reject.
  - Older formats of ModelDeployment are accepted, with a warning that contains the newer fields.
options:
  fail_on_error:
    description: Whether errors fail the task. If V(false), they are only in RV(errors).
    type: bool
    default: true
  prices:
    description: A file with the price catalog. If unset, budgets in a currency are not compared with prices of models.
    type: path
extends_documentation_fragment:
  - modelplane.fleet.fleet
  - modelplane.fleet.fleet.endpoint_hosts
  - modelplane.fleet.output
  - modelplane.fleet.attributes.read_only
"""

EXAMPLES = r"""
- name: Validate the manifests of the fleet
  modelplane.fleet.resource_info:
    resources:
      - manifests/
  register: manifests
"""

RETURN = r"""
shown:
  description: The resources as text, line by line.
  returned: unless O(output) is V(table) and O(query) is set
  type: list
  elements: str
  sample: ["InferenceCluster: us-west", "ModelDeployment: ml-team/qwen3-8b"]
document:
  description:
    - The other return values, or the result of O(query). C(docs/schemas/validate.json) describes the format.
  returned: when O(output) is V(json), or V(table) with O(query)
  type: raw
  sample: {schemaVersion: 1}
resources:
  description: The valid resources by kind.
  returned: success
  type: dict
  sample: {InferenceCluster: [us-west], ModelDeployment: [ml-team/qwen3-8b]}
errors:
  description: All errors, one line each.
  returned: always, if the manifests can be read
  type: list
  elements: str
  sample: []
warnings_found:
  description: All warnings, one line each.
  returned: success
  type: list
  elements: str
  sample: []
ignored:
  description: Documents of other API groups, which the module ignores.
  returned: success
  type: list
  elements: str
  sample: ["manifests/namespaces.yaml:1: v1 Namespace ml-team"]
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments.manifests import (
    ENDPOINT_HOSTS,
    RESOURCES,
    endpoint_hosts,
    fail,
    failures,
    prepare,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments.output import OUTPUT, check_query, shown
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.manifests import document, lines
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.model_prices import budget_problems
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import fleet_inputs

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **RESOURCES,
        **ENDPOINT_HOSTS,
        **OUTPUT,
        "fail_on_error": {"type": "bool", "default": True},
        "prices": {"type": "path"},
    },
    "supports_check_mode": True,
}


def work(module: AnsibleModule) -> None:
    """Run the module with its arguments, and exit with its result."""
    prepare(module)
    check_query(module)
    loaded = fleet_inputs.read_manifests(
        module.params["resources"], endpoint_hosts=endpoint_hosts(module), clouds="error", namespaces=True
    )
    if module.params["prices"]:
        with failures(module):
            catalogue = fleet_inputs.read_prices(module.params["prices"])
        loaded = loaded.with_problems(budget_problems(loaded.resources, catalogue))
    # Show all warnings, because other modules show only some and refer to this module.
    for problem in loaded.warnings:
        module.warn(str(problem))
    if loaded.errors and module.params["fail_on_error"]:
        fail(module, loaded.errors)
    resource_document = document(loaded)
    module.exit_json(
        changed=False,
        resources=resource_document.resources,
        errors=resource_document.errors,
        warnings_found=resource_document.warnings,
        ignored=resource_document.ignored,
        **shown(module, lines(resource_document), api.wire(resource_document)),
    )


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()

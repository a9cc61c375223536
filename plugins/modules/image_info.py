#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.image_info."""

from __future__ import annotations

DOCUMENTATION = r"""
module: image_info
short_description: Gather the container images of a fleet's resources
version_added: 0.1.0
description:
  - Returns the images of engines, and the images of a ModelDeployment that override fleet images.
  - Reads manifests, and the control cluster if O(control) is given. The images of both are returned because running and
    desired images may differ.
extends_documentation_fragment:
  - modelplane.fleet.declared
  - modelplane.fleet.clusters.control
  - modelplane.fleet.attributes.read_only
"""

EXAMPLES = r"""
- name: Gather the images of the fleet's resources
  modelplane.fleet.image_info:
    resources: [manifests/]
  register: engines

- name: Show the images
  ansible.builtin.debug:
    msg: "{{ engines.images | dict2items }}"
"""

RETURN = r"""
images:
  description: The images of each resource, with registry and tag or digest.
  returned: success
  type: dict
  sample: {ModelDeployment ml-team/qwen3-8b: ["docker.io/vllm/vllm-openai:v0.11.0"]}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import declared_resources, libraries
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments.manifests import prepare
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.images import in_object
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import text

ARGUMENTS: dict[str, Any] = {
    "argument_spec": declared_resources.ARGUMENTS,
    "supports_check_mode": True,
}
# Replicas may still run the images of their deployment before its last edit.
_KINDS = ("ModelDeployment", "ModelReplica")


def work(module: AnsibleModule) -> None:
    """Run the module with its arguments, and exit with its result."""
    prepare(module)
    if module.params["control"]:
        libraries.need(module, "urllib3")
    declared = declared_resources.declared(module, _KINDS)
    declared_objects = (api.wire(resource) for resource in declared.loaded.resources if resource.kind in _KINDS)
    images_by_object: dict[str, set[str]] = {}
    for value in (*declared_objects, *declared.live):
        object_name = "/".join(filter(None, (text(value, "metadata", "namespace"), text(value, "metadata", "name"))))
        # Arguments of engines name models, some of which resemble images.
        images_by_object.setdefault(f"{text(value, 'kind')} {object_name}", set()).update(in_object(value, texts=False))
    module.exit_json(
        changed=False, images={name: sorted(images) for name, images in sorted(images_by_object.items()) if images}
    )


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()

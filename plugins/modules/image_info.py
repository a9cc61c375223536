#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.image_info."""

from __future__ import annotations

DOCUMENTATION = r"""
module: image_info
short_description: The images that the resources of a fleet name
version_added: 0.2.0
description:
  - Tells the images of engines, and those that a ModelDeployment has in place of the fleet's own.
  - Reads manifests, and the control cluster when one is given. Images of both are told, as what runs and what is to
    run may differ.
options:
  resources:
    description: Files, folders and patterns with manifests.
    type: list
    elements: path
    default: []
  chdir:
    description: The folder that relative paths of O(resources) start from.
    type: path
extends_documentation_fragment:
  - modelplane.fleet.clusters.control
  - modelplane.fleet.attributes.read_only
requirements:
  - pydantic >= 2.10
  - PyYAML
author:
  - The modelplane.fleet authors (@modelplane)
"""

EXAMPLES = r"""
- name: See which images the models of the fleet need
  modelplane.fleet.image_info:
    resources: [manifests/]
  register: engines

- name: Tell
  ansible.builtin.debug:
    msg: "{{ engines.images | dict2items }}"
"""

RETURN = r"""
images:
  description: By resource, the images that it names, with registry and tag or digest.
  returned: success
  type: dict
  sample: {ModelDeployment ml-team/qwen3-8b: ["docker.io/vllm/vllm-openai:v0.11.0"]}
"""

import contextlib
from collections.abc import Iterable
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils import build, cluster_arguments, libraries
from ansible_collections.modelplane.fleet.plugins.module_utils.connections import OPTIONS
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.images import in_object
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observed import Object, text
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import connect
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import ApiError, NotServed
from ansible_collections.modelplane.fleet.plugins.module_utils.module import fail, prepare
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import StoreError

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        "resources": {"type": "list", "elements": "path", "default": []},
        "chdir": {"type": "path"},
        "control": {"type": "dict", "options": OPTIONS},
        "timeout": {"type": "float", "default": 30.0},
        "retries": {"type": "int", "default": 5},
    },
    "supports_check_mode": True,
}
# Replicas run on with what their deployment said before its last edit.
_KINDS = ("ModelDeployment", "ModelReplica")


def work(module: AnsibleModule) -> None:
    """Do what the arguments ask for, and end the module with the result."""
    prepare(module)
    loaded = build.read_manifests(module.params["resources"])
    if loaded.errors:
        fail(module, loaded.errors)
    values: list[Object] = [api.wire(resource) for resource in loaded.resources if resource.kind in _KINDS]
    if module.params["control"]:
        libraries.need(module, "kubernetes")
        try:
            control = cluster_arguments.control_connection(module.params)
            if control is not None:
                with connect(control, write_cache=not module.check_mode) as client:
                    values += _on_control(client)
        except (ApiError, cluster_arguments.ArgumentsError, StoreError) as error:
            module.fail_json(msg=str(error))
    found: dict[str, set[str]] = {}
    for value in values:
        place = "/".join(filter(None, (text(value, "metadata", "namespace"), text(value, "metadata", "name"))))
        # Arguments of engines name models, some of which look like images.
        found.setdefault(f"{text(value, 'kind')} {place}", set()).update(in_object(value, texts=False))
    module.exit_json(changed=False, images={name: sorted(images) for name, images in sorted(found.items()) if images})


def _on_control(client: Client) -> Iterable[Object]:
    """What the control cluster has of the kinds that name images."""
    for kind in _KINDS:
        # A control cluster without the definitions of the fleet's kinds has none.
        with contextlib.suppress(NotServed):
            for item in client.list(api.KINDS[kind].group_version(), kind).items:
                yield {"kind": kind, **item}


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()

#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.image_mirror."""

from __future__ import annotations

DOCUMENTATION = r"""
module: image_mirror
short_description: Mirror container images to another registry
version_added: 0.1.0
description:
  - Compares images with their copies in another registry, and copies missing or different images unmodified, with all
    their architectures.
  - Runs crane or skopeo on the host of the task. The module neither reads nor writes the user's registry credentials.
requirements:
  - crane or skopeo
options:
  images:
    description: The images, as returned by P(modelplane.fleet.mirror_needs#filter).
    type: list
    elements: dict
    required: true
    suboptions:
      image:
        description: The name of the image, for messages.
        type: str
        required: true
      source:
        description: The source image, with tag or digest.
        type: str
        required: true
      repository:
        description: The repository of O(images[].source), without tag and digest.
        type: str
        required: true
      destination:
        description: The target image, with a tag. If empty, the image is not copied.
        type: str
        default: ""
      used_by:
        description: Ignored. Accepted because the filter returns it.
        type: list
        elements: str
      use:
        description: Ignored. Accepted because the filter returns it.
        type: str
  tool:
    description: The path of the C(crane) or C(skopeo) executable. Defaults to the first of them in E(PATH).
    type: path
extends_documentation_fragment:
  - modelplane.fleet.mirror
"""

EXAMPLES = r"""
- name: Copy an image to a private registry
  modelplane.fleet.image_mirror:
    images:
      - image: registry.k8s.io/lws/lws:v0.8.0
        source: registry.k8s.io/lws/lws:v0.8.0
        repository: registry.k8s.io/lws/lws
        destination: mirror.example/fleet/registry.k8s.io/lws/lws:v0.8.0
    registry_config: "{{ lookup('ansible.builtin.file', 'logins.json') }}"
"""

RETURN = r"""
actions:
  description: The images that were copied or, in check mode, would be copied, with their targets, one line each.
  returned: always
  type: list
  elements: str
  sample: ["registry.k8s.io/lws/lws:v0.8.0 copied to mirror.example/fleet/registry.k8s.io/lws/lws:v0.8.0"]
problems:
  description: The images that could not be read or copied, with the reason, one line each.
  returned: always
  type: list
  elements: str
  sample: []
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments.libraries import need
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.mirror_commands import Image, MirrorError
from ansible_collections.modelplane.fleet.plugins.module_utils.mirror.images import Copied, copy, tool
from ansible_collections.modelplane.fleet.plugins.module_utils.mirror.programs import ARGUMENTS as SHARED
from ansible_collections.modelplane.fleet.plugins.module_utils.mirror.programs import Workspace, end, workspace

_TEXT: dict[str, Any] = {"type": "str", "required": True}
_IMAGE: dict[str, Any] = {
    **dict.fromkeys(("image", "source", "repository"), _TEXT),
    "destination": {"type": "str", "default": ""},
    "used_by": {"type": "list", "elements": "str"},
    "use": {"type": "str"},
}
ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **SHARED,
        "images": {"type": "list", "elements": "dict", "required": True, "options": _IMAGE},
        "tool": {"type": "path"},
    },
    "supports_check_mode": True,
}


def work(module: AnsibleModule) -> None:
    """Run the module with its arguments, and exit with its result."""
    need(module, "PyYAML")
    names = ("image", "source", "repository", "destination")
    images = [Image(*(entry[name] for name in names)) for entry in module.params["images"] if entry["destination"]]
    copied: list[Copied] = []
    problems: list[str] = []
    with workspace(module) as space:
        try:
            copied = _copied(module, space, images) if images else []
        except MirrorError as error:
            problems = [str(error)]
    changes = [entry for entry in copied if entry.changed]
    done = "would be copied" if module.check_mode else "copied"
    end(
        module,
        actions=[f"{entry.image.image} {done} to {entry.image.destination}" for entry in changes],
        problems=problems + [entry.problem for entry in copied if entry.problem],
        before="".join(f"{entry.image.destination} {entry.previous_digest or '-'}\n" for entry in changes),
        after="".join(f"{entry.image.destination} {entry.current_digest}\n" for entry in changes),
    )


def _copied(module: AnsibleModule, space: Workspace, images: list[Image]) -> list[Copied]:
    params = module.params
    program = tool(
        space, params["tool"] or "", images, plain=params["plain_http"], sources_plain=params["sources_plain_http"]
    )
    return copy(space, program, images, check_mode=module.check_mode, forks=params["forks"], log=module.log)


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()

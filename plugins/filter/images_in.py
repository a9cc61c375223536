# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The filter `modelplane.fleet.images_in`."""

from __future__ import annotations

DOCUMENTATION = r"""
name: images_in
author:
  - The modelplane.fleet authors
version_added: 0.1.0
short_description: Container images in manifests
description:
  - Finds container images in manifests that C(helm template) renders, and in objects and values of charts. Searches the
    key C(image) at any depth, and arguments, variables and configuration.
  - CustomResourceDefinitions and metadata are skipped.
options:
  _input:
    description: Manifests as text, or an object, or a list of objects.
    type: raw
    required: true
"""

EXAMPLES = r"""
- name: Show the images of an object
  ansible.builtin.debug:
    msg: "{{ pod | modelplane.fleet.images_in }}"
  vars:
    pod: {spec: {containers: [{name: web, image: nginx, args: [--sidecar=ghcr.io/acme/sidecar:v1]}]}}
"""

RETURN = r"""
_value:
  description: The image references, with registry and tag or digest, sorted.
  type: list
  elements: str
  returned: always
  sample: ["docker.io/library/nginx:latest", "ghcr.io/acme/sidecar:v1"]
"""

from collections.abc import Callable
from typing import Any

from ansible_collections.modelplane.fleet.plugins.plugin_utils.plain import plain


def images_in(value: Any) -> list[str]:
    """Return the images in manifests."""
    from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.images import in_manifests, in_object

    return sorted(in_manifests(str(value)) if isinstance(value, str) else in_object(plain(value)))


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"images_in": images_in}

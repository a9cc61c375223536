# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The filter `modelplane.fleet.mirror_needs`."""

from __future__ import annotations

DOCUMENTATION = r"""
name: mirror_needs
author:
  - The modelplane.fleet authors
version_added: 0.1.0
short_description: All that a fleet needs from outside, and where copies of it go
description:
  - Makes one list of charts and images, and the variables that make a fleet use the copies.
positional: found, places, unnamed, own, exclude
options:
  _input:
    description: Charts as P(modelplane.fleet.mirror_charts#filter) returns them.
    type: list
    elements: dict
    required: true
  found:
    description: References to images by what names them.
    type: dict
    required: true
  resources:
    description: RV(modelplane.fleet.image_info#module:images), images by the resource that names them.
    type: dict
    default: {}
  places:
    description:
      - C(sources) (registry, what to ask in its place), and for the copies C(charts_dir), C(chart_registry),
        C(image_registry) (a host and a folder, below which each registry has a folder) and C(image_registries)
        (registry, place of its copies).
    type: dict
    default: {}
  unnamed:
    description: Chart, version, and the images that it makes run without naming them.
    type: dict
    default: {}
  own:
    description: What C(fleet_images) says.
    type: dict
    default: {}
  exclude:
    description: Images that are not needed.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Say what has to be copied
  ansible.builtin.debug:
    msg: "{{ charts | modelplane.fleet.mirror_needs({'lws v0.8.0': ['registry.k8s.io/lws/lws:v0.8.0']}, places) }}"
  vars:
    charts: "{{ hostvars | modelplane.fleet.mirror_charts(groups['workload_clusters'], serving_stack_components) }}"
    places: {image_registry: mirror.example/fleet}
"""

RETURN = r"""
_value:
  description: The list.
  type: dict
  returned: always
  contains:
    charts:
      description: Each archive with C(chart), C(version), C(source), C(file) and C(destination).
      type: list
      elements: dict
    images:
      description:
        - Each image with C(image) (its name), C(used_by), C(source) and C(destination) of a copy, and C(use) (its name
          from then on).
      type: list
      elements: dict
    variables:
      description: What to set, so that the copies are used.
      type: dict
    manifests:
      description: Images that manifests of the fleet name, and what to write in their place.
      type: dict
    problems:
      description: What is missing in the list, a line each.
      type: list
      elements: str
    list:
      description: All of the above, in this order.
      type: dict
    report:
      description: The list for people, line by line.
      type: list
      elements: str
"""

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.modelplane.fleet.plugins.plugin_utils.plain import plain

_NAME = "modelplane.fleet.mirror_needs"


def mirror_needs(
    charts: Any,
    found: Any,
    places: Any = None,
    unnamed: Any = None,
    own: Any = None,
    exclude: Any = (),
    resources: Any = None,
) -> dict[str, Any]:
    """All that a fleet needs."""
    from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.mirror import (
        LISTED,
        MANIFEST,
        Locations,
        needs,
        report,
    )

    if isinstance(charts, (str, Mapping)) or not isinstance(found, Mapping):
        raise AnsibleFilterError(f"{_NAME}: the input must be a list of charts, the argument a mapping")
    try:
        needed = needs(
            plain(charts),
            {**plain(found), **{f"{MANIFEST}{name}": images for name, images in plain(resources or {}).items()}},
            Locations(**plain(places or {})),
            unnamed=plain(unnamed or {}),
            fleet_images=plain(own or {}),
            exclude=plain(exclude),
        )
    except (TypeError, KeyError) as error:
        raise AnsibleFilterError(f"{_NAME}: {error}") from None
    return {**needed, "list": {name: needed[name] for name in LISTED}, "report": report(needed)}


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"mirror_needs": mirror_needs}

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The filter `modelplane.fleet.mirror_needs`."""

from __future__ import annotations

DOCUMENTATION = r"""
name: mirror_needs
author:
  - The modelplane.fleet authors
version_added: 0.1.0
short_description: Charts and images to mirror for a fleet
description:
  - Returns a list of all charts and images that a fleet pulls, and the variables that configure the mirror.
positional: found, places, unnamed, own, exclude
options:
  _input:
    description: The charts, as returned by P(modelplane.fleet.mirror_charts#filter).
    type: list
    elements: dict
    required: true
  found:
    description: The image references, by the chart or component that uses them.
    type: dict
    required: true
  resources:
    description: The images by resource, as in RV(modelplane.fleet.image_info#module:images).
    type: dict
    default: {}
  places:
    description:
      - C(sources) (replacement URLs by registry), and for the copies C(charts_dir), C(chart_registry),
        C(image_registry) (a host and a path, below which each registry has a path) and C(image_registries) (targets of
        copies by registry).
    type: dict
    default: {}
  unnamed:
    description: Images that a chart runs without a reference in its manifests, by chart and version.
    type: dict
    default: {}
  own:
    description: The value of C(fleet_images).
    type: dict
    default: {}
  exclude:
    description: Images to omit.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Show the charts and images to copy
  ansible.builtin.debug:
    msg: "{{ charts | modelplane.fleet.mirror_needs({'lws v0.8.0': ['registry.k8s.io/lws/lws:v0.8.0']}, places) }}"
  vars:
    charts: "{{ hostvars | modelplane.fleet.mirror_charts(groups['workload_clusters'], serving_stack_components) }}"
    places: {image_registry: mirror.example/fleet}
"""

RETURN = r"""
_value:
  description: The charts and images to mirror.
  type: dict
  returned: always
  contains:
    charts:
      description: The archives, each with C(chart), C(version), C(source), C(file) and C(destination).
      type: list
      elements: dict
    images:
      description:
        - The images, each with C(image) (the image name), C(used_by), C(source) and C(destination) of the copy, and
          C(use) (the image name with the mirror).
      type: list
      elements: dict
    variables:
      description: The variables to set, so that the fleet uses the mirror.
      type: dict
    manifests:
      description: The images in manifests of the fleet, with their replacements.
      type: dict
    problems:
      description: Missing parts of the list, one line each.
      type: list
      elements: str
    list:
      description: All of these values, in this order.
      type: dict
    report:
      description: The list as a table, line by line.
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
    """Return all images and charts that a fleet needs."""
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
        fleet_needs = needs(
            plain(charts),
            {**plain(found), **{f"{MANIFEST}{name}": images for name, images in plain(resources or {}).items()}},
            Locations(**plain(places or {})),
            unnamed=plain(unnamed or {}),
            fleet_images=plain(own or {}),
            exclude=plain(exclude),
        )
    except (TypeError, KeyError) as error:
        raise AnsibleFilterError(f"{_NAME}: {error}") from None
    return {**fleet_needs, "list": {name: fleet_needs[name] for name in LISTED}, "report": report(fleet_needs)}


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"mirror_needs": mirror_needs}

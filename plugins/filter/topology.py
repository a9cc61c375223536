# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The filter `modelplane.fleet.topology`."""

from __future__ import annotations

DOCUMENTATION = r"""
name: topology
author:
  - The modelplane.fleet authors
version_added: 0.1.0
short_description: Nodes and GPUs that a parallelism topology takes
description:
  - Derives from the parallelism axes of one worker how many nodes it spans and how many GPUs it takes.
  - The axes multiply. Nodes per worker are C(pipeline * data / dataLocal), GPUs per node are C(tensor * dataLocal).
notes:
  - Leaving C(dataLocal) out while giving C(data) puts every data-parallel rank on a node of its own.
options:
  _input:
    description:
      - The axes, each a whole number of at least 1.
      - C(tensor) is required. C(pipeline), C(data) and C(dataLocal) are V(1) by default, and C(dataLocal) must divide
        C(data).
      - A worker spans at most 64 nodes with at most 64 GPUs each.
    type: dict
    required: true
seealso:
  - plugin: modelplane.fleet.engines
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Show what a model over two nodes takes
  ansible.builtin.debug:
    msg: >-
      {{ shape.nodes_per_worker }} nodes with {{ shape.gpus_per_node }} GPUs each
  vars:
    shape: "{{ {'tensor': 8, 'pipeline': 2} | modelplane.fleet.topology }}"
# 2 nodes with 8 GPUs each

- name: Count the GPUs of sixteen data-parallel ranks, eight on a node
  ansible.builtin.debug:
    msg: "{{ ({'tensor': 1, 'data': 16, 'dataLocal': 8} | modelplane.fleet.topology).gpus_per_worker }}"
# 16
"""

RETURN = r"""
_value:
  description: What one worker takes.
  type: dict
  returned: always
  sample: {nodes_per_worker: 2, gpus_per_node: 8, gpus_per_worker: 16}
  contains:
    nodes_per_worker:
      description: How many nodes a worker spans.
      type: int
      sample: 2
    gpus_per_node:
      description: How many GPUs it takes on each of them.
      type: int
      sample: 8
    gpus_per_worker:
      description: How many GPUs it takes in all.
      type: int
      sample: 16
"""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from ansible.errors import AnsibleFilterError


def topology(axes: Any) -> dict[str, int]:
    """Nodes and GPUs of one worker."""
    from ansible_collections.modelplane.fleet.plugins.module_utils.core.topology import TopologyError, derive

    try:
        return asdict(derive(axes))
    except TopologyError as error:
        reasons = "\n".join(f"- {problem}" for problem in error.problems)
        raise AnsibleFilterError(f"modelplane.fleet.topology: this topology cannot be built:\n{reasons}") from None


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"topology": topology}

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The filter `modelplane.fleet.topology`."""

from __future__ import annotations

DOCUMENTATION = r"""
name: topology
author:
  - The modelplane.fleet authors
version_added: 0.1.0
short_description: Number of nodes and GPUs of a parallelism topology
description:
  - Returns the number of nodes and GPUs of one worker, from its parallelism axes.
  - The number of nodes is C(pipeline * data / dataLocal). The number of GPUs per node is C(tensor * dataLocal).
notes:
  - If C(data) is set and C(dataLocal) is not, each data-parallel rank uses a separate node.
options:
  _input:
    description:
      - The axes. Each value is an integer of at least 1.
      - C(tensor) is required. C(pipeline), C(data) and C(dataLocal) default to V(1). C(dataLocal) must divide C(data).
      - A worker spans at most 64 nodes with at most 64 GPUs each.
    type: dict
    required: true
seealso:
  - plugin: modelplane.fleet.engines
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Show the nodes of a two-node model
  ansible.builtin.debug:
    msg: >-
      {{ shape.nodes_per_worker }} nodes with {{ shape.gpus_per_node }} GPUs each
  vars:
    shape: "{{ {'tensor': 8, 'pipeline': 2} | modelplane.fleet.topology }}"
# 2 nodes with 8 GPUs each

- name: Count the GPUs of sixteen data-parallel ranks
  ansible.builtin.debug:
    msg: "{{ ({'tensor': 1, 'data': 16, 'dataLocal': 8} | modelplane.fleet.topology).gpus_per_worker }}"
# 16
"""

RETURN = r"""
_value:
  description: The resources of one worker.
  type: dict
  returned: always
  sample: {nodes_per_worker: 2, gpus_per_node: 8, gpus_per_worker: 16}
  contains:
    nodes_per_worker:
      description: The number of nodes of a worker.
      type: int
      sample: 2
    gpus_per_node:
      description: The number of GPUs on each node.
      type: int
      sample: 8
    gpus_per_worker:
      description: The total number of GPUs of a worker.
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

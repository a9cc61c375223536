# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The filter `modelplane.fleet.engines`."""

from __future__ import annotations

DOCUMENTATION = r"""
name: engines
author:
  - The modelplane.fleet authors
version_added: 0.1.0
short_description: Engines of a ModelDeployment in canonical format
description:
  - Returns the engines of a ModelDeployment in canonical format, as in C(spec.template.spec.engines).
  - Converts older formats. These are C(spec.engines) directly under C(spec), and C(spec.workers) with a C(topology),
    with or without C(spec.prefill).
notes:
  - The filter converts only the format. Use the modules of this collection to validate a deployment.
options:
  _input:
    description: A ModelDeployment in any supported format.
    type: dict
    required: true
seealso:
  - plugin: modelplane.fleet.topology
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Show the member roles of a deployment
  ansible.builtin.debug:
    msg: "{{ (deployment | modelplane.fleet.engines | first).members | map(attribute='role') }}"
  vars:
    deployment:
      apiVersion: modelplane.ai/v1alpha1
      kind: ModelDeployment
      metadata:
        name: big
        namespace: team-a
      spec:
        replicas: 1
        nodeSelector:
          devices:
            - name: gpu
              selectors:
                - cel: device.driver == "gpu.nvidia.com"
        workers:
          topology:
            tensor: 8
            pipeline: 2
          template:
            containers:
              - name: engine
                image: vllm/vllm-openai:v0.18.0
                args: ["--model=Qwen/Qwen3-Coder-480B-A35B-Instruct"]
# ['Leader', 'Worker']
"""

RETURN = r"""
_value:
  description: The engines in canonical format.
  type: list
  elements: dict
  returned: always
  sample:
    - name: main
      copies: 1
      members:
        - role: Standalone
          nodeSelector:
            devices:
              - name: gpu
                count: 1
                selectors:
                  - cel: device.driver == "gpu.nvidia.com"
          template:
            spec:
              containers:
                - name: engine
                  image: vllm/vllm-openai:v0.18.0
                  args: ["--model=Qwen/Qwen3-8B"]
"""

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError


def engines(deployment: Any) -> list[Any]:
    """Return the canonical engines of a ModelDeployment."""
    from ansible_collections.modelplane.fleet.plugins.module_utils.core.conversion import ConversionError, canonical
    from ansible_collections.modelplane.fleet.plugins.plugin_utils.plain import plain

    if not isinstance(deployment, Mapping) or deployment.get("kind") != "ModelDeployment":
        raise AnsibleFilterError(
            "modelplane.fleet.engines: the input must be a ModelDeployment (a mapping of that kind)"
        )
    try:
        node: Any = canonical(plain(deployment)).document
    except ConversionError as error:
        reasons = "\n".join(f"- {problem}" for problem in error.problems)
        raise AnsibleFilterError(f"modelplane.fleet.engines: the deployment is not valid:\n{reasons}") from None
    for key in ("spec", "template", "spec", "engines"):
        node = node.get(key) if isinstance(node, dict) else None
    if not isinstance(node, list):
        raise AnsibleFilterError(
            "modelplane.fleet.engines: the deployment has no engines: give a list at spec.template.spec.engines"
        )
    return node


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"engines": engines}

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The filter `modelplane.fleet.aws_error`."""

from __future__ import annotations

DOCUMENTATION = r"""
name: aws_error
author:
  - The modelplane.fleet authors
version_added: 0.1.0
short_description: What went wrong in a task of amazon.aws, and what to do
description:
  - Turns the result of a task that failed into a text for people. Modules of this collection say themselves what to do.
options:
  _input:
    description: The result of the task, as C(ansible_failed_result) has it.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Make a VPC
  block:
    - name: Make it
      amazon.aws.ec2_vpc_net:
        name: it
        cidr_block: [10.0.0.0/16]
        region: us-west-2
  rescue:
    - name: Say what to do
      ansible.builtin.fail:
        msg: "{{ ansible_failed_result | modelplane.fleet.aws_error }}"
"""

RETURN = r"""
_value:
  description: One line for each item that failed.
  type: str
  returned: always
  sample: >-
    Failed to create vpc: An error occurred (VpcLimitExceeded) when calling the CreateVpc operation: The maximum number
    of VPCs has been reached. Remove VPCs that are not used, or ask for a higher quota in Service Quotas
"""

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.modelplane.fleet.plugins.plugin_utils.plain import plain

_UNKNOWN = "It failed, and nothing is told why"


def aws_error(result: Any) -> str:
    """Return what a failed task says, with what to do."""
    if not isinstance(result, Mapping):
        raise AnsibleFilterError("modelplane.fleet.aws_error: the input must be the result of a task")
    failed = [each for each in result.get("results") or () if isinstance(each, Mapping) and each.get("failed")]
    return "\n".join(dict.fromkeys(_told(plain(each)) for each in failed or [result]))


def _told(result: Mapping[str, Any]) -> str:
    from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.hints import hint_for

    message = str(result.get("msg") or _UNKNOWN).strip()
    error = result.get("error")
    if not isinstance(error, Mapping):
        return message
    what = hint_for(str(error.get("code") or ""), str(error.get("message") or ""))
    return f"{message.rstrip('.')}. {what}" if what else message


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"aws_error": aws_error}

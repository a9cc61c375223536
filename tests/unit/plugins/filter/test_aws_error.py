# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The filter aws_error."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.modelplane.fleet.plugins.filter.aws_error import aws_error
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.hints import hint_for

LIMIT = {"code": "VpcLimitExceeded", "message": "The maximum number of VPCs has been reached."}
DENIED = {"code": "UnauthorizedOperation", "message": "You are not authorized to perform this operation."}


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({"msg": "No VPC.", "error": LIMIT}, f"No VPC. {hint_for(**LIMIT)}"),
        ({"msg": "No VPC", "error": {"code": "Unheard", "message": "of"}}, "No VPC"),
        ({"msg": " Unsupported parameters "}, "Unsupported parameters"),
        ({}, "It failed, and nothing is told why"),
        (
            {
                "msg": "One or more items failed",
                "results": [
                    {"changed": True},
                    {"failed": True, "msg": "No subnet.", "error": DENIED},
                    {"failed": True, "msg": "No subnet.", "error": DENIED},
                    {"failed": True, "msg": "No zone"},
                ],
            },
            f"No subnet. {hint_for(**DENIED)}\nNo zone",
        ),
    ],
)
def test_an_error_is_told_with_what_to_do(result: dict[str, Any], expected: str) -> None:
    assert aws_error(result) == expected


def test_something_else_is_refused() -> None:
    with pytest.raises(AnsibleFilterError, match="must be the result of a task"):
        aws_error("it failed")

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Waiting until AWS has done what it was asked for."""

from __future__ import annotations

import functools

from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud import waiting
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.waiting import (
    ARGUMENTS,
    TIMEOUT,
    Progress,
    Seen,
    arguments,
)

__all__ = ["ARGUMENTS", "TIMEOUT", "Progress", "Seen", "arguments", "wait_for"]

wait_for = functools.partial(waiting.wait_for, error=AwsError)

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

from ansible_collections.modelplane.fleet.tests.aws.fixtures import aws

__all__ = ["aws"]

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

from ansible_collections.modelplane.fleet.tests.aws.fixtures import aws, aws_process
from ansible_collections.modelplane.fleet.tests.gcp.fixtures import gcp, gcp_process
from hypothesis import HealthCheck, settings

__all__ = ["aws", "aws_process", "gcp", "gcp_process"]

# How long an example takes decides nothing, as machines are busy at times. All else is as Hypothesis has it, in CI too.
settings.register_profile("any-machine", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")

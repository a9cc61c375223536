# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Options of modules that copy charts and images."""

from __future__ import annotations


class ModuleDocFragment:
    """Options of the tools that copy, and attributes of the modules."""

    DOCUMENTATION = r"""
options:
  registry_config:
    description:
      - The registry credentials for sources and targets, as the content of a file that C(helm registry login) or
        C(crane auth login) wrote. The user's other credentials are not read.
    type: str
  ca_file:
    description: Additional CA certificates (PEM) for the tools to trust.
    type: path
  environment:
    description: Additional environment variables for all tools, such as E(HTTPS_PROXY) and E(NO_PROXY).
    type: dict
    default: {}
  plain_http:
    description: Whether the target registries use HTTP without TLS.
    type: bool
    default: false
  sources_plain_http:
    description: Whether the source registries use HTTP without TLS.
    type: bool
    default: false
  forks:
    description: The number of charts or images to process in parallel.
    type: int
    default: 4
  timeout:
    description:
      - The number of seconds after which the copy of an image is stopped and fails.
      - Reads of an image, and reads and copies of a chart, are stopped after 300 seconds, or after this time if it is
        shorter.
    type: float
    default: 3600
  on_error:
    description:
      - The result of the task if a chart or image cannot be copied. All others are always copied.
      - V(fail) fails the task at the end. V(report) lets the task succeed with RV(problems).
    type: str
    choices: [fail, report]
    default: fail
author:
  - The modelplane.fleet authors (@modelplane)
attributes:
  check_mode:
    support: full
    description: Compares sources and targets, and reports the copies that would be made.
  diff_mode:
    support: full
    description: Shows the digests of the copies before and after.
  idempotent:
    support: full
    description: A copy with the same digest is not copied again.
"""

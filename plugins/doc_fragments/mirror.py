# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Options of modules that copy charts and images."""

from __future__ import annotations


class ModuleDocFragment:
    """Options of the programs that copy, and attributes of the modules."""

    DOCUMENTATION = r"""
options:
  registry_config:
    description:
      - Logins to registries of both sides, the content of a file that C(helm registry login) or C(crane auth login)
        wrote. No other login of the user is read.
    type: str
  ca_file:
    description: Certificates (PEM) of an authority that programs trust beside known ones.
    type: path
  environment:
    description: More environment variables for all programs, such as E(HTTPS_PROXY) and E(NO_PROXY).
    type: dict
    default: {}
  plain_http:
    description: Whether the registries that are copied to have no TLS.
    type: bool
    default: false
  sources_plain_http:
    description: Whether the registries that are copied from have no TLS.
    type: bool
    default: false
  forks:
    description: How many are worked on at a time.
    type: int
    default: 4
  timeout:
    description:
      - Seconds after which the copy of an image is stopped, and reported as one that cannot be copied.
      - Programs that read an image, or read or copy a chart, are stopped after 300 seconds, or this time if it is less.
    type: float
    default: 3600
  on_error:
    description:
      - Result of the task when some cannot be copied. The others are copied in any case.
      - V(fail) fails it at the end, V(report) lets it succeed with RV(problems).
    type: str
    choices: [fail, report]
    default: fail
attributes:
  check_mode:
    support: full
    description: Compares both sides, and says what would be copied.
  diff_mode:
    support: full
    description: Shows the digests of copies before and after.
  idempotent:
    support: full
    description: What has the same digest is not copied again.
"""

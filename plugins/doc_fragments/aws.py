# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Options of modules for the login to AWS, and for waiting.

The argument specs are in `module_utils/aws/session.py` and `waiting.py`.
"""

from __future__ import annotations


class ModuleDocFragment:
    """Options of modules that talk to AWS."""

    DOCUMENTATION = r"""
options:
  region:
    description: The region.
    type: str
    required: true
  profile:
    description:
      - A profile of the AWS configuration. Without it and without O(access_key), the credentials that the AWS SDK finds
        are used, by E(AWS_PROFILE), E(AWS_ACCESS_KEY_ID), or the role of the machine or pod that this runs on.
    type: str
  access_key:
    description: An access key. It goes with O(secret_key), and not with O(profile).
    type: str
  secret_key:
    description: The secret of O(access_key).
    type: str
  session_token:
    description: The session token of O(access_key), where that is of a role that was assumed.
    type: str
  role_arn:
    description: A role to assume. Its sessions are renewed while the task lasts.
    type: str
  endpoint_url:
    description: A URL that all calls go to, instead of those of AWS.
    type: str
  aws_ca_bundle:
    description: A file with the certificates that those of AWS have to come from, as behind a proxy that opens TLS.
    type: path
requirements:
  - boto3 >= 1.40
author:
  - The modelplane.fleet authors (@modelplane)
"""

    WAITING = r"""
options:
  wait:
    description:
      - Whether to wait until AWS is done. What is waited for is shown with C(-v) while it lasts, and in RV(waited).
    type: bool
    default: true
  wait_timeout:
    description:
      - For how many seconds to wait. When they are over, the task fails; AWS goes on, and so does the next run.
    type: int
    default: 1800
  wait_delay:
    description: Seconds between two checks.
    type: float
    default: 15
"""

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Options of modules for the login to AWS. The argument spec is in `module_utils/aws/session.py`."""

from __future__ import annotations


class ModuleDocFragment:
    """Options of modules that talk to AWS."""

    DOCUMENTATION = r"""
options:
  region:
    description: The region. It is required.
    type: str
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

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Options of modules for AWS credentials. The argument spec is in `module_utils/aws/session.py`."""

from __future__ import annotations


class ModuleDocFragment:
    """Options of modules that access AWS."""

    DOCUMENTATION = r"""
options:
  region:
    description: The AWS region. Required.
    type: str
  profile:
    description:
      - The AWS configuration profile. Without this option and O(access_key), the AWS SDK finds the credentials, for
        example in E(AWS_PROFILE), E(AWS_ACCESS_KEY_ID), or the role of the instance or pod.
    type: str
  access_key:
    description: The AWS access key ID. Requires O(secret_key). Mutually exclusive with O(profile).
    type: str
  secret_key:
    description: The secret access key of O(access_key).
    type: str
  session_token:
    description: The session token of O(access_key). Required for temporary credentials of an assumed role.
    type: str
  role_arn:
    description: The ARN of a role to assume. The module renews the role session during the task.
    type: str
  endpoint_url:
    description: The endpoint URL for all API calls, instead of the AWS endpoints.
    type: str
  aws_ca_bundle:
    description: A file with CA certificates for AWS endpoints, for example of a proxy that terminates TLS.
    type: path
requirements:
  - boto3 >= 1.40
author:
  - The modelplane.fleet authors (@modelplane)
"""

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Options of modules that talk to AWS; the argument spec is that of `module_utils/aws/task.py`."""

from __future__ import annotations

_ACCOUNT = r"""
options:
  region:
    description:
      - The region.
    type: str
    required: true
  profile:
    description:
      - A profile of the AWS configuration. By default the AWS SDK finds credentials as it does for all programs, such
        as in E(AWS_PROFILE), E(AWS_ACCESS_KEY_ID), or the role of the machine.
    type: str
  role_arn:
    description:
      - A role to assume first.
    type: str
  endpoint_url:
    description:
      - URL of the APIs where they are not the public ones of the region; E(AWS_ENDPOINT_URL) counts too.
    type: str
  timeout:
    description:
      - Seconds that AWS has for an answer.
    type: float
    default: 60
  retries:
    description:
      - How often a request is sent again when AWS is busy, has a fault or breaks the connection.
    type: int
    default: 8
requirements:
  - boto3 >= 1.40
author:
  - The modelplane.fleet authors (@modelplane)
"""

_STATE = r"""
  state:
    description:
      - Whether it should be there.
    type: str
    choices: [present, absent]
    default: present
  tags:
    description:
      - The tags of the object. C(modelplane.ai/cluster) has to be among them; C(modelplane.ai/managed-by) is added.
      - An object without these two, or with other values of them, is not ours and is never changed or deleted.
      - Other tags that an object has are left alone.
    type: dict
    required: true
"""

_WAITING = r"""
  wait:
    description:
      - Whether to wait until AWS is done. A later run that waits goes on from there. Without waiting, a change that can
        only follow another one is left to a later run.
    type: bool
    default: true
  wait_timeout:
    description:
      - Seconds for each thing that is waited for, such as one update of several.
    type: float
    default: 2700
  wait_interval:
    description:
      - Seconds between two looks while waiting.
    type: float
    default: 10
"""


class ModuleDocFragment:
    """Options and attributes of modules that talk to AWS."""

    ACCOUNT = _ACCOUNT

    WAITING = "options:" + _WAITING.rstrip("\n")

    DOCUMENTATION = (
        _ACCOUNT.replace("requirements:", (_STATE.rstrip("\n") + _WAITING).strip("\n") + "\nrequirements:")
        + r"""
attributes:
  check_mode:
    support: full
    description: Nothing is sent that changes anything. What is not there yet is told as it would be made.
  diff_mode:
    support: full
    description: The options that were given, as AWS has them and as they should be.
  idempotent:
    support: full
    description: A second run changes nothing, and a run that was stopped is gone on with by the next.
"""
    )

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The Python packages that modules need, and how one that is missing is told."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

from ansible.module_utils.basic import missing_required_lib
from ansible_collections.modelplane.fleet.plugins.module_utils._aws import AWS_PACKAGE, load_aws
from ansible_collections.modelplane.fleet.plugins.module_utils._google import GOOGLE_PACKAGE, load_google
from ansible_collections.modelplane.fleet.plugins.module_utils._pydantic import PYDANTIC_IMPORT_ERROR
from ansible_collections.modelplane.fleet.plugins.module_utils._urllib3 import URLLIB3_IMPORT_ERROR
from ansible_collections.modelplane.fleet.plugins.module_utils._yaml import YAML_IMPORT_ERROR

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

# Those that are only imported when a module needs them.
_LATE = {AWS_PACKAGE: load_aws, GOOGLE_PACKAGE: load_google}
_ERRORS = {"pydantic": PYDANTIC_IMPORT_ERROR, "PyYAML": YAML_IMPORT_ERROR, "urllib3": URLLIB3_IMPORT_ERROR}


def need(module: AnsibleModule, *packages: str) -> None:
    """Fail with the name of the first of the packages (pydantic, PyYAML, urllib3, boto3, google-auth) that cannot be
    imported."""
    for package in packages:
        error = _late_error(package) if package in _LATE else _ERRORS[package]
        if error:
            module.fail_json(msg=missing_required_lib(package), exception=error)


def _late_error(package: str) -> str | None:
    try:
        _LATE[package]()
    except ImportError:
        return traceback.format_exc()
    return None

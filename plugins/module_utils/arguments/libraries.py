# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Python packages that modules require, and the error for missing packages."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import missing_required_lib

from .._pydantic import PYDANTIC_IMPORT_ERROR
from .._urllib3 import URLLIB3_IMPORT_ERROR
from .._yaml import YAML_IMPORT_ERROR

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

_NONE: Mapping[str, Callable[[], Any]] = MappingProxyType({})
_ERRORS = {"pydantic": PYDANTIC_IMPORT_ERROR, "PyYAML": YAML_IMPORT_ERROR, "urllib3": URLLIB3_IMPORT_ERROR}


def need(module: AnsibleModule, *packages: str, late: Mapping[str, Callable[[], Any]] = _NONE) -> None:
    """Fail with the name of the first of the packages (pydantic, PyYAML, urllib3) that cannot be imported.

    `late`: packages that are only imported when they are needed, with their import functions.
    """
    errors = {package: _late_error(load) for package, load in late.items()}
    for package, error in {**errors, **{package: _ERRORS[package] for package in packages}}.items():
        if error:
            module.fail_json(msg=missing_required_lib(package), exception=error)


def _late_error(load: Callable[[], Any]) -> str | None:
    try:
        load()
    except ImportError:
        return traceback.format_exc()
    return None

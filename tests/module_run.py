# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A module of this collection, run in the process of the test as Ansible runs it: arguments in, a result out."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Mapping
from typing import Any

from ansible.module_utils.testing import patch_module_args


def run(module: Any, arguments: Mapping[str, Any], *, check: bool = False, diff: bool = False) -> dict[str, Any]:
    """The result of `module` (a file of plugins/modules); of one that fails, `failed` is true and `msg` says why."""
    given = {**arguments, "_ansible_check_mode": check, "_ansible_diff": diff, "_ansible_remote_tmp": "/tmp"}
    out = io.StringIO()
    with patch_module_args(given), contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        module.main()
    result: dict[str, Any] = json.loads(out.getvalue().strip().splitlines()[-1])
    return result

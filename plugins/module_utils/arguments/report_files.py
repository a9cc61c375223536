# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Files of the HTML report for modules that Ansible packs.

Ansible packs only Python files into a module. The action plugin therefore copies the templates, the style and the
script of the report to the temporary directory of the module.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
from typing import TYPE_CHECKING

from ..core.report.rendering import use_files
from .libraries import need

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

REPORT_FILES = "report_files.json"


def receive_report_files(module: AnsibleModule) -> None:
    """Use the files of the report in the temporary directory of a module, if there are any.

    Fail without Jinja2, which the Python of the module might lack. Ansible's own Python has it.
    """
    need(module, late={"Jinja2": lambda: importlib.import_module("jinja2")})
    path = os.path.join(module.tmpdir, REPORT_FILES)
    with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8") as file:
        use_files(json.load(file))

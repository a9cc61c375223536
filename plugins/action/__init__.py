# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Import of all modules and filters in the process that parses playbooks, because Ansible searches actions of tasks
there.

An action with the name of each module would also be imported there. An action by routing is only imported in the forked
process of each task, which would import its module for every task. The import of all modules takes little longer than
the import of one module, because they share most imports. A run that only parses, such as --syntax-check, needs no
module. For the first filter that a task uses, Ansible loads all filters of its collection.
"""

from __future__ import annotations

import contextlib
import pkgutil

from ansible import context  # type: ignore[attr-defined]
from ansible.plugins.loader import filter_loader
from ansible_collections.modelplane.fleet.plugins import modules
from ansible_collections.modelplane.fleet.plugins.plugin_utils import byte_code

if not any(context.CLIARGS.get(name) for name in ("syntax", "listhosts", "listtags", "listtasks")):
    byte_code.load(*(f"modules.{module.name}" for module in pkgutil.iter_modules(modules.__path__)))
    # If the default Python loader imports the collection, Ansible has no entry for its filters.
    with contextlib.suppress(KeyError):
        filter_loader.get("modelplane.fleet.topology")

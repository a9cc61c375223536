# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Import all modules and filters, in the process that parses playbooks: Ansible searches the action of a task there.

An action of the name of each module would be imported there too, but one by routing only in the process that is forked
for each task, which would import its module, for every task. All modules take little more than one, as most of what
they import is the same. A run that only parses, as for --syntax-check, needs none. So it is with filters: for the first
one that a task uses, Ansible loads all filters of its collection.
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
    # Where Python's own loader imports the collection, Ansible knows no filter of it.
    with contextlib.suppress(KeyError):
        filter_loader.get("modelplane.fleet.topology")

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Frame of modules that change objects in Google Cloud."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from ansible_collections.modelplane.fleet.plugins.module_utils.cloud import task
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.changes import Changes
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.waiting import Progress
from ansible_collections.modelplane.fleet.plugins.module_utils.google import session
from ansible_collections.modelplane.fleet.plugins.module_utils.google.client import Client

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

Action = Callable[[Client, Changes, Progress], dict[str, Any]]


def run(module: AnsibleModule, action: Action) -> NoReturn:
    """Do it and end the module: with what it returns, or with why it failed and what was changed before that."""
    client = session.client(module)
    task.run(module, lambda changes, progress: action(client, changes, progress))

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What modules share that change things in a cloud: what they tell at the end, and how they fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.changes import Changes
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.errors import CloudError
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.waiting import Progress

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule


def run(module: AnsibleModule, action: Callable[[Changes, Progress], dict[str, Any]]) -> NoReturn:
    """Do it and end the module: with what it returns, or with why it failed and what was changed before that."""
    for name in ("wait_timeout", "wait_delay"):
        # Written so that nan is refused too.
        if name in module.params and not module.params[name] >= 0:
            module.fail_json(msg=f"{name}: must be 0 seconds or more (got {module.params[name]})")
    changes, progress = Changes(module.check_mode), Progress(module)
    result: dict[str, Any] = {}
    failure = ""
    try:
        result = action(changes, progress)
    except CloudError as error:
        failure = str(error)
    for line in (*changes.warnings, *changes.problems):
        module.warn(line)
    told = {**changes.result(), **({"waited": progress.lines} if "wait" in module.params else {})}
    if failure:
        module.fail_json(msg=failure, **told)
    module.exit_json(**result, **told)
    raise SystemExit(0)


def wait(params: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    """How `wait_for` waits, of the arguments."""
    return {"timeout": float(params["wait_timeout"]), "delay": float(params["wait_delay"]), "progress": progress}


def plan_fault(plan: Mapping[str, Any], keys: Iterable[str], made_by: str) -> str:
    """What is wrong with an argument `plan` of which `keys` are looked at; empty when nothing is. `made_by`: the filter
    that makes such plans."""
    missing = [key for key in keys if key not in plan]
    if missing:
        return f"plan: has no {', '.join(missing)}. Give what the filter modelplane.fleet.{made_by} makes"
    return ""

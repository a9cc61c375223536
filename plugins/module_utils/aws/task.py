# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What modules share that change things at AWS: how they begin, what they tell, how they fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from ansible_collections.modelplane.fleet.plugins.module_utils.aws import session
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.session import Account
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud import task
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.changes import Changes
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.task import wait
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.waiting import Progress

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

__all__ = ["Action", "plan_fault", "run", "wait"]

Action = Callable[[Account, Changes, Progress], dict[str, Any]]


def run(module: AnsibleModule, action: Action) -> NoReturn:
    """Do it and end the module: with what it returns, or with why it failed and what was changed before that."""
    account = session.account(module)
    task.run(module, lambda changes, progress: action(account, changes, progress))


def plan_fault(plan: Mapping[str, Any], keys: Iterable[str], region: str) -> str:
    """What is wrong with an argument `plan` of which `keys` are looked at; empty when nothing is."""
    fault = task.plan_fault(plan, keys, "eks_plan")
    if not fault and plan["region"] != region:
        return f"region: is {region}, and the plan is for {plan['region']}. Give the region of the plan"
    return fault

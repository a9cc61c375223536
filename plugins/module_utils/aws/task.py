# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What modules share that change things at AWS: how they begin, what they tell, how they fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from ansible_collections.modelplane.fleet.plugins.module_utils.aws import session
from ansible_collections.modelplane.fleet.plugins.module_utils.aws import tags as aws_tags
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.changes import Changes
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.session import Account
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud import task
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.task import wait
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.waiting import Progress

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

__all__ = ["Action", "check_purge", "check_unique", "own_tags", "plan_fault", "run", "wait"]

Action = Callable[[Account, Changes, Progress], dict[str, Any]]


def run(module: AnsibleModule, action: Action) -> NoReturn:
    """Do it and end the module: with what it returns, or with why it failed and what was changed before that."""
    account = session.account(module)
    task.run(module, lambda changes, progress: action(account, changes, progress))


def own_tags(params: Mapping[str, Any]) -> dict[str, str]:
    """The argument `tags` as texts, with the one that says whose the object is."""
    return {**aws_tags.texts(params["tags"]), aws_tags.MANAGED_BY: aws_tags.MANAGER}


def check_unique(argument: str, keys: Iterable[str]) -> None:
    """Raises AwsError for what is listed twice."""
    twice = sorted(key for key, count in Counter(keys).items() if count > 1)
    if twice:
        raise AwsError(argument, f"{', '.join(twice)} is listed twice", hint="List each once")


def check_purge(params: Mapping[str, Any], tags: Mapping[str, str]) -> None:
    """Raises AwsError where it is not said of which cluster things are to be removed."""
    if params["purge"] and not tags.get(aws_tags.CLUSTER):
        raise AwsError("purge", f"tags has no {aws_tags.CLUSTER}, which says whose things are removed")


def plan_fault(plan: Mapping[str, Any], keys: Iterable[str], region: str) -> str:
    """What is wrong with an argument `plan` of which `keys` are looked at; empty when nothing is."""
    fault = task.plan_fault(plan, keys, "eks_plan")
    if not fault and plan["region"] != region:
        return f"region: is {region}, and the plan is for {plan['region']}. Give the region of the plan"
    return fault

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
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.waiting import Progress

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

Action = Callable[[Account, Changes, Progress], dict[str, Any]]


def run(module: AnsibleModule, action: Action) -> NoReturn:
    """Do it and end the module: with what it returns, or with why it failed and what was changed before that."""
    account = session.account(module)
    changes, progress = Changes(module.check_mode), Progress(module)
    result: dict[str, Any] = {}
    failure = ""
    try:
        result = action(account, changes, progress)
    except AwsError as error:
        failure = str(error)
    for line in (*changes.warnings, *changes.problems):
        module.warn(line)
    told = {**changes.result(), **({"waited": progress.lines} if "wait" in module.params else {})}
    if failure:
        module.fail_json(msg=failure, **told)
    module.exit_json(**result, **told)
    raise SystemExit(0)


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


def wait(params: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    """How `wait_for` waits, of the arguments."""
    return {"timeout": float(params["wait_timeout"]), "delay": float(params["wait_delay"]), "progress": progress}

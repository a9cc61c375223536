# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Frame of modules for a cloud: their changes, their results, and their failures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from .. import progress
from .errors import CloudError
from .waiting import Messages, Wait

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule


class Changes:
    """Completed changes; in check mode, expected changes. The diff has one entry for each object, by its name."""

    def __init__(self, check_mode: bool) -> None:
        self.check_mode = check_mode
        self._before: dict[str, Any] = {}
        self._after: dict[str, Any] = {}
        self.actions: list[str] = []
        self.warnings: list[str] = []

    @property
    def changed(self) -> bool:
        return bool(self._before or self._after)

    def record(self, name: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> None:
        """Record a change of an object: the changed fields, or None for an object that did not exist or does not
        exist."""
        for side, fields in ((self._before, before), (self._after, after)):
            if fields is not None:
                side[name] = {**side.get(name, {}), **fields}

    def report(self, action: str) -> None:
        """Add a description of a completed change, or of an expected change in check mode; duplicates are ignored."""
        if action not in self.actions:
            self.actions.append(action)

    def result(self) -> dict[str, Any]:
        """Return `changed`, `actions` and `diff` of a module's result."""
        diff = {"before": self._before, "after": self._after}
        return {"changed": self.changed, "actions": self.actions, "diff": diff}


def run(module: AnsibleModule, action: Callable[[Changes, Messages], dict[str, Any]]) -> NoReturn:
    """Run an action and exit the module: with its result, or with its error and the changes before the error."""
    for name in ("wait_timeout", "wait_delay"):
        # The negated comparison also rejects nan.
        if name in module.params and not module.params[name] >= 0:
            module.fail_json(msg=f"{name}: must be 0 seconds or more (got {module.params[name]})")
    changes, messages = Changes(module.check_mode), Messages(module)
    result: dict[str, Any] = {}
    failure = ""
    try:
        result = action(changes, messages)
    except CloudError as error:
        failure = str(error)
    for line in changes.warnings:
        module.warn(line)
    changed = {**changes.result(), **({"waited": messages.lines} if "wait" in module.params else {})}
    if failure:
        module.fail_json(msg=failure, **changed)
    module.exit_json(**result, **changed)
    raise SystemExit(0)


def wait(module: AnsibleModule, messages: Messages, error: type[CloudError], cluster: str) -> Wait:
    """Return the limits of waiting from the arguments, and report waits for objects in a cluster."""
    timeout, delay = (float(module.params[name]) for name in ("wait_timeout", "wait_delay"))
    return Wait(timeout, delay, messages, error, progress.of(module), cluster)


def check_plan(params: Mapping[str, Any], keys: Iterable[str], place: str = "") -> None:
    """Raise a CloudError if the argument `plan` lacks one of the keys, or has a different region or project than the
    arguments.

    `place`: the argument, and the key of the plan, with the region or project of the cluster; empty for any.
    """
    plan, given_place = params["plan"], params.get(place)
    missing = [key for key in keys if key not in plan]
    if missing:
        hint = f"Give what the filter modelplane.fleet.{params['provider']}_plan returns"
        raise CloudError("plan", f"has no {', '.join(missing)}", hint=hint)
    if given_place and given_place != plan[place]:
        raise CloudError(
            place, f"is {given_place}, and the plan is for {plan[place]}", hint=f"Give the {place} of the plan"
        )

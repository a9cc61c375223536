# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What the modules for AWS share: arguments, steps, waiting, and how they end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from ansible_collections.modelplane.fleet.plugins.module_utils.aws.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.session import Account
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.tags import wanted_tags

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

ACCOUNT: dict[str, Any] = {
    "region": {"type": "str", "required": True},
    "profile": {"type": "str"},
    "role_arn": {"type": "str"},
    "endpoint_url": {"type": "str"},
    "timeout": {"type": "float", "default": 60.0},
    "retries": {"type": "int", "default": 8},
}
"""The options of the documentation fragment `modelplane.fleet.aws.account`."""

WAITING: dict[str, Any] = {
    "wait": {"type": "bool", "default": True},
    "wait_timeout": {"type": "float", "default": 2700.0},
    "wait_interval": {"type": "float", "default": 10.0},
}
STATE: dict[str, Any] = {
    **ACCOUNT,
    **WAITING,
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "tags": {"type": "dict", "required": True},
}
"""The options of the documentation fragment `modelplane.fleet.aws`."""

# How many things that were seen while waiting are told at the end of a timeout.
_MOST_SEEN = 5


@dataclass(frozen=True)
class Step:
    """One change: what it is for people, and what does it."""

    text: str
    do: Callable[[], Any]


@dataclass(frozen=True)
class Looked:
    """What one look while waiting came to: done, or what it is still doing. A failure is raised as AwsError."""

    done: bool
    doing: str = ""


class Task:
    """One run of a module. `changed` tells whether something was changed, or would be in check mode."""

    def __init__(self, module: AnsibleModule) -> None:
        """Raises AwsError for arguments that mean nothing."""
        self._module = module
        self.params: Mapping[str, Any] = module.params
        self.check_mode = bool(module.check_mode)
        self.changed = False
        self.steps: list[str] = []
        self._need_numbers()
        self.tags = wanted_tags(self.params["tags"]) if self.params.get("tags") is not None else {}
        self._account: Account | None = None

    def _need_numbers(self) -> None:
        for name, least in (("timeout", 1.0), ("retries", 0.0), ("wait_timeout", 0.0), ("wait_interval", 0.0)):
            value = self.params.get(name)
            if value is not None and not (least <= value < math.inf):
                raise AwsError(f"{name} is {value:g}, and must be a number from {least:g} on")

    @property
    def absent(self) -> bool:
        return bool(self.params["state"] == "absent")

    @property
    def waits(self) -> bool:
        """Whether there is anything to wait for: in check mode nothing was sent."""
        return bool(self.params["wait"]) and not self.check_mode

    def client(self, service: str) -> Client:
        """The client of a service. Raises AwsError when there is no account."""
        if self._account is None:
            self._account = Account.of(self.params)
        return self._account.client(service)

    def take(self, steps: Iterable[Step]) -> None:
        """Do the steps one after the other, or say that they would be done."""
        for step in steps:
            self.steps.append(step.text)
            if not self.check_mode:
                self.log(step.text)
                step.do()
            self.changed = True

    def log(self, text: str) -> None:
        self._module.log(text)

    def warn(self, text: str) -> None:
        self._module.warn(text)

    def until(self, what: str, look: Callable[[], Looked], *, seconds: float | None = None) -> None:
        """Look until it is done. Raises AwsError after `seconds` (`wait_timeout`) with what was seen last."""
        limit = self.params["wait_timeout"] if seconds is None else seconds
        began = time.monotonic()
        seen: list[str] = []
        while True:
            looked = look()
            if looked.done:
                return
            if looked.doing and looked.doing not in seen[-1:]:
                seen.append(looked.doing)
                self.log(f"{what}: {looked.doing} ({time.monotonic() - began:.0f} s)")
            left = began + limit - time.monotonic()
            if left <= 0:
                raise self._too_late(what, limit, seen)
            time.sleep(min(left, self.params["wait_interval"]))

    def _too_late(self, what: str, limit: float, seen: Sequence[str]) -> AwsError:
        for text in seen[-_MOST_SEEN:-1]:
            self.warn(f"{what}, before: {text}")
        last = seen[-1] if seen else "nothing was seen"
        return AwsError(
            f"{what}: still not so after {limit:g} seconds: {last}",
            "AWS goes on with it: run again to wait on, or raise wait_timeout",
        )

    def end(self, before: Mapping[str, Any], after: Mapping[str, Any], header: str, **result: Any) -> NoReturn:
        """End the module well. `before` and `after` are the values of what we own, empty for what is not there."""
        if getattr(self._module, "_diff", False):
            result["diff"] = {
                "before_header": header,
                "after_header": header,
                "before": dict(before),
                "after": dict(after),
            }
        self.finish(**result)

    def finish(self, **result: Any) -> NoReturn:
        """End the module well."""
        self._module.exit_json(changed=self.changed, steps=self.steps, **result)
        raise SystemExit(0)


def run(module: AnsibleModule, work: Callable[[Task], None]) -> None:
    """Do the work of a module; what goes wrong fails it with one sentence."""
    task = None
    try:
        task = Task(module)
        work(task)
    except AwsError as error:
        done = {"changed": task.changed, "steps": task.steps} if task is not None else {}
        module.fail_json(msg=str(error), **done)

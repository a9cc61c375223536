# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Runs modules against the double of AWS, as tasks do, and holds them to what every module has to keep."""

from __future__ import annotations

import importlib
from typing import Any

from ansible_collections.modelplane.fleet.tests.aws.double import Double
from ansible_collections.modelplane.fleet.tests.module_run import run_module

Result = dict[str, Any]


class Runner:
    """A module by its name; its arguments go without those that lead to the double."""

    def __init__(self, aws: Double) -> None:
        self.aws = aws

    def __call__(self, name: str, /, *, check: bool = False, **params: Any) -> Result:
        module = importlib.import_module(f"ansible_collections.modelplane.fleet.plugins.modules.{name}")
        waiting = {"wait_delay": 0.01, "wait_timeout": 60} if "wait" in module.ARGUMENTS["argument_spec"] else {}
        return run_module(module, {**self.aws.credentials, **waiting, **params}, check_mode=check)

    def made(self, name: str, /, **params: Any) -> Result:
        """The result of a run that does not fail."""
        result = self(name, **params)
        assert not result["failed"], result["msg"]
        return result

    def unchanged(self, name: str, /, **params: Any) -> Result:
        """The result of a run that changes nothing, and sends nothing that would."""
        self.aws.forget_calls()
        result = self.made(name, **params)
        assert not result["changed"]
        assert self.mutations() == []
        return result

    def all_three(self, name: str, /, **params: Any) -> Result:
        """The result, of which check mode tells the same change without doing it, and after which there is none."""
        self.aws.forget_calls()
        told = self.made(name, check=True, **params)
        assert self.mutations() == []
        done = self.made(name, **params)
        assert told["changed"] == done["changed"] == bool(self.mutations())
        assert told["diff"] == done["diff"]
        self.unchanged(name, **params)
        return done

    def through_refusals(self, name: str, /, **params: Any) -> None:
        """Runs of which each is refused the next thing that changes something, until all is as wanted."""
        self.aws.refuse_each_once()
        for _ in range(20):
            result = self(name, **params)
            if not result["failed"]:
                break
            assert "AccessDenied" in result["msg"]
        self.aws.refuse_each_once(enabled=False)
        self.unchanged(name, **params)

    def mutations(self) -> list[str]:
        """The operations of all calls that change something."""
        return [call["operation"] for call in self.aws.calls(mutating=True)]

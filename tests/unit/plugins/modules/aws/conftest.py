# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

import importlib
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.tests.aws.double import Double
from ansible_collections.modelplane.fleet.tests.aws.fixtures import aws
from ansible_collections.modelplane.fleet.tests.aws.module_run import run_module

__all__ = ["aws"]

Result = dict[str, Any]


class Runner:
    """Does what a task would, in this process."""

    def __init__(self, aws: Double) -> None:
        self.aws = aws

    def __call__(self, module_name: str, *, check: bool = False, **params: Any) -> Result:
        module = importlib.import_module(f"ansible_collections.modelplane.fleet.plugins.modules.{module_name}")
        waiting = {"wait_delay": 0.01, "wait_timeout": 60} if "wait" in module.ARGUMENTS["argument_spec"] else {}
        return run_module(module, {**self.aws.credentials, **waiting, **params}, check_mode=check)

    def all_three(self, module_name: str, **params: Any) -> Result:
        """The result, of which check mode tells the same change without doing it, and after which there is none."""
        self.aws.forget_calls()
        told = self(module_name, check=True, **params)
        assert not told["failed"], told["msg"]
        assert self.aws.calls(mutating=True) == []
        done = self(module_name, **params)
        assert not done["failed"], done["msg"]
        assert told["changed"] == done["changed"] == bool(self.aws.calls(mutating=True))
        assert told["diff"] == done["diff"]
        self.aws.forget_calls()
        again = self(module_name, **params)
        assert (again["failed"], again["changed"]) == (False, False), again
        assert self.aws.calls(mutating=True) == []
        assert self.aws.invalid() == []
        return done


@pytest.fixture
def run(aws: Double) -> Runner:
    aws.reset()
    return Runner(aws)

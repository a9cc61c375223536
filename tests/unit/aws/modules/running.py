# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Modules of this collection run as they are, in the process of the test."""

from __future__ import annotations

from typing import Any, NoReturn

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

REGION = "us-west-2"
TAGS = {"modelplane.ai/cluster": "modelplane-system.west"}
OURS = {**TAGS, "modelplane.ai/managed-by": "modelplane.fleet"}


class _EndedError(Exception):
    def __init__(self, result: dict[str, Any]) -> None:
        super().__init__()
        self.result = result


class _Module:
    """What the modules use of AnsibleModule."""

    def __init__(self, params: dict[str, Any], *, check: bool) -> None:
        self.params = params
        self.check_mode = check
        self._diff = True
        self.warnings: list[str] = []
        self.logged: list[str] = []

    def log(self, text: str) -> None:
        self.logged.append(text)

    def warn(self, text: str) -> None:
        self.warnings.append(text)

    def exit_json(self, **result: Any) -> NoReturn:
        raise _EndedError({"changed": False, "failed": False, **result})

    def fail_json(self, msg: str, **result: Any) -> NoReturn:
        raise _EndedError({"changed": False, **result, "msg": msg, "failed": True})


def run(module: Any, *, check: bool = False, **given: Any) -> dict[str, Any]:
    """What a module returns; `warnings` and `logged` are what it said on the way. It may not end in an exception."""
    spec = dict(module.ARGUMENTS)
    spec.pop("supports_check_mode")
    options = {"region": REGION, "wait_interval": 0.01, "wait_timeout": 5, **given}
    names = {"region", "wait_interval", "wait_timeout"} & set(spec["argument_spec"]) | set(given)
    found = ArgumentSpecValidator(spec.pop("argument_spec"), **spec).validate({name: options[name] for name in names})
    assert not found.error_messages, found.error_messages
    stage = _Module(found.validated_parameters, check=check)
    try:
        module.work(stage)
    except _EndedError as ended:
        return {**ended.result, "warnings": stage.warnings, "logged": stage.logged}
    raise AssertionError("the module came to no result")


def good(module: Any, **given: Any) -> dict[str, Any]:
    """What a module returns that has to succeed."""
    result = run(module, **given)
    assert not result["failed"], result["msg"]
    return result


def refused(module: Any, **given: Any) -> str:
    """Why a module fails that has to fail."""
    result = run(module, **given)
    assert result["failed"], result
    assert "Traceback" not in result["msg"]
    return str(result["msg"])

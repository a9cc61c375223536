# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A module of this collection, run as its action runs it: in this process, arguments in, a result out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from ansible.module_utils.common.parameters import remove_values
from ansible_collections.modelplane.fleet.plugins.action import in_process
from ansible_collections.modelplane.fleet.plugins.plugin_utils.plain import plain


class _Recorded(in_process._ModuleInProcess):
    """Collector of messages besides the result."""

    def __init__(self, module: Any, given: Mapping[str, Any], task: Any) -> None:
        self.warnings: list[str] = []
        self.logged: list[str] = []
        self.shown_once: list[str] = []
        super().__init__(module.__name__.rpartition(".")[2], module.ARGUMENTS, given, task)

    def warn(self, text: str) -> None:
        self.warnings.append(self._shown(text))

    def log(self, text: str) -> None:
        self.logged.append(self._shown(text))

    def show_once(self, text: str) -> None:
        self.shown_once.append(text)


def run_module(
    module: Any, given: Mapping[str, Any], *, check_mode: bool = False, no_log: bool = False
) -> dict[str, Any]:
    """The result of a module (as `plugins.modules.cloud_resources`), with `failed`, `warnings`, what was `logged`, and
    what was `shown_once`, if anything.

    It is what a playbook would see: JSON, without the values of secret arguments.
    """
    running: Any = None
    try:
        running = _Recorded(module, given, SimpleNamespace(check_mode=check_mode, diff=True, no_log=no_log))
        module.work(running)
    except in_process._Ended as ended:
        result: dict[str, Any] = remove_values(plain(ended.result), ended.secrets)
        reported: dict[str, Any] = {"warnings": running.warnings, "logged": running.logged} if running else {}
        if running and running.shown_once:
            reported["shown_once"] = running.shown_once
        return dict(json.loads(json.dumps({"failed": False, **result, **reported})))
    raise AssertionError(f"{module.__name__} came to no result")

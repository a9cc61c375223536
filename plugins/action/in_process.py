# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Action of every module of this collection: run the module without a process of its own.

`plugin_routing` in meta/runtime.yml routes each module to this action.

For every task, Ansible packs the module with all its imports, starts Python, and imports them again: one to two seconds
for this collection. A module that would run on the controller, as the same user and with the same Python, runs in the
process that Ansible forks for the task. All other modules run as usual.

Ansible loads this file in the process that it forks for each task and host. The common imports of nearly all modules
are therefore imported here, once for all processes, because they take longer than most modules.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from collections.abc import Mapping
from typing import Any, NoReturn, Protocol, cast

from ansible.errors import AnsibleError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.common.parameters import remove_values
from ansible.module_utils.errors import UnsupportedError
from ansible.plugins.action.normal import ActionModule as AsModule
from ansible.utils.display import Display
from ansible_collections.modelplane.fleet.plugins import modules
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments.report_files import REPORT_FILES
from ansible_collections.modelplane.fleet.plugins.module_utils.core.report.rendering import file_texts
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import printable
from ansible_collections.modelplane.fleet.plugins.plugin_utils.plain import plain

try:
    from ansible._internal._datatag._tags import Origin
except ImportError:
    # Ansible may move it; then failures have the playbook as their origin.
    Origin = None

importlib.import_module("ansible_collections.modelplane.fleet.plugins.module_utils.usecases.build")

# Ansible packs only Python files into a module.
_RENDERING_MODULES = frozenset({"build", "reconcile"})


class Module(Protocol):
    """Module of this collection: the arguments of AnsibleModule, and the function that uses them."""

    ARGUMENTS: Mapping[str, Any]

    def work(self, module: Any) -> None: ...


class ActionModule(AsModule):  # type: ignore[misc]
    """Run the module of the task in this process, if the result is the same."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        return self._placed(self._result(tmp, task_vars))

    def _placed(self, result: dict[str, Any]) -> dict[str, Any]:
        """Use the file of the user instead of the playbook as the origin of a failure, if the failure has such a file.

        Ansible shows the origin of the task's source next to the message. Otherwise, no output would name the file.
        Only the location is shown, because the lines around it might contain secrets. The task is a copy that ends with
        this process.
        """
        origin = result.pop("origin", None) if result.get("failed") else None
        if origin and Origin is not None:
            self._task._ds = Origin(description=str(origin["file"]), line_num=origin["line"])
        if "errors" in result and result.get("failed"):
            # Show one line per error in every result format.
            result["_ansible_verbose_always"] = True
        return result

    def _result(self, tmp: Any, task_vars: dict[str, Any] | None) -> dict[str, Any]:
        if not self._same_process(task_vars or {}):
            self._send_report_files()
            module_result: dict[str, Any] = super().run(tmp, task_vars)
            return module_result
        environment: dict[str, str] = {}
        self._compute_environment_string(environment)
        os.environ.update(environment)
        # The connection plugin `local` starts processes, and thus modules, in this directory.
        os.chdir(self._loader.get_basedir())
        module = _module(self._task.action)
        try:
            module.work(_ModuleInProcess(self._task.action, module.ARGUMENTS, plain(self._task.args), self._task))
        except _Ended as ended:
            result: dict[str, Any] = remove_values(plain(ended.result), ended.secrets)
            return result
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            raise AnsibleError(
                f"This is an error of modelplane.fleet, please report it: {type(error).__name__} in "
                f"{os.path.basename(frame.filename)}:{frame.lineno}"
            ) from error
        raise AnsibleError(f"{self._task.action} came to no result")

    def _send_report_files(self) -> None:
        """Copy the files of the HTML report to the temporary directory of a module that renders it."""
        if self._task.action.rpartition(".")[2] in _RENDERING_MODULES:
            self._make_tmp_path()
            directory = self._connection._shell.tmpdir
            path = self._connection._shell.join_path(directory, REPORT_FILES)
            self._transfer_data(path, json.dumps(file_texts()))
            self._fixup_perms2((directory, path))

    def _same_process(self, task_vars: Mapping[str, Any]) -> bool:
        python = str(self._templar.template(task_vars.get("ansible_python_interpreter", "")) or "")
        return (
            self._connection.transport == "local"
            and not self._connection.become
            and not self._task.async_val
            and python in ("", sys.executable)
        )


def _module(action: str) -> Module:
    """Return the module that a task names, with or without the name of the collection."""
    module: Any = importlib.import_module(f"{modules.__name__}.{action.rpartition('.')[2]}")
    return cast(Module, module)


class _Ended(BaseException):
    """End of the module with a result. Like SystemExit, no error handler stops it."""

    def __init__(self, result: Mapping[str, Any], secrets: set[str]) -> None:
        super().__init__()
        self.result, self.secrets = result, secrets


class _ModuleInProcess:
    """Parts of AnsibleModule that the modules use, with the same behavior."""

    def __init__(self, name: str, arguments: Mapping[str, Any], given: Mapping[str, Any], task: Any) -> None:
        constraints = {
            key: arguments[key] for key in ("mutually_exclusive", "required_if", "required_one_of") if key in arguments
        }
        validation = ArgumentSpecValidator(arguments["argument_spec"], **constraints).validate(given)
        self.no_log_values = validation._no_log_values
        self.params = validation.validated_parameters
        self.check_mode = bool(task.check_mode)
        self._diff = bool(task.diff)
        self.no_log = bool(task.no_log)
        if validation.error_messages:
            message = validation.errors.msg
            if isinstance(validation.errors[0], UnsupportedError):
                message = f"Unsupported parameters for ({name}) module: {message}"
            self.fail_json(msg=message)

    def warn(self, text: str) -> None:
        Display().warning(self._shown(text))

    def log(self, text: str) -> None:
        """Log the progress of a long wait. With -v, Ansible shows it immediately."""
        Display().v(self._shown(text))

    def show(self, text: str) -> None:
        """Show the progress of a long wait on standard error, because Ansible writes standard error immediately."""
        Display().display(self._shown(text), stderr=True)

    def show_once(self, text: str) -> None:
        """Show secret text on the terminal, and in no log."""
        Display().display(printable(text, _KEPT), stderr=True, screen_only=True)

    def _shown(self, text: str) -> str:
        return printable(remove_values(text, self.no_log_values), _KEPT)

    def exit_json(self, **result: Any) -> NoReturn:
        raise _Ended(_printable({"changed": False, **result}), self.no_log_values)

    def fail_json(self, msg: str, **result: Any) -> NoReturn:
        raise _Ended(_printable({"changed": False, **result, "msg": msg, "failed": True}), self.no_log_values)


# Keys of results with texts for people, at any depth of a result. All other keys contain data.
_FOR_PEOPLE = frozenset(
    {
        "costs",
        "errors",
        "findings",
        "message",
        "messages",
        "msg",
        "notes",
        "problems",
        "services",
        "table",
        "unreachable",
    }
    | {"warnings", "warnings_found"}
)
_KEPT = "\n\t"


def _printable(value: Any, for_people: bool = False) -> Any:
    """Return a result with escaped control characters in its texts for people."""
    if isinstance(value, str):
        return printable(value, _KEPT) if for_people else value
    if isinstance(value, Mapping):
        return {key: _printable(element, for_people or key in _FOR_PEOPLE) for key, element in value.items()}
    if isinstance(value, (list, tuple)):
        return [_printable(element, for_people) for element in value]
    return value

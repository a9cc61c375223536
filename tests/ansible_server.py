# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A process in which Ansible and this collection are imported, and that forks for each run of a program of Ansible.

Reads a request from stdin, a line of JSON: `arguments` (the program's, its name first), `folder` to run in,
`environment`, `stdout` and `stderr` (paths of files), `seconds` (at most). Answers each with a line of JSON, the exit
`code`, negative for a signal. Ends when stdin does. Its argument is a folder for compiled templates, which servers
share.

What Ansible reads as it is imported, it reads from the environment of this process: see ansible_run, which starts one
for each environment.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import hashlib
import importlib
import json
import marshal
import os
import pkgutil
import signal
import sys
import time
import warnings
from contextvars import ContextVar
from pathlib import Path
from types import CodeType
from typing import Any, NoReturn, cast

from ansible._internal._templating import _jinja_bits
from ansible.plugins import loader
from ansible.utils.path import cleanup_tmp_file
from jinja2 import nodes
from jinja2.environment import TemplateExpression

_PROGRAMS = {
    "ansible": ("ansible.cli.adhoc", "AdHocCLI"),
    "ansible-inventory": ("ansible.cli.inventory", "InventoryCLI"),
    "ansible-playbook": ("ansible.cli.playbook", "PlaybookCLI"),
}


def serve() -> None:
    """Answer requests until there are no more."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    prepare()
    keep_templates(Path(sys.argv[1]))
    for line in sys.stdin:
        request = json.loads(line)
        process = os.fork()
        if not process:
            become(request)
        print(json.dumps({"code": ended(process, request["seconds"])}), flush=True)


def prepare() -> None:
    """Import what each run would import."""
    # Each run does that as well, and would be warned that it has been done.
    loader.init_plugin_loader([])
    warnings.filterwarnings("ignore", "AnsibleCollectionFinder has already been configured")
    for module, _ in _PROGRAMS.values():
        importlib.import_module(module)
    # Each task imports its action and its module, and what these need.
    for kind in ("action", "modules"):
        package = importlib.import_module(f"ansible_collections.modelplane.fleet.plugins.{kind}")
        for each in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{each.name}")
    # Each run reads the documentation of these, for their options.
    for plugins in (loader.become_loader, loader.callback_loader, loader.connection_loader, loader.shell_loader):
        list(plugins.all(class_only=True))
    # Each task would read the types of the fields of results, as ansible-core 2.21 does.
    with contextlib.suppress(ImportError, AttributeError):
        results = importlib.import_module("ansible._internal._task").UnifiedTaskResult
        for of_module in (True, False):
            results.get_result_key_to_resolved_field_mapping(source_is_module=of_module)
    # Otherwise the first collection in each fork, and in each worker of it, copies the memory of all these imports.
    gc.collect()
    gc.freeze()
    # Runs are short, and what one leaves ends with its process.
    gc.disable()


def keep_templates(folder: Path) -> None:
    """Compile each template once, and not in every process that renders it, which is a fifth of what a run costs."""
    environment: Any = _jinja_bits.AnsibleEnvironment
    compile_template, compile_expression = environment.compile, environment.compile_expression
    expression = ContextVar("expression", default="")
    # Each process would create its own.
    _ = environment().lexer

    def place(self: Any, kind: type, text: str) -> Path:
        context = _jinja_bits._TemplateCompileContext.current(optional=True)
        settings = [getattr(self, name) for name in _jinja_bits._TEMPLATE_OVERRIDE_FIELD_NAMES]
        key = repr([kind, str(text), settings, context and context.escape_backslashes])
        return folder / hashlib.sha256(key.encode()).hexdigest()

    def kept_template(self: Any, source: Any, *arguments: Any, **options: Any) -> CodeType:
        # An expression comes here as a syntax tree.
        text = source if isinstance(source, str) else expression.get()
        make = functools.partial(compile_template, self, source, *arguments, **options)
        if not text or any(arguments) or options:
            return cast(CodeType, make())
        path = place(self, type(source), text)
        return kept(path) or keep(path, make())

    def kept_expression(self: Any, source: str, undefined_to_none: bool = True) -> Any:
        code = kept(place(self, nodes.Template, source))
        if code:
            template = self.template_class.from_code(self, code, self.make_globals(None))
            return TemplateExpression(template, undefined_to_none)
        token = expression.set(source)
        try:
            return compile_expression(self, source, undefined_to_none)
        finally:
            expression.reset(token)

    environment.compile, environment.compile_expression = kept_template, kept_expression


def kept(path: Path) -> CodeType | None:
    """Return the code that a file has; None without one."""
    try:
        return cast(CodeType, marshal.loads(path.read_bytes()))
    except FileNotFoundError:
        return None


def keep(path: Path, code: CodeType) -> CodeType:
    """Write code to a file, and return it."""
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_bytes(marshal.dumps(code))
    partial.replace(path)
    return code


def become(request: dict[str, Any]) -> NoReturn:
    """Be the program, in this process, and end as it does."""
    # The parent removes its temporary folder itself, when it ends.
    atexit.unregister(cleanup_tmp_file)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.setsid()
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    for number, path in enumerate((os.devnull, request["stdout"], request["stderr"])):
        opened = os.open(path, os.O_RDWR | os.O_APPEND)
        os.dup2(opened, number)
        os.close(opened)
    sys.argv = request["arguments"]
    module, name = _PROGRAMS[os.path.basename(sys.argv[0])]
    getattr(sys.modules[module], name).cli_executor()
    sys.exit(0)


def ended(process: int, seconds: float) -> int:
    """Wait for a run, and return its exit code, or minus the signal that ended it: SIGKILL when it took too long.

    The run is killed when this process, or the one that asks for runs, ends before.
    """
    deadline, parent = time.monotonic() + seconds, os.getppid()
    try:
        while True:
            found, status = os.waitpid(process, os.WNOHANG)
            if found:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > deadline:
                os.killpg(process, signal.SIGKILL)
            if os.getppid() != parent:
                sys.exit("the caller of this run is gone")
            time.sleep(0.01)
    except BaseException:
        os.killpg(process, signal.SIGKILL)
        raise


if __name__ == "__main__":
    serve()

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The callback modelplane.fleet.progress."""

from __future__ import annotations

DOCUMENTATION = r"""
name: progress
type: aggregate
short_description: Show the progress of long tasks
version_added: 0.1.0
author:
  - The modelplane.fleet authors (@modelplane)
description:
  - While clusters and nodes are created, releases are installed, and replicas start, this callback shows the pending
    operation of each cluster, its elapsed time, its usual duration, and its last observed state.
  - On a terminal, each cluster has one line below all other output. The line is updated in place and removed when the
    operation ends. Without a terminal, such as in AWX, in CI and in a file, the callback prints a line for each waiting
    cluster every O(interval) seconds.
  - For tasks of other collections, such as M(kubernetes.core.helm), the callback shows the task name while they run.
  - Without this callback, runs print the same lines to standard error every 30 seconds, except for tasks of other
    collections and for modules in a separate process (with C(become) or C(async)).
options:
  style:
    description:
      - V(live) updates lines in place. V(lines) prints new lines.
      - V(auto) selects V(live) if both outputs are a terminal with cursor control, and if neither AWX nor CI runs
        Ansible. Otherwise it selects V(lines).
    type: str
    choices: [auto, live, lines]
    default: auto
    env:
      - name: MODELPLANE_FLEET_PROGRESS_STYLE
    ini:
      - section: callback_modelplane_fleet_progress
        key: style
  interval:
    description: Seconds between two lines about the same cluster, if lines are not updated in place.
    type: float
    default: 30
    env:
      - name: MODELPLANE_FLEET_PROGRESS_INTERVAL
    ini:
      - section: callback_modelplane_fleet_progress
        key: interval
  clusters:
    description:
      - The maximum number of clusters to show at a time. If there are more, the callback shows the clusters with the
        longest waits, and the number of other clusters.
      - On a terminal, the lines use at most half of its height.
    type: int
    default: 20
    env:
      - name: MODELPLANE_FLEET_PROGRESS_CLUSTERS
    ini:
      - section: callback_modelplane_fleet_progress
        key: clusters
requirements:
  - C(callbacks_enabled = modelplane.fleet.progress) in C(ansible.cfg), or the environment variable
    E(ANSIBLE_CALLBACKS_ENABLED), to enable the callback
notes:
  - Colors follow the settings of Ansible, including E(NO_COLOR) and E(ANSIBLE_NOCOLOR).
  - Modules report to a socket in a temporary directory that only this user can access and that is removed at the end of
    the run. Modules never wait for the callback.
"""

EXAMPLES = r"""
# In ansible.cfg
#   [defaults]
#   callbacks_enabled = modelplane.fleet.progress
#
# For one run
#   ANSIBLE_CALLBACKS_ENABLED=modelplane.fleet.progress ansible-playbook modelplane.fleet.site -i hosts.yml
"""

import atexit
import itertools
import os
import shutil
import sys
from collections.abc import Mapping
from typing import Any

from ansible import constants  # type: ignore[attr-defined]
from ansible.plugins.callback import CallbackBase
from ansible.utils.color import stringc
from ansible_collections.modelplane.fleet.plugins.module_utils.core import progress
from ansible_collections.modelplane.fleet.plugins.module_utils.core.progress import Board
from ansible_collections.modelplane.fleet.plugins.module_utils.progress import ADDRESS
from ansible_collections.modelplane.fleet.plugins.plugin_utils.live_lines import LiveLines
from ansible_collections.modelplane.fleet.plugins.plugin_utils.progress_server import Server

# Seconds. What takes no longer is not worth a line.
_SHORT = 1.0
_PAUSE = 0.25
_COLLECTION = "modelplane.fleet."
# Variables of environments whose terminal is a log.
_LOGS = ("AWX_ISOLATED_DATA_DIR", "CI")


def is_live(style: str, terminal: bool, environment: Mapping[str, str]) -> bool:
    """Return True if lines are updated in place. `terminal`: standard output and standard error are terminals."""
    if style != "auto":
        return style == "live"
    moves = environment.get("TERM", "dumb") not in ("", "dumb", "unknown")
    return terminal and moves and not any(environment.get(name) for name in _LOGS)


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """Receiver of the progress reports of modules. A thread shows the reports."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "modelplane.fleet.progress"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._server: Server | None = None
        self._numbers = itertools.count(1)
        self._tasks: dict[tuple[str, str], int] = {}
        self._names: dict[str, str] = {}

    def v2_playbook_on_start(self, _playbook: Any) -> None:
        """Start the server, if sockets are available."""
        self._interval, self._most = float(self.get_option("interval")), int(self.get_option("clusters"))
        is_terminal = sys.stdout.isatty() and sys.stderr.isatty()
        live = is_live(self.get_option("style"), is_terminal, os.environ)
        self._shown_at = 0.0
        self._live = LiveLines(sys.stdout, lambda: shutil.get_terminal_size().columns, _colored)
        show, pause = (self._show_live, _PAUSE) if live else (self._show_lines, min(1.0, self._interval))
        try:
            self._server = Server(show, pause)
        except OSError as error:
            self._display.warning(f"modelplane.fleet.progress shows nothing, as it has no socket: {error.strerror}")
            return
        os.environ[ADDRESS] = self._server.path
        if live:
            self._keep_apart()
        self._owner = os.getpid()
        # A run that is interrupted has no last event.
        atexit.register(self._stop)

    def v2_playbook_on_task_start(self, task: Any, **_more: Any) -> None:
        """Keep the name of a task while it has no expression in it."""
        self._names[task._uuid] = task.get_name()

    def v2_playbook_on_handler_task_start(self, task: Any) -> None:
        self._names[task._uuid] = task.get_name()

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        """Take a task for a wait."""
        if self._server is None:
            return
        number = next(self._numbers)
        self._tasks[host.get_name(), task._uuid] = number
        # Modules of ours report their clusters themselves.
        is_own_task = task.resolved_action and task.resolved_action.startswith(_COLLECTION)
        cluster = "" if is_own_task or task.run_once else host.get_name()
        name = self._names.get(task._uuid, task.get_name())
        self._server.take(None, progress.begun(number, cluster, f"the task {name}", ""), "task")

    def v2_runner_on_ok(self, result: Any) -> None:
        self._ended(result)

    def v2_runner_on_failed(self, result: Any, **_more: Any) -> None:
        self._ended(result)

    def v2_runner_on_skipped(self, result: Any) -> None:
        self._ended(result)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._ended(result)

    def v2_playbook_on_stats(self, _stats: Any) -> None:
        """End with the run."""
        self._stop()

    def _ended(self, result: Any) -> None:
        number = self._tasks.pop((result.host.get_name(), result.task._uuid), None)
        if number is not None and self._server is not None:
            self._server.take(None, progress.over(number), "task")

    def _stop(self) -> None:
        # Forks of a run have this callback as well.
        if self._server is None or os.getpid() != self._owner:
            return
        self._server.stop()
        self._server = None
        os.environ.pop(ADDRESS, None)
        self._live.show([])
        self._display.__dict__.pop("display", None)
        atexit.unregister(self._stop)

    def _show_live(self, board: Board, now: float) -> None:
        """Update the lines of a terminal. No line is wrapped, because wrapped lines cannot be updated."""
        if 0 <= now - self._shown_at < _PAUSE / 2:
            return
        self._shown_at = now
        size = shutil.get_terminal_size()
        max_lines = max(1, min(self._most, size.lines // 2))
        self._live.show(progress.shown(board.lines(now, _SHORT), now, max_lines, size.columns - 1))

    def _show_lines(self, board: Board, now: float) -> None:
        if now - self._shown_at < self._interval:
            return
        self._shown_at = now
        for text in progress.shown(board.lines(now, min(_SHORT, self._interval)), now, self._most):
            # Unlike the standard output, this one is written at once.
            self._display.display(text, color=constants.COLOR_VERBOSE, stderr=True)

    def _keep_apart(self) -> None:
        """Show all output of Ansible above the lines by replacing the method of its display."""
        write, owner, live = self._display.display, os.getpid(), self._live

        def display(msg: str, *arguments: Any, **more: Any) -> None:
            if os.getpid() != owner:
                # A worker sends the message to this process.
                write(msg, *arguments, **more)
                return
            with live.other_output(ends_line=more.get("newline", True) or msg.endswith("\n")):
                write(msg, *arguments, **more)

        self._display.display = display


def _colored(line: str) -> str:
    colored: str = stringc(line, constants.COLOR_VERBOSE)
    return colored

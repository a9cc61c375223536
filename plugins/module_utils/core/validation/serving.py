# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Validation of where an engine listens, and of the flags that its inference server does not start with.

Servers that are not in the table, and scripts of more than one command, have no findings but for an explicit port.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import constants
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.disaggregation import decode_port, pool_port
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Problem, warning
from ansible_collections.modelplane.fleet.plugins.module_utils.core.servers import flags, table
from ansible_collections.modelplane.fleet.plugins.module_utils.core.servers.command_line import CommandLine, is_known
from ansible_collections.modelplane.fleet.plugins.module_utils.core.servers.table import Server
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import short

_MAX_PORT = 65535
_CONFIG = ("--config",)
_URL = re.compile(r"(?:https?://)?(\[[^\]]*\]|[^:/]*)(?::([0-9]{1,5}))?/?")


@dataclass(frozen=True)
class _Listening:
    """Address and port on which a server listens, each with its origin; empty and 0 if they are unknown."""

    address: str = ""
    address_origin: str = ""
    port: int = 0
    port_origin: str = ""


def engine_serving(engine: Any, engines: Sequence[Any], path: str) -> Iterator[Problem]:
    """Yield the problems of an engine, one of these of a replica, whose path ends with its index."""
    hint_is_due = True
    for index, member in enumerate(engine.members):
        container = member.template.spec.containers[0]
        place = f"{path}.members[{index}].template.spec.containers[0]"
        line = CommandLine.of(container)
        if line.script and table.starting_in(line.script) and hint_is_due:
            hint_is_due = False
            yield _unread(line, place)
        if line.is_read:
            for wrong in flags.wrong_flags(line):
                yield warning(wrong.problem, f"{place}.{wrong.place}", wrong.hint, short(wrong.value))
        if member.role != constants.WORKER:
            yield from _serving(engine, engines, container, place)


def _unread(line: CommandLine, place: str) -> Problem:
    message = "is a script of more than one command, which is not read: port, parallelism, memory, served model name, "
    hint = "Write the command and its arguments as a list, or as one command, such as sh -c 'exec vllm serve …'"
    return warning(f"{message}and what must agree with other engines are not checked", f"{place}.{line.place()}", hint)


def _serving(engine: Any, engines: Sequence[Any], container: Any, place: str) -> Iterator[Problem]:
    line = CommandLine.of(container)
    is_decode = engine.phase == constants.DECODE
    pool = pool_port(engines)
    expected = decode_port(engine) if is_decode else pool
    heard = _listening(line)
    port = heard.port or line.number(("--port",), _MAX_PORT)
    if engine.port and engine.port != pool and not is_decode:
        engine_path = place.partition(".members[")[0]
        hint = f"Set port: {pool}, because one Service port leads to all engines of a replica"
        yield Problem(f"differs from the port of another engine, {pool}", f"{engine_path}.port", str(engine.port), hint)
    elif is_decode and (port or expected) == pool:
        message = f"a Decode engine cannot listen on port {pool}: its sidecar listens there"
        hint = f"Set --port={constants.DECODE_PORT}, or any other port"
        # Earlier versions accepted the default port, so it stops no run.
        is_set = engine.port or line.has(("--port",))
        yield (Problem if is_set else warning)(message, f"{place}.{_field(line)}", hint=hint)
    elif table.is_loopback(heard.address) or (port and port != expected):
        yield _unreachable(line, heard, port, expected, place)
    if line.server and line.is_read:
        yield from _protocol(line.server, line, engine, container, place)


def _unreachable(line: CommandLine, heard: _Listening, port: int, expected: int, place: str) -> Problem:
    """Return the problem of an engine that listens on another port, or only within the pod."""
    server = line.server
    is_local, is_other = table.is_loopback(heard.address), bool(port) and port != expected
    settings = _settings(server, expected, is_local=is_local, is_other=is_other)
    origin = heard.port_origin if is_other else heard.address_origin
    if is_local:
        where = f"{heard.address}:{port}" if port else heard.address
        message = f"makes the engine listen on {where}{origin}, where neither the gateway nor probes reach it"
        return warning(message, f"{place}.{_field(line)}", f"Set {settings}")
    message = f"makes the engine listen on port {port}{origin}, where it gets no requests"
    hint = f"Probes and the InferencePool expect port {expected}: set {settings}, or port: {port} beside members"
    return warning(message, f"{place}.{_field(line)}", hint)


def _settings(server: Server | None, port: int, *, is_local: bool, is_other: bool) -> str:
    if server is None:
        return f"--port={port}"
    if not server.address_flags and server.address_variable:
        return f"the variable {server.address_variable} to {table.ALL_ADDRESSES}:{port}"
    address = f"{server.address_flags[0]}={table.ALL_ADDRESSES}" if is_local and server.address_flags else ""
    number = f"{server.port_flags[0]}={port}" if server.port_flags else f"the variable {server.port_variable} to {port}"
    return " and ".join(filter(None, (address, number if is_other else "")))


def _field(line: CommandLine) -> str:
    server = line.server
    flag = line.find((*server.port_flags, *server.address_flags) if server else ("--port",))
    return line.place(flag).partition("[")[0]


def _listening(line: CommandLine) -> _Listening:
    """Return where a known server listens, by its flags, its variables, or its defaults. A file of flags may say
    otherwise."""
    server = line.server
    if server is None or not line.is_read:
        return _Listening()
    is_certain = not line.unknown_flags and not line.has(_CONFIG) and not line.has(server.sockets)
    address, port = line.find(server.address_flags), line.find(server.port_flags)
    address_value, port_value = line.variable(server.address_variable), line.variable(server.port_variable)
    title = f", the default of {server.title}"
    found, number, address_origin, port_origin = "", "", "", ""
    if address:
        found = address.value if is_known(address.value) else ""
    elif address_value:
        found, address_origin = address_value, f" by the variable {server.address_variable}"
    elif address_value == "" and is_certain:
        found, address_origin = server.address, title
    if port:
        number = port.value if is_known(port.value) else ""
    elif port_value:
        number, port_origin = port_value, f" by the variable {server.port_variable}"
    elif port_value == "" and is_certain:
        number, port_origin = str(server.port), title
    if not server.address_flags and address_value:
        # The variable has both.
        url = _URL.fullmatch(address_value)
        found, number, port_origin = (url[1], url[2] or str(server.port), address_origin) if url else ("", "", "")
    elif not server.address_flags and address_value is None:
        number = ""
    is_port = number.isdecimal() and len(number) < 6 and int(number) <= _MAX_PORT
    return _Listening(found, address_origin, int(number) if is_port else 0, port_origin)


def _protocol(server: Server, line: CommandLine, engine: Any, container: Any, place: str) -> Iterator[Problem]:
    """Yield flags with which a server does not answer the HTTP requests of probes and gateways."""
    if flag := line.find(server.tls):
        message = "makes the engine serve HTTPS, while the gateway and probes send HTTP"
        yield warning(message, f"{place}.{line.place(flag)}", f"Remove {flag.name}: the gateway terminates TLS")
    for index, variable in enumerate(container.env or ()):
        if variable.name in server.tls_variables and (variable.value or variable.value_from):
            message = "makes the engine serve HTTPS, while the gateway and probes send HTTP"
            yield warning(message, f"{place}.env[{index}]", "Remove it: the gateway terminates TLS")
    if flag := line.find(server.sockets):
        message = "makes the engine listen on a Unix socket only, where it gets no requests"
        yield warning(message, f"{place}.{line.place(flag)}", f"Remove {flag.name}")
    own = container.readiness_probe and container.readiness_probe.http_get
    path = (own.path or "/") if own else engine.health_path or server.health
    prefix = line.value(server.prefixes)
    if prefix and not container.readiness_probe and not path.startswith(prefix):
        message = f"moves the health path, and probes ask for {path}"
        yield warning(message, f"{place}.{line.place()}", f"Set healthPath: {prefix}{server.health} beside members")
    has_key = line.has(server.keys) or line.variable(server.key_variable) != ""
    if server.keys and has_key and path.startswith("/v1/"):
        message = f"is {path}, which {server.title} answers with 401, because it has an API key and probes have none"
        where = f"{place}.readinessProbe" if own else f"{place.partition('.members[')[0]}.healthPath"
        yield warning(message, where, f"Use {server.health}, which needs no key")

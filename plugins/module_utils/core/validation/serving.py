# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Validation of the addresses, ports and flags of inference servers.

Servers that are not in the table have no findings except for an explicit port. `model_gateways` warns about them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..compose import constants
from ..compose.disaggregation import decode_port, pool_port
from ..problem import Problem, warning
from ..servers import flags, table
from ..servers.command_line import CommandLine, Flag, is_known, with_dashes
from ..servers.table import Server
from ..text import nearest, short

_MAX_PORT = 65535
_URL = re.compile(r"(?:(https?)://)?(\[[^\]]*\]|[^:/]*)(?::([0-9]{1,5}))?/?")
# Ports of URLs that contain no port.
_SCHEME_PORTS = {"http": "80", "https": "443"}
_HTTPS = "makes the engine serve HTTPS, while the gateway and probes send HTTP"


@dataclass(frozen=True)
class _Listener:
    """Address and port of a server, each with its origin. Empty and 0 if they are unknown."""

    address: str = ""
    address_origin: str = ""
    port: int = 0
    port_origin: str = ""


def engine_serving(engine: Any, engines: Sequence[Any], path: str) -> Iterator[Problem]:
    """Yield the problems of an engine of a replica with these engines. `path` is the path of the engine."""
    scripts = 0
    for index, member in enumerate(engine.members):
        container = member.template.spec.containers[0]
        container_path = f"{path}.members[{index}].template.spec.containers[0]"
        line = CommandLine.of(container)
        if line.script and table.servers_in(line.script):
            scripts += 1
            if scripts == 1:
                yield _unparsed(line, container_path)
        yield from wrong_flags(line, container_path)
        if member.role != constants.WORKER:
            yield from _port(line, engine, engines, path, container_path)
            if line.server and line.is_parsed:
                yield from _protocol(line.server, line, engine, container, container_path)


def _unparsed(line: CommandLine, path: str) -> Problem:
    message = "is a script of more than one command, which is not read: port, parallelism, memory, served model name, "
    hint = "Write the command and its arguments as a list, or as one command, such as sh -c 'exec vllm serve …'"
    return warning(f"{message}and agreement with other engines are not checked", f"{path}.{line.element()}", hint)


# --- address, port and protocol ---


def _port(line: CommandLine, engine: Any, engines: Sequence[Any], path: str, container_path: str) -> Iterator[Problem]:
    """Yield an engine that listens on another address or port than the requests use."""
    is_decode = engine.phase == constants.DECODE
    pool = pool_port(engines)
    expected = decode_port(engine) if is_decode else pool
    listener = _listener(line)
    port = listener.port or (0 if table.starts_client(line.words) else line.number(("--port",), _MAX_PORT))
    location = f"{container_path}.{_field(line)}"
    if engine.port and engine.port != pool and not is_decode:
        hint = f"Set port: {pool}, because one Service port is for all engines of a replica"
        yield Problem(f"differs from the port of another engine, {pool}", f"{path}.port", str(engine.port), hint)
    elif is_decode and (port or expected) == pool:
        message = f"a Decode engine cannot listen on port {pool}: its sidecar listens there"
        # An error only if the port is set, because earlier versions accepted the default port.
        problem = Problem if engine.port or line.has(("--port",)) else warning
        yield problem(message, location, hint=f"Set --port={constants.DECODE_PORT}, or any other port")
    elif table.is_loopback(listener.address):
        where = f"{listener.address}:{port}" if port else listener.address
        is_other = bool(port) and port != expected
        origin = listener.port_origin if is_other else listener.address_origin
        message = f"makes the engine listen on {where}{origin}, where neither the gateway nor probes reach it"
        yield warning(message, location, f"Set {_settings(line.server, expected, is_local=True, is_other=is_other)}")
    elif port and port != expected:
        message = f"makes the engine listen on port {port}{listener.port_origin}, but requests use another port"
        settings = _settings(line.server, expected, is_local=False, is_other=True)
        hint = f"Probes and the InferencePool expect port {expected}: set {settings}, or port: {port} next to members"
        yield warning(message, location, hint)


def _settings(server: Server | None, port: int, *, is_local: bool, is_other: bool) -> str:
    """Return the settings that make a server listen on all addresses and on a port."""
    if server is None:
        return f"--port={port}"
    if not server.address.flags and server.address.variable:
        return f"the variable {server.address.variable} to {table.ALL_ADDRESSES}:{port}"
    settings = [f"{server.address.flags[0]}={table.ALL_ADDRESSES}"] if is_local and server.address.flags else []
    if is_other:
        flag, variable = (*server.port.flags, "")[0], server.port.variable
        settings.append(f"{flag}={port}" if flag else f"the variable {variable} to {port}")
    return " and ".join(settings)


def _field(line: CommandLine) -> str:
    server = line.server
    names = (*server.port.flags, *server.address.flags) if server else ("--port",)
    return line.element(names).partition("[")[0]


def _listener(line: CommandLine) -> _Listener:
    """Return the address and the port of a server by its flags, its variables, or its defaults."""
    server = line.server
    if server is None or not line.is_parsed:
        return _Listener()
    address, address_origin = line.setting(server.address)
    port, port_origin = line.setting(server.port)
    if not server.address.flags and line.variable(server.address.variable) != "":
        # The variable contains the port too.
        url = _URL.fullmatch(address or "")
        address, port, port_origin = "", "", address_origin
        if url:
            address, port = url[2], url[3] or _SCHEME_PORTS.get(url[1] or "", server.port.default)
    is_port = port is not None and port.isdecimal() and len(port) < 6 and int(port) <= _MAX_PORT
    return _Listener(address or "", address_origin, int(port or 0) if is_port else 0, port_origin)


def _protocol(server: Server, line: CommandLine, engine: Any, container: Any, path: str) -> Iterator[Problem]:
    """Yield settings that keep a server from responding to the HTTP requests of probes and gateways."""
    if flag := line.find(server.tls.flags):
        hint = f"Remove {flag.name}: the gateway terminates TLS"
        yield warning(_HTTPS, f"{path}.{line.element(server.tls.flags)}", hint)
    for index, variable in enumerate(container.env or ()):
        if variable.name == server.tls.variable and (variable.value or variable.value_from):
            yield warning(_HTTPS, f"{path}.env[{index}]", "Remove it: the gateway terminates TLS")
    if flag := line.find(server.socket):
        message = "makes the engine listen on a Unix socket, where neither the gateway nor probes reach it"
        yield warning(message, f"{path}.{line.element(server.socket)}", f"Remove {flag.name}")
    http_get = container.readiness_probe and container.readiness_probe.http_get
    health = (http_get.path or "/") if http_get else engine.health_path or server.health
    prefix = line.setting(server.prefix)[0]
    if prefix and not health.startswith(f"{prefix}/") and (http_get or not container.readiness_probe):
        message = f"moves all paths of the engine below {prefix}, while probes send requests to {health}"
        hint = f"Set healthPath: {prefix}{server.health}, or remove the prefix"
        yield warning(message, f"{path}.{line.element(server.prefix.flags)}", hint)
    has_key = line.has(server.key.flags) or line.variable(server.key.variable) != ""
    if has_key and health.startswith("/v1/"):
        message = f"is {health}, and {server.title} rejects probes there with 401, because they have no API key"
        location = f"{path}.readinessProbe" if http_get else f"{path.partition('.members[')[0]}.healthPath"
        yield warning(message, location, f"Use {server.health}, which needs no key")


# --- flags ---


def wrong_flags(line: CommandLine, path: str) -> Iterator[Problem]:
    """Yield the flags that keep a server from starting: invalid values of parallelism, device memory and context, and
    flags that its version does not have. `path` is the path of the container."""
    server = line.server
    if server is None or not line.is_parsed:
        return
    for flag in line.flags:
        location = f"{path}.{line.fields[flag.position]}"
        name, space, value = flag.name.partition(" ")
        requirement = _requirement(flag, server)
        if requirement and is_known(flag.value) and "{{" not in flag.value:
            message = f"has an invalid value of {flag.name}, so the engine does not start"
            yield warning(message, location, f"It must be {requirement}", short(flag.value or "nothing"))
        elif space:
            message = f"is one word with a space, which {server.title} does not accept for the flag {name}"
            yield warning(message, location, f"Write {name}={value.strip()}")
        else:
            yield from _missing_flag(flag, server, table.version(server, line.image), location)


def _missing_flag(flag: Flag, server: Server, version: str, location: str) -> Iterator[Problem]:
    """Yield a flag that the version of a server does not have."""
    released = table.released(server.name)
    name = with_dashes(flag.name.partition(".")[0].removesuffix("+"))[2:]
    if not flag.name.startswith("--") or not is_known(flag.name) or not name or version not in released:
        return
    # argparse accepts the beginning of a name, and the servers accept the opposite of a switch.
    if any(flag_name.startswith((name, name.removeprefix("no-"))) for flag_name in released[version]):
        return
    versions = [candidate for candidate in released if name in released[candidate]]
    later = [candidate for candidate in versions if table.version_numbers(candidate) > table.version_numbers(version)]
    hint = "Remove it"
    if later:
        hint = f"{server.title} has it since {later[0]}: use such an image, or remove it"
    elif versions:
        hint = f"{versions[-1]} was the last version that had it: remove it"
    elif similar := nearest(name, sorted(released[version])):
        hint = f"Did you mean --{similar}?"
    yield warning(f"{flag.name}: {server.title} {version} has no such flag, and does not start with it", location, hint)


def _requirement(flag: Flag, server: Server) -> str:
    """Return the requirement that the value of a flag does not meet, or an empty string."""
    value, is_positive = flag.value, flags.is_positive(flag.value)
    if flag.name in server.axes:
        return "" if is_positive else "a whole number of 1 or more"
    if flag.name in server.names:
        return "" if value else "a name"
    if server.memory and flag.name == server.memory[0]:
        return "" if _is_fraction(value) else "a number above 0 and up to 1, such as 0.9"
    if flag.name not in server.context:
        return ""
    if server.name == "vllm":
        is_valid = value in ("auto", "-1") or flags.parse_tokens(value)
        return "" if is_valid else "a number of tokens such as 32768, 32k (32,000) or 32K (32,768), or auto"
    return "" if is_positive else "a whole number of tokens such as 32768"


def _is_fraction(text: str) -> bool:
    try:
        return 0 < float(text) <= 1
    except ValueError:
        return False

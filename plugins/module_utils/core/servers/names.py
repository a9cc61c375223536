# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Names under which engines serve their model, as far as they are certain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.pod_template import Container
from ansible_collections.modelplane.fleet.plugins.module_utils.core.servers.command_line import (
    CommandLine,
    is_known,
    sources,
)

SERVED_NAME = "--served-model-name"
_CONFIG = "--config"


@dataclass(frozen=True)
class ServedNames:
    """Names under which an engine serves its model; empty when its flags set none that is known.

    `can_be_added`: further arguments reach it, and all are known, so that the flag can be added to them. `unknown`: the
    variables that names come from and that are known in the pod only; `unknown_flags`: those that may set any flag. An
    empty text is a command of the shell in place of a variable. `in_file`: flags are read from a file, and no other one
    sets a name. `in_script`: they are in a script that is not read. `refused`: how many names are given to a program
    that takes one."""

    names: tuple[str, ...]
    can_be_added: bool
    unknown: tuple[str, ...] = ()
    unknown_flags: tuple[str, ...] = ()
    in_file: bool = False
    in_script: bool = False
    refused: int = 0


def served_names(container: Container, own: Mapping[str, str]) -> ServedNames | None:
    """Return the names under which an engine that is vLLM or SGLang serves its model; None for other programs. `own`
    are the variables that the fleet sets where a container does not."""
    line = CommandLine.of(container, own)
    server = line.server
    if server is None or SERVED_NAME not in server.names or not server.running:
        return None
    if not line.is_read:
        return ServedNames((), can_be_added=False, in_script=True)
    flag = line.find(server.names)
    found = flag.values if flag else ()
    unknown = [name for name in found if not is_known(name)]
    has_file = line.has((_CONFIG,))
    return ServedNames(
        names=tuple(name for name in found if is_known(name)),
        can_be_added=not (line.is_shell or line.unknown_flags or has_file or unknown),
        unknown=sources(unknown),
        unknown_flags=sources(line.unknown_flags),
        in_file=has_file and not found,
        refused=len(found) if server.one_name and len(found) > 1 else 0,
    )

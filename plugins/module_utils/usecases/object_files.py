# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Files of the objects of a plan. Files that the cache proves to be current are not composed again."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial

from ..core.compose.control import missing_namespaces, unowned_namespace
from ..core.compose.defaults import with_defaults
from ..core.manifest_text import to_yaml
from ..core.names import SYSTEM_NAMESPACE
from ..core.planning.workloads import Workloads
from ..core.wire import Object
from ..stores.directory import file_text, is_unowned_namespace, object_path
from ..stores.known_files import Inputs, KnownFiles


def control_files(
    placed: Iterable[tuple[str, Object]], before: Mapping[str, str], known: KnownFiles | None
) -> dict[str, str]:
    """Return the files of objects outside inference clusters, and of the users' namespaces on the control cluster.

    `placed`: objects with their directory."""
    placed = list(placed)
    placed += [("control", value) for value in missing_namespaces(value for top, value in placed if top == "control")]
    if known is None:
        return _texts(placed, before)
    previous_texts: dict[str, dict[str, str]] = {}
    for name, text in before.items():
        previous_texts.setdefault(name.rpartition("/")[0], {})[name] = text
    groups: dict[str, list[tuple[str, Object]]] = {}
    for top, value in placed:
        groups.setdefault(object_path(top, value).rpartition("/")[0], []).append((top, value))
    files: dict[str, str] = {}
    for folder, values in groups.items():
        inputs = partial(_control_inputs, values)
        files.update(_known_files(known, folder, inputs, previous_texts.get(folder, {}), partial(_texts, values)))
    return files


def _control_inputs(values: Sequence[tuple[str, Object]]) -> Sequence[str]:
    return (json.dumps(values, default=repr),)


def workload_files(
    workloads: Workloads, cluster: str, before: Mapping[str, str], known: KnownFiles | None
) -> Mapping[str, str]:
    """Return the files of an inference cluster, at least the file of a namespace.

    A tool that applies the directory deletes nothing if the directory is empty."""
    top = f"clusters/{cluster}"

    def composed(before: Mapping[str, str]) -> dict[str, str]:
        objects = workloads[cluster]
        files = _texts(((top, value) for value in objects), before)
        return {**_texts([(top, unowned_namespace(SYSTEM_NAMESPACE))], before), **files}

    files = _known_files(known, cluster, partial(workloads.inputs, cluster), before, composed)
    if files is before:
        workloads.keep_size(cluster, sum(not is_unowned_namespace(*file) for file in before.items()))
    return files


def left_clusters(before: Mapping[str, Mapping[str, str]], clusters: Container[str]) -> dict[str, str]:
    """Return the remaining files of clusters that left the fleet: their namespace.

    A tool that still applies the directory then deletes all other objects."""
    value = unowned_namespace(SYSTEM_NAMESPACE)
    removed = [
        cluster
        for cluster, files in before.items()
        if cluster not in clusters and any(name.count("/") > 1 for name in files)
    ]
    return {
        name: text
        for cluster in removed
        for name, text in _texts([(f"clusters/{cluster}", value)], before[cluster]).items()
    }


def _known_files(
    known: KnownFiles | None,
    group: str,
    inputs: Inputs,
    previous_files: Mapping[str, str],
    make: Callable[[Mapping[str, str]], dict[str, str]],
) -> Mapping[str, str]:
    """Return the files for these inputs. `previous_files` is returned if a seal proves that it is current."""
    if known is not None and known.prove(group, inputs, previous_files):
        return previous_files
    files = make(previous_files)
    if known is not None:
        known.note(group, inputs, files)
    return files


def _texts(placed: Iterable[tuple[str, Object]], previous_files: Mapping[str, str]) -> dict[str, str]:
    """Return the files of objects. `placed`: objects with their directory."""
    files = {}
    for top, value in placed:
        name = object_path(top, value)
        text = file_text(name, to_yaml(with_defaults(value), sort_keys=True))
        previous_text = previous_files.get(name)
        files[name] = previous_text if previous_text == text else text
    return files

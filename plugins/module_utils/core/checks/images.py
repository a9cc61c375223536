# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Programs that a workload runs, by the repositories of its images, wherever they are mirrored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..wire import Object, entries, fields, text


def runs(workload: Object, images: Iterable[str]) -> bool:
    """Return True if a Deployment or DaemonSet runs one of these images.

    `images`: the last parts of repositories (`lws`, `envoyproxy/gateway`).
    """
    return any(f"/{repository}".endswith(f"/{image}") for repository in _repositories(workload) for image in images)


def _repositories(workload: Object) -> Iterator[str]:
    pod = fields(workload, "spec", "template", "spec")
    for container in (*entries(pod, "containers"), *entries(pod, "initContainers")):
        # A port of the registry has a colon too.
        repository, _colon, tag = text(container, "image").partition("@")[0].rpartition(":")
        yield repository if repository and "/" not in tag else f"{repository}:{tag}".removeprefix(":")

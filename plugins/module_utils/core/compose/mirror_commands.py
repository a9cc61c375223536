# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Command lines of Helm, crane and skopeo that copy charts and images, and the parsing of their output.

Credentials are never arguments. Helm reads passwords from standard input, and the environment names a file with logins.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..yaml_documents import Source, documents

LEAST_HELM = (3, 17, 0)
_RELEASE = re.compile(r"(\d+)\.(\d+)\.(\d+)")
# Registries differ in their messages for something missing, and some answer "denied" in order not to disclose it.
_MISSING = re.compile("(?i)not.?found|unknown|404|denied|forbidden|unauthorized")


class MirrorError(Exception):
    """Reason why a chart or an image cannot be copied."""


@dataclass(frozen=True)
class Render:
    """Release, namespace, and values of a rendered chart."""

    release: str
    namespace: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Chart:
    """Entry of `mirror.charts`.

    `archive`: the path in the folder of charts, if the folder contains the archive.
    """

    chart: str
    version: str
    source: str
    file: str
    ref: str
    repository: str
    destination: str
    archive: str
    renders: Sequence[Render]

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Chart:
        return cls(**{**values, "renders": tuple(Render(**render) for render in values["renders"])})

    def __str__(self) -> str:
        return f"{self.chart} {self.version}"


@dataclass(frozen=True)
class Image:
    """Entry of the images of `mirror.needs`. `repository` is that of the source, without tag and digest."""

    image: str
    source: str
    repository: str
    destination: str


@dataclass(frozen=True)
class Helm:
    """Helm. `plain` and `sources_plain`: the registries of copies and of sources are plain HTTP."""

    program: str
    plain: bool = False
    sources_plain: bool = False

    def version(self) -> list[str]:
        return [self.program, "version", "--short"]

    def login(self, repository: str, username: str) -> list[str]:
        """Log in to a repository of charts. The password is read from standard input."""
        name = repository_name(repository)
        return [self.program, "repo", "add", name, repository, "--username", username, "--password-stdin"]

    def pull(self, chart: Chart, folder: str, *, logged_in: bool) -> list[str]:
        """Download an archive from its source, through the logged-in repository if one exists."""
        ref = f"{repository_name(chart.repository)}/{chart.ref}" if logged_in else chart.ref
        repository_flags = ["--repo", chart.repository] if chart.repository and not logged_in else []
        return [*self._pull(ref, chart.version, folder), *repository_flags, *_flag("--plain-http", self.sources_plain)]

    def pull_copy(self, chart: Chart, folder: str) -> list[str]:
        """Download an archive from the registry of copies."""
        ref = f"{chart.destination}/{chart.chart}"
        return [*self._pull(ref, chart.version, folder), *_flag("--plain-http", self.plain)]

    def push(self, chart: Chart, archive: str) -> list[str]:
        return [self.program, "push", archive, chart.destination, *_flag("--plain-http", self.plain)]

    def template(self, archive: str, render: Render) -> list[str]:
        """Render the chart with values from standard input, for the oldest supported Kubernetes version."""
        release_arguments = [render.release, archive, "--namespace", render.namespace]
        cluster = ["--kube-version", "1.34.0", "--api-versions", "resource.k8s.io/v1"]
        return [self.program, "template", *release_arguments, "--values", "-", "--skip-tests", *cluster]

    def _pull(self, ref: str, version: str, folder: str) -> list[str]:
        return [self.program, "pull", ref, "--version", version, "--destination", folder]


@dataclass(frozen=True)
class ImageTool:
    """Program that copies images: skopeo if its name contains that, else crane."""

    program: str
    plain: bool = False
    sources_plain: bool = False

    @property
    def _skopeo(self) -> bool:
        return "skopeo" in self.program.rpartition("/")[2]

    def version(self) -> list[str]:
        return [self.program, "--version" if self._skopeo else "version"]

    def inspect(self, reference: str, *, copy: bool) -> list[str]:
        """Read the digest (crane) or the manifest (skopeo) of an image at its source or of its copy."""
        plain = self.plain if copy else self.sources_plain
        if self._skopeo:
            return [self.program, "inspect", "--raw", *_flag("--tls-verify=false", plain), f"docker://{reference}"]
        return [self.program, "digest", *_flag("--insecure", plain), reference]

    def digest(self, answer: bytes) -> str:
        """Return the digest from the output of `inspect`."""
        if self._skopeo:
            return f"sha256:{hashlib.sha256(answer).hexdigest()}"
        return answer.decode("utf-8", "replace").strip()

    def copy(self, image: Image, digest: str) -> list[str]:
        """Copy all architectures unchanged, by digest: with `--insecure` for one registry, crane verifies the
        certificates of neither."""
        source = f"{image.repository}@{digest}"
        if not self._skopeo:
            plain = _flag("--insecure", self.plain or self.sources_plain)
            return [self.program, "copy", *plain, source, image.destination]
        plain = [*_flag("--src-tls-verify=false", self.sources_plain), *_flag("--dest-tls-verify=false", self.plain)]
        copy_flags = ["--all", "--preserve-digests", "--retry-times", "3"]
        return [self.program, "copy", *copy_flags, *plain, f"docker://{source}", f"docker://{image.destination}"]


def environment(folder: str, logins: str, authorities: str) -> dict[str, str]:
    """Return the variables that keep programs from reading or writing settings, caches and logins of their user.

    `logins` is the path of a file named `config.json`; some programs expect the path of its folder."""
    homes = {f"HELM_{name}_HOME": f"{folder}/{name.lower()}" for name in ("CACHE", "CONFIG", "DATA")}
    config_paths = {
        "HELM_REGISTRY_CONFIG": logins,
        "DOCKER_CONFIG": logins.rpartition("/")[0],
        "REGISTRY_AUTH_FILE": logins,
    }
    return {**homes, **config_paths, **({"SSL_CERT_FILE": authorities} if authorities else {})}


def repository_name(repository: str) -> str:
    """Return the name of a chart repository in the configuration of Helm."""
    return hashlib.sha256(repository.encode()).hexdigest()


def helm_finding(program: str, version: str, error: str) -> str:
    """Return the problem of a Helm that printed this version or failed with this error; "" without a problem."""
    hint = "Install Helm 3.17 or newer on the machine that runs Ansible, or name its program in mirror_helm."
    if error:
        return f"{program} does not run ({error}). {hint}"
    release = _RELEASE.search(version)
    if release is None or tuple(map(int, release.groups())) < LEAST_HELM:
        return f"{program} is Helm {release[0] if release else version.strip() or 'without a version'}. {hint}"
    return ""


def no_tool_finding(program: str, images: Sequence[Image]) -> str:
    """Return the error for a missing program to copy images, with each image and its destination."""
    program_note = f" as {program}" if program else ""
    lines = [f"{image.source} {image.destination}" for image in images]
    hint = (
        "Install one of them, or name its program in mirror_image_tool, or copy these by other means, each with all "
        "its architectures:"
    )
    return "\n".join((f"Neither crane nor skopeo runs here{program_note}. {hint}", *lines))


def is_missing(error: str) -> bool:
    """Return True when the error of a registry means that it does not have the chart or image."""
    return bool(_MISSING.search(error))


def locked(text: bytes, path: str) -> dict[str, dict[str, str]]:
    """Return the entries of a `charts.lock` (`file`, `source`, `sha256`) by file. Raises MirrorError."""
    entries: dict[str, dict[str, str]] = {}
    for document in documents(Source(path, text)):
        value = document.value if document.complete else None
        charts = value.get("charts") if isinstance(value, dict) else None
        for entry in charts if isinstance(charts, list) else [None]:
            if not isinstance(entry, dict) or not {"file", "sha256"} <= entry.keys():
                raise MirrorError(f"{path} is not a list of charts with file, source and sha256. Fix or delete it.")
            entries[str(entry["file"])] = {key: str(entry[key]) for key in sorted(entry)}
    return entries


def check_lock(chart: Chart, checksum: str, locked: str, lock: str, folder: str) -> None:
    """Raise MirrorError when the checksum of an archive differs from the locked one."""
    if locked in ("", checksum):
        return
    origin = f"in {folder}" if chart.archive else f"from {chart.source}"
    raise MirrorError(
        f"{chart.file} {origin} has sha256 {checksum}, but {lock} has {locked}: archives of one version never change. "
        "Find out which one is right, and delete the other archive or its entry."
    )


def check_copy(chart: Chart, checksum: str, copied: str, *, replace: bool) -> bool:
    """Return True when an archive has to replace the one in the registry. Raises MirrorError when it must not."""
    if checksum != copied and not replace:
        raise MirrorError(
            f"{chart.destination}/{chart.chart} has version {chart.version} with sha256 {copied}, but that of "
            f"{chart.source} has {checksum}. Find out which one is right; mirror_replace overwrites the copy."
        )
    return checksum != copied


def _flag(flag: str, is_set: bool) -> list[str]:
    return [flag] if is_set else []

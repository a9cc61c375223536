# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Costs and limits of the Python package `kubernetes` and of our client (docs/contributing/architecture.md, Decisions).

Prints processor time and memory of imports, requests of discovery, the end of answers that have none, and the errors of
invalid kubeconfigs. It needs what tests need, and no cluster.
"""

from __future__ import annotations

import copy
import json
import logging
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / ".collections"))

OURS = "import pydantic, yaml, urllib3"
IMPORTS = {
    "pydantic, yaml, urllib3": OURS,
    "and kubernetes.client.rest": f"{OURS}, kubernetes.client.rest",
    "and kubernetes.client": f"{OURS}, kubernetes.client",
    "and kubernetes.config": f"{OURS}, kubernetes.config",
    "and kubernetes.dynamic": f"{OURS}, kubernetes.dynamic",
}
RUNS = 9
# Kinds that a check of a cluster without the serving stack reads, in its order; the server serves all but NOT_SERVED.
CHECK = (
    ("resource.k8s.io/v1", "ResourceSlice"),
    ("authorization.k8s.io/v1", "SelfSubjectAccessReview"),
    ("resource.k8s.io/v1", "ResourceClaim"),
    ("v1", "Node"),
    ("storage.k8s.io/v1", "StorageClass"),
    ("v1", "Service"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "DaemonSet"),
    ("gateway.networking.k8s.io/v1", "GatewayClass"),
    ("resource.k8s.io/v1", "DeviceClass"),
    ("v1", "Namespace"),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"),
    ("v1", "Secret"),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    ("security.openshift.io/v1", "SecurityContextConstraints"),
)
NOT_SERVED = {"GatewayClass", "SecurityContextConstraints"}
TIMEOUT = 0.5
SIZE = 1 << 29
PATIENCE = 10.0


def main() -> None:
    for name, code in IMPORTS.items():
        seconds, size = imported(code)
        print(f"import {name:27} {seconds:5.2f} s of processor, {size:4.0f} MiB")
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ.update(XDG_CACHE_HOME=str(folder / "cache"), HOME=str(folder), NO_PROXY="*")
        discovery(folder)
        for sickness in ("an error packed a thousand times", "a body that drips"):
            exchange(folder, sickness)
        kubeconfigs()


def imported(code: str) -> tuple[float, float]:
    """Least processor seconds, and MiB, of a Python that imports."""
    program = f"{code}\nimport resource\nused = resource.getrusage(resource.RUSAGE_SELF)\n"
    program += "print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)"
    runs = [subprocess.run([sys.executable, "-c", program], capture_output=True, check=True) for _ in range(RUNS)]
    seconds, size = min(tuple(map(float, run.stdout.split())) for run in runs)
    return seconds, size


def discovery(folder: Path) -> None:
    """Requests of a check that ask which kinds are served, with an empty cache and with the one of the run before."""
    from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.kubernetes.scripted import Server

    server = Server(None, folder)
    server.served = served()
    for name, run in (("ours", our_lookups), ("kubernetes.dynamic", library_lookups)):
        counts = []
        for _ in range(2):
            server.seen.clear()
            run(server.url, folder)
            counts.append(len(server.seen))
        print(f"discovery by {name:18} {counts[0]:3} requests, {counts[1]:3} in a second run")
    server.stop()


def served() -> dict[str, Any]:
    """Answers of a server that serves the kinds of CHECK but for NOT_SERVED."""
    answers: dict[str, Any] = {"/version": {"major": "1", "minor": "36", "gitVersion": "v1.36.0"}}
    groups: dict[str, Any] = {}
    for api_version, kind in CHECK:
        if kind in NOT_SERVED:
            continue
        path = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        empty = {"kind": "APIResourceList", "groupVersion": api_version, "resources": []}
        entry = {"name": f"{kind.lower()}s", "singularName": "", "kind": kind, "namespaced": False, "verbs": ["get"]}
        answers.setdefault(path, empty)["resources"].append(entry)
        group, slash, version = api_version.partition("/")
        if slash:
            reported = {"groupVersion": api_version, "version": version}
            groups[group] = {"name": group, "versions": [reported], "preferredVersion": reported}
    return {**answers, "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": list(groups.values())}}


def our_lookups(url: str, _folder: Path) -> None:
    from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import Connection, connect

    with connect(Connection("west", server=url)) as client:
        for api_version, kind in CHECK:
            assert client.serves(api_version, kind) == (kind not in NOT_SERVED)


def library_lookups(url: str, folder: Path) -> None:
    from kubernetes.dynamic.exceptions import ResourceNotFoundError

    client = library(url, folder)
    for api_version, kind in CHECK:
        try:
            client.resources.get(api_version=api_version, kind=kind)
        except ResourceNotFoundError:
            assert kind in NOT_SERVED


def library(url: str, folder: Path) -> Any:
    """The client of the package, as its documentation shows it."""
    from kubernetes.client import ApiClient, Configuration
    from kubernetes.dynamic import DynamicClient

    configuration = Configuration()
    configuration.host = url
    configuration.retries = False
    return DynamicClient(ApiClient(configuration), cache_file=str(folder / "discovery.json"))


def exchange(folder: Path, sickness: str) -> None:
    """Time and memory that one answer takes; each client is a process of its own."""
    from ansible_collections.modelplane.fleet.tests.sick import OK, drip, packed
    from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.kubernetes.scripted import (
        Raw,
        Reply,
        Server,
    )

    server = Server(None, folder)
    server.served = served()
    if "drips" in sickness:
        server.always = lambda _request: Raw(drip(OK + b"Content-Length: 100000\r\n\r\n", b" ", TIMEOUT / 5))
    else:
        packed(SIZE)
        server.always = lambda _request: Reply(403, packed(SIZE), {"Content-Encoding": "gzip"})
    for name in READERS:
        print(f"{sickness:33} by {name:18} {reader(name, server.url, folder)}")
    server.stop()


def our_read(url: str, _folder: Path) -> None:
    from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import Connection, connect

    with connect(Connection("west", server=url, timeout=TIMEOUT, retries=0)) as client:
        client.list("v1", "Node")


def library_read(url: str, folder: Path) -> None:
    client = library(url, folder)
    client.get(client.resources.get(api_version="v1", kind="Node"), _request_timeout=(TIMEOUT, TIMEOUT))


READERS: dict[str, Callable[[str, Path], None]] = {"ours": our_read, "kubernetes.dynamic": library_read}


def reader(name: str, url: str, folder: Path) -> str:
    """Run one of READERS as a process of its own, for PATIENCE at most; return what it printed."""
    command = [sys.executable, __file__, name, url, str(folder)]
    try:
        return subprocess.run(command, capture_output=True, check=True, text=True, timeout=PATIENCE).stdout.strip()
    except subprocess.TimeoutExpired:
        return f"no end within {PATIENCE:g} s"


def read(name: str, url: str, folder: Path) -> None:
    """Print the error, the seconds and the memory of one of READERS."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        READERS[name](url, folder)
        error = "no error"
    except Exception as caught:
        error = type(caught).__name__
    size = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"{error} after {time.monotonic() - began:.1f} s, {size:.0f} MiB more")


def kubeconfigs() -> None:
    """Invalid kubeconfigs of the tests: how many are refused, and how many of these with the name of the field."""
    from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import Connection, connect
    from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.kubernetes.test_connection import (
        INVALID_KUBECONFIGS,
        config_for,
    )
    from kubernetes.config import new_client_from_config_dict

    def ours(made: Any) -> Any:
        connect(Connection("west", kubeconfig_text=json.dumps(made)))

    for name, load in (("ours", ours), ("kubernetes.config", new_client_from_config_dict)):
        refused = named = 0
        for change, field, _message in INVALID_KUBECONFIGS:
            made = config_for("https://x.example", "x")
            change(made)
            try:
                load(copy.deepcopy(made))
            except Exception as error:
                refused += 1
                named += field in str(error)
        count = len(INVALID_KUBECONFIGS)
        print(f"{count} invalid kubeconfigs by {name:18} {refused:2} refused, {named:2} with the name of the field")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        read(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
    else:
        main()

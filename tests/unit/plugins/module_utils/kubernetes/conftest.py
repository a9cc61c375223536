# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import Connection, connect
from ansible_collections.modelplane.fleet.tests.kube.certificates import Authority
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.kubernetes.scripted import Server


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, and none of the environment's proxies and kubeconfigs."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    for name in ("KUBECONFIG", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "scripted")


@pytest.fixture
def server(authority: Authority, tmp_path: Path) -> Iterator[Server]:
    made = Server(authority, tmp_path / "server")
    yield made
    made.stop()


@pytest.fixture
def client(server: Server, authority: Authority) -> Iterator[Client]:
    """A client with a short patience."""
    connection = Connection(
        "west", server=server.url, token="planted-token", ca_file=str(authority.path), timeout=2.0, retries=3
    )
    with connect(connection) as made:
        yield made

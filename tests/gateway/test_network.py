# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The private network by itself, without a cluster."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.tests.kube.binaries import UnavailableError
from ansible_collections.modelplane.fleet.tests.kube.processes import wait_for

from . import network as private
from .engines import Engine
from .network import NODE, Network

POD = "10.64.0.9"


@pytest.fixture
def networks(tmp_path: Path) -> Iterator[tuple[Network, Network]]:
    try:
        private.require()
    except UnavailableError as error:
        pytest.skip(str(error))
    with Network(tmp_path / "one") as one, Network(tmp_path / "other") as other:
        yield one, other


def engine(network: Network) -> Engine:
    address = network.new_address()
    return Engine("east", address, 8000, network.listen(address, 8000))


def status(sock: socket.socket) -> int:
    """Ask an engine for its models."""
    connection = http.client.HTTPConnection("east.example")
    connection.sock = sock
    connection.request("GET", "/v1/models")
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def reached(network: Network, address: str) -> int:
    """Status of an engine's answer, 0 while the way to it is not there yet."""
    try:
        return status(network.connect(address, 8000, 1.0))
    except (OSError, http.client.HTTPException):
        return 0


def test_a_pod_finds_an_engine_by_its_name(networks: tuple[Network, Network]) -> None:
    """Asked as programs ask, by the query of RFC 1035."""
    network, _ = networks
    network.names["east.example"] = [engine(network).address]
    program = """
import socket, sys
name = b"".join(bytes([len(part)]) + part.encode() for part in sys.argv[2].split(".")) + bytes(1)
asked = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
asked.settimeout(5)
asked.sendto(b"id" + bytes([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]) + name + bytes([0, 1, 0, 1]), (sys.argv[1], 53))
answer = asked.recv(512)
print(answer[3] & 15, ".".join(map(str, answer[-4:])) if answer[7] else "none")
"""
    pod = network.attach(POD)

    def ask(name: str) -> str:
        command = [sys.executable, "-I", "-S", "-c", program, NODE, name]
        return pod.run(lambda: subprocess.run(command, capture_output=True, text=True, check=True)).stdout.strip()

    assert ask("east.example") == f"0 {network.names['east.example'][0]}"
    assert ask("west.example") == "3 none"
    pod.close()


def test_the_machine_keeps_its_address_when_pods_come(networks: tuple[Network, Network]) -> None:
    """Another one would be unknown to the pods that are there, whose packets to the machine then are lost."""
    network, _ = networks
    first = network.attach(POD)
    others = [network.attach(f"10.64.1.{number}") for number in range(1, 9)]
    address = engine(network).address
    assert status(first.run(lambda: socket.create_connection((address, 8000), timeout=30))) == 200
    command = ["ip", "neighbour", "show", address]
    known = first.run(lambda: subprocess.run(command, capture_output=True, text=True, check=True)).stdout
    assert private.BRIDGE_ADDRESS in known
    for pod in (first, *others):
        pod.close()


def test_a_network_reaches_another_only_where_it_is_let(networks: tuple[Network, Network]) -> None:
    one, other = networks
    address = engine(other).address
    assert status(other.connect(address, 8000)) == 200
    assert reached(one, address) == 0
    here = one.reach(other, address, 8000)
    assert wait_for("the other network answers", lambda: reached(one, here), seconds=30) == 200


def test_programs_outside_reach_a_port_that_is_exposed(networks: tuple[Network, Network]) -> None:
    network, _ = networks
    port = network.expose(engine(network).address, 8000)

    def outside() -> int:
        try:
            return status(socket.create_connection(("127.0.0.1", port), timeout=5))
        except (OSError, http.client.HTTPException):
            return 0

    assert wait_for("the port answers", outside, seconds=30) == 200


def test_pods_reach_a_port_outside_that_is_admitted(networks: tuple[Network, Network]) -> None:
    network, _ = networks
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    made = Engine("outside", "127.0.0.1", port, listening)
    host, there = network.admit(port)

    def inside() -> int:
        try:
            return status(network.connect(host, there, 1.0))
        except (OSError, http.client.HTTPException):
            return 0

    assert wait_for("the port outside answers", inside, seconds=30) == 200
    made.die()

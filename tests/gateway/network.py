# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A private network for pods: namespaces that only this process holds, addresses in 10.0.0.0/8, and a name server.

Needs root on Linux and the program `ip`. Sockets made here belong to the private network wherever they are used, so
servers and clients of the tests talk to pods without anything in between.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from ansible_collections.modelplane.fleet.tests.kube.binaries import UnavailableError
from ansible_collections.modelplane.fleet.tests.kube.processes import Port, Process

T = TypeVar("T")
NODE = "10.128.0.1"
"""Address of the machine on the private network: the name server, and of what `Network.admit` lets in."""
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET of sched.h
_BRIDGE = "pods"
# Without one of its own it takes the lowest of its ports, another one when a pod comes: packets are lost for a while.
BRIDGE_ADDRESS = "02:00:00:00:00:01"
_RELAY = Path(__file__).with_name("relay.py")


def require() -> None:
    """Raises UnavailableError where there can be no private network."""
    if sys.platform != "linux" or os.geteuid() != 0 or not shutil.which("ip"):
        raise UnavailableError("tests of the fleet gateway need root on Linux and the program `ip`: run them as root")


class Namespace:
    """A network namespace, which ends with this process, and a thread inside it."""

    def __init__(self) -> None:
        self._inside = ThreadPoolExecutor(1, "network")
        self._descriptor = self._inside.submit(_unshare).result()
        self.path = f"/proc/{os.getpid()}/fd/{self._descriptor}"

    def run(self, act: Callable[[], T]) -> T:
        """Call `act` inside; its result."""
        return self._inside.submit(act).result()

    def ip(self, *lines: str) -> None:
        """Run lines of `ip` inside."""
        command = ["ip", "-batch", "-"]
        text = "\n".join(lines)
        done = self.run(lambda: subprocess.run(command, input=text, text=True, capture_output=True, check=False))
        if done.returncode:
            raise OSError(f"ip: {done.stderr.strip()} in:\n{text}")

    def close(self) -> None:
        self._inside.shutdown()
        os.close(self._descriptor)


class Network:
    """The network of one cluster. A context manager.

    `names` are what the name server answers beside what its `resolvers` know: host -> addresses.
    """

    def __init__(self, folder: Path) -> None:
        require()
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.names: dict[str, list[str]] = {}
        self.resolvers: list[Callable[[str], Sequence[str]]] = []
        self._node = Namespace()
        self.path = self._node.path
        self._links = 0
        self._given = 0
        self._lock = threading.Lock()
        self._relays: list[Process] = []
        self._ports: list[Port] = []
        self._proxies: list[socket.socket] = []
        self._node.ip(
            "link set lo up",
            f"link add {_BRIDGE} address {BRIDGE_ADDRESS} type bridge forward_delay 0",
            f"address add {NODE}/8 dev {_BRIDGE}",
            f"link set {_BRIDGE} up",
        )
        self._names = self._node.run(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self._names.bind((NODE, 53))
        threading.Thread(target=self._serve_names, name="names", daemon=True).start()

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for relay in self._relays:
            relay.kill()
        for port in self._ports:
            port.release()
        # A thread that waits for a datagram or a connection keeps a socket that is closed.
        for each in (self._names, *self._proxies):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._node.close()

    def attach(self, address: str) -> Namespace:
        """A namespace with this address."""
        made = Namespace()
        with self._lock:
            self._links += 1
            link = f"pod{self._links}"
        self._node.ip(
            f"link add {link} type veth peer name eth0 netns {made.path}",
            f"link set {link} master {_BRIDGE} up",
        )
        made.ip("link set lo up", f"address add {address}/8 dev eth0", "link set eth0 up")
        return made

    def new_address(self) -> str:
        """An address of the machine that no one else has."""
        with self._lock:
            self._given += 1
            address = f"10.128.{1 + self._given // 250}.{1 + self._given % 250}"
        self._node.ip(f"address add {address}/32 dev {_BRIDGE}")
        return address

    def listen(self, address: str, port: int, backlog: int = 512) -> socket.socket:
        """A socket that listens on an address of the machine."""
        made = self._node.run(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM))
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((address, port))
        made.listen(backlog)
        return made

    def connect(self, address: str, port: int, seconds: float = 30.0) -> socket.socket:
        """A connection to an address of the network."""
        made = self._node.run(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM))
        made.settimeout(seconds)
        try:
            made.connect((address, port))
        except OSError:
            made.close()
            raise
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made

    def admit(self, port: int) -> tuple[str, int]:
        """Address and port at which pods reach a port of 127.0.0.1 outside of the network."""
        self._relay(f"in-{port}", self.path, (NODE, port), "/proc/self/ns/net", [("127.0.0.1", port)])
        return NODE, port

    def expose(self, address: str, port: int) -> int:
        """The port of 127.0.0.1 at which programs outside reach a port of the network."""
        outside = Port()
        self._ports.append(outside)
        here = ("127.0.0.1", outside.number)
        self._relay(f"out-{address}-{port}", "/proc/self/ns/net", here, self.path, [(address, port)])
        return outside.number

    def proxy(self, path: Path) -> None:
        """Let programs outside reach all of the network by a proxy (HTTP CONNECT) that listens on a socket file."""
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(str(path))
        listening.listen()
        self._proxies.append(listening)
        threading.Thread(target=self._serve_proxy, args=(listening,), name="proxy", daemon=True).start()

    def reach(self, other: Network, address: str, port: int) -> str:
        """An address of this network whose `port` leads to that of an address of another network."""
        here = self.new_address()
        self._relay(f"reach-{address}-{port}", self.path, (here, port), other.path, [(address, port)])
        return here

    def balance(self, address: str, port: int, targets: Path) -> Process:
        """A process that passes on connections to the targets that a file has then, one `ADDRESS PORT` a line."""
        return self._relay(f"balance-{address}-{port}", self.path, (address, port), self.path, targets)

    def resolve(self, name: str) -> Sequence[str] | None:
        """The addresses of a host; None where there is no such host."""
        found = self.names.get(name)
        if found is not None:
            return found
        return next((addresses for each in self.resolvers if (addresses := each(name))), None)

    def _relay(
        self, name: str, inside: str, here: tuple[str, int], beyond: str, there: list[tuple[str, int]] | Path
    ) -> Process:
        targets = there if isinstance(there, Path) else self._folder / f"{name}.targets"
        if not isinstance(there, Path):
            targets.write_text("".join(f"{host} {port}\n" for host, port in there), encoding="ascii")
        command: list[str | Path] = [sys.executable, "-I", "-S", _RELAY, inside, here[0], str(here[1]), beyond, targets]
        made = Process(command, self._folder / f"relay-{name}.log")
        self._relays.append(made)
        return made

    def _serve_proxy(self, listening: socket.socket) -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(client,), name="proxied", daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        """Answer a CONNECT, and pass on what both sides send until one of them ends."""
        asked = b""
        while not asked.endswith(b"\r\n\r\n") and (byte := client.recv(1)):
            asked += byte
        with client, contextlib.suppress(OSError, IndexError):
            host, _, port = asked.split()[1].decode().rpartition(":")
            with self.connect(host, int(port)) as server:
                client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                back = threading.Thread(target=_pass_on, args=(server, client), name="proxied", daemon=True)
                back.start()
                _pass_on(client, server)
                back.join()

    def _serve_names(self) -> None:
        while True:
            try:
                query, client = self._names.recvfrom(2048)
            except OSError:
                return
            if not query:
                return
            with contextlib.suppress(OSError, IndexError, struct.error):
                self._names.sendto(self._answer(query), client)

    def _answer(self, query: bytes) -> bytes:
        """The answer of RFC 1035 to a query with one question."""
        labels, at = [], 12
        while length := query[at]:
            labels.append(query[at + 1 : at + 1 + length].decode("ascii", "replace"))
            at += 1 + length
        (kind,) = struct.unpack("!H", query[at + 1 : at + 3])
        question = query[12 : at + 5]
        addresses = self.resolve(".".join(labels).lower())
        records = [] if addresses is None or kind != 1 else addresses
        # Of an answer, recursion desired and available; 3: no such name.
        flags = 0x8180 | (3 if addresses is None else 0)
        header = query[:2] + struct.pack("!HHHHH", flags, 1, len(records), 0, 0)
        body = b"".join(struct.pack("!HHHIH", 0xC00C, 1, 1, 1, 4) + socket.inet_aton(each) for each in records)
        return header + question + body


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        source.settimeout(None)
        while data := source.recv(1 << 16):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def _unshare() -> int:
    """Move this thread into a network namespace of its own; a descriptor of it."""
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_NETWORK):
        raise UnavailableError(f"there can be no private network: {os.strerror(ctypes.get_errno())}")
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

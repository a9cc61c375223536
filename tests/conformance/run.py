# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Compare answers with recorded ones.

usage: run.py FILE…

A file is JSON, plain or gzipped: {"format": 1, "cases": [...]}. Two kinds of case are known.

Placement: `deployment`, `clusters` (candidates), `replicas` (all that exist), `fill` (false: keep only) and `expect`
({"placements": [...]} or {"error": "InvalidNodeSelector"}). Answered with accounting `Nodes` and search `Greedy`, which
is how the reference implementation decides, unless the case has `options` (`accounting`, `search`). A member that is
spread over a fabric also lists its `pools` ({name, pods}); the reference implementation has no such thing, so these
cases say what docs/scheduling.md says.

Selector: `expression`, `device` and `expect` (match, no-match, compile-error). Where `kubernetes` records what
Kubernetes itself says, that counts; an error at evaluation is no match.

Prints every disagreement and, last, `N passed, M failed`. Exits 1 when one failed or a file cannot be read.
"""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / ".collections"))

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.device import Device
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.selector import (
    SelectorError,
    compile_selector,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling import adapters
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Options,
    PlacedMember,
    Placement,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.placement import schedule

REFERENCE = Options(accounting="Nodes", search="Greedy")


def decide(case: dict[str, Any]) -> dict[str, Any]:
    """The answer to a placement case, in the form of its `expect`."""
    desired = adapters.deployment(parsed(case["deployment"]), {})
    desired = replace(desired, cluster_selector={}, hold="" if case.get("fill", True) else "only what runs is kept")
    catalogue = adapters.DeviceCatalogue()
    clusters = [adapters.cluster(parsed(cluster), {}, catalogue) for cluster in case["clusters"]]
    options = replace(REFERENCE, **case.get("options", {}))
    decided = schedule(
        [desired], clusters, [adapters.replica(parsed(document)) for document in case["replicas"]], options
    )
    held = [placement.reason for placement in decided.placements if placement.state == "held"]
    if any(pending.reason == "InvalidNodeSelector" for pending in decided.pending) or any(
        "nodeSelector CEL" in one for one in held
    ):
        return {"error": "InvalidNodeSelector"}
    if held:
        return {"error": f"held: {held}"}
    return {"placements": [shown(placement) for placement in decided.placements]}


def parsed(document: dict[str, Any]) -> Any:
    return api.parse(document)


def shown(placement: Placement) -> dict[str, Any]:
    return {
        "cluster": placement.cluster,
        "index": placement.index,
        "gatewayAddress": placement.gateway_address,
        "engines": sorted(
            (
                engine.name,
                [member_shown(member) for member in engine.members],
            )
            for engine in placement.engines
        ),
    }


def member_shown(member: PlacedMember) -> dict[str, Any]:
    found = {
        "role": member.role,
        "pool": member.pool,
        "deviceRequests": [dict(request) for request in member.device_requests],
    }
    if member.shares:
        found["pools"] = [{"name": name, "pods": pods} for name, pods in member.shares]
    return found


def expected(expect: dict[str, Any]) -> dict[str, Any]:
    if "placements" not in expect:
        return expect
    return {
        "placements": [
            {**placement, "engines": sorted((engine["name"], engine["members"]) for engine in placement["engines"])}
            for placement in expect["placements"]
        ]
    }


def verdict(case: dict[str, Any]) -> str:
    """The answer to a selector case."""
    try:
        selector = compile_selector(case["expression"])
    except SelectorError:
        return "compile-error"
    return "match" if selector.evaluate(Device.from_wire(case["device"])).match else "no-match"


def desired_verdict(case: dict[str, Any]) -> str:
    recorded = (case.get("kubernetes") or {}).get("verdict", case["expect"])
    return "no-match" if recorded == "eval-error" else recorded


def check(case: dict[str, Any]) -> str:
    """Empty when the answer is the recorded one, else the difference in words."""
    if "expression" in case:
        got, want = verdict(case), desired_verdict(case)
        return "" if got == want else f"{case['expression']}\n    want {want}\n    got  {got}"
    answer, want_answer = decide(case), expected(case["expect"])
    if answer == want_answer:
        return ""
    lines = []
    for name, one, other in (("want", want_answer, answer), ("got ", answer, want_answer)):
        if "placements" in one and "placements" in other:
            only = [entry for entry in one["placements"] if entry not in other["placements"]]
            lines += [f"    {name} {json.dumps(entry, sort_keys=True)}" for entry in only]
        else:
            lines.append(f"    {name} {json.dumps(one, sort_keys=True)[:2000]}")
    return "\n" + "\n".join(lines or ["    the same placements in another order"])


def read(path: str) -> list[dict[str, Any]]:
    data = Path(path).read_bytes()
    document = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    if not isinstance(document, dict) or document.get("format") != 1 or not isinstance(document.get("cases"), list):
        raise ValueError('is not {"format": 1, "cases": [...]}')
    return document["cases"]


def main(paths: list[str]) -> int:
    if not paths:
        print(__doc__)
        return 2
    passed = failed = 0
    for path in paths:
        try:
            cases = read(path)
        except (OSError, EOFError, ValueError, zlib.error) as error:
            print(f"{path}: {error}")
            failed += 1
            continue
        for number, case in enumerate(cases):
            try:
                difference = check(case)
            except Exception as error:  # a case that breaks the code is a failed case, and the next ones still count
                difference = f"{type(error).__name__}: {error}"
            passed += not difference
            failed += bool(difference)
            if difference:
                print(f"{path}, case {case.get('id', number)}: {difference}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

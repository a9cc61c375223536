# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Compare answers with recorded ones.

usage: run.py FILE…

A file is JSON, plain or gzipped: {"format": 1, "cases": [...]}. Four kinds of case are known.

Placement: `deployment`, `clusters` (candidates), `replicas` (all that exist), `fill` (false: keep only) and `expect`
({"placements": [...]} or {"error": "InvalidNodeSelector"}). Answered with accounting `Nodes` and search `Greedy`, which
is how the reference implementation decides, unless the case has `options` (`accounting`, `search`). A member that is
spread over a fabric also lists its `pools` ({name, pods}), and limits on cost need the prices of `classes`; the
reference implementation has neither, so these cases follow docs/scheduling.md, docs/multi-node.md and docs/cost.md.

A case of several deployments has the rest in `others`; what is placed for one of those names it by `deployment`.
Beside `placements`, `expect` may list `dropped`, the replicas that go ({replica, reason}, with `mayStay`: true for one
that may stay until another one serves), and `refused`, the reasons by which clusters take no more replicas of
`deployment` ({cluster: reason}); what is not listed is not compared. The reference implementation has no such thing.

Selector: `expression`, `device` and `expect` (match, no-match, compile-error). Where `kubernetes` records what
Kubernetes itself says, that counts; an error at evaluation is no match.

Survival: `resources` (all manifests of a fleet) and `expect`: how many `losses` can matter, and the services that are
`unmet` after one, each with the first, with what is left, and with the remediation ("" for none). The reference
implementation has no such thing, so these cases say what docs/what-if.md says.

Objects: `resources`, a `cluster` and `kinds`, and `expect`: {"objects": {"KIND NAMESPACE/NAME": fields}}, all objects
of these kinds on the cluster without their metadata.

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
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning import plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.survival import survey
from ansible_collections.modelplane.fleet.plugins.module_utils.core.pricing import PriceBook
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling import adapters
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Deployment,
    Dropped,
    Options,
    PlacedMember,
    Placement,
    Schedule,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.placement import schedule

REFERENCE = Options(accounting="Nodes", search="Greedy")


def decide(case: dict[str, Any]) -> dict[str, Any]:
    """The answer to a placement case, in the form of its `expect`."""
    classes = {each["metadata"]["name"]: parsed(each) for each in case.get("classes", [])}
    prices = PriceBook(classes)
    desired = deployment(case["deployment"], prices.currency)
    desired = replace(desired, hold="" if case.get("fill", True) else "only what runs is kept")
    others = [deployment(document, prices.currency) for document in case.get("others", ())]
    catalogue = adapters.DeviceCatalogue()
    clusters = [adapters.cluster(parsed(cluster), classes, catalogue, prices=prices) for cluster in case["clusters"]]
    options = replace(REFERENCE, **case.get("options", {}))
    replicas = [adapters.replica(parsed(document)) for document in case["replicas"]]
    decided = schedule([desired, *others], clusters, replicas, options)
    held = [placement.reason for placement in decided.placements if placement.state == "held"]
    if any(pending.reason == "InvalidNodeSelector" for pending in decided.pending) or any(
        "nodeSelector CEL" in one for one in held
    ):
        return {"error": "InvalidNodeSelector"}
    if held:
        return {"error": f"held: {held}"}
    answer = {
        "placements": [shown(placement, desired) for placement in decided.placements],
        "dropped": list(map(dropped_shown, decided.dropped)),
        "refused": refused(decided, desired),
    }
    return {key: value for key, value in answer.items() if key in ("placements", *case["expect"])}


def deployment(document: dict[str, Any], currency: str) -> Deployment:
    """A deployment whose candidates are all clusters of the case; `currency`: that of the prices."""
    return replace(adapters.deployment(parsed(document), {}, currency), cluster_selector={})


def parsed(document: dict[str, Any]) -> Any:
    return api.parse(document)


def shown(placement: Placement, desired: Deployment) -> dict[str, Any]:
    key = (placement.namespace, placement.deployment)
    return {
        **({} if key == desired.key else {"deployment": placement.deployment}),
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


def dropped_shown(entry: Dropped) -> dict[str, Any]:
    stays = {"mayStay": True} if entry.may_stay else {}
    return {"replica": entry.replica.name, "reason": entry.reason, **stays}


def refused(decided: Schedule, desired: Deployment) -> dict[str, str]:
    found: dict[str, str] = {}
    for pending in decided.pending:
        if (pending.namespace, pending.deployment) == desired.key:
            for refusal in pending.refusals:
                for cluster in refusal.clusters:
                    found.setdefault(cluster, refusal.reason)
    return found


def member_shown(member: PlacedMember) -> dict[str, Any]:
    found = {
        "role": member.role,
        "pool": member.pool,
        "deviceRequests": [dict(request) for request in member.device_requests],
    }
    if member.shares:
        found["pools"] = [{"name": name, "pods": pods} for name, pods in member.shares]
    return found


def survived(case: dict[str, Any]) -> dict[str, Any]:
    """The answer to a survival case, in the form of its `expect`."""
    found = survey(plan([parsed(document) for document in case["resources"]]), Options())
    unmet = [
        {
            "service": "/".join(each.requirement.key),
            "fails": each.requirement.is_fatal,
            "lost": list(each.lost),
            "left": each.left,
            "remediation": str(each.remediation or ""),
        }
        for each in found.shortfalls
    ]
    return {"losses": found.losses, "unmet": unmet}


def composed(case: dict[str, Any]) -> dict[str, Any]:
    """The answer to a case of objects, in the form of its `expect`."""
    objects = plan([parsed(document) for document in case["resources"]]).workloads[case["cluster"]]
    return {
        "objects": {
            f"{value['kind']} {value['metadata']['namespace']}/{value['metadata']['name']}": {
                name: part for name, part in value.items() if name not in ("apiVersion", "kind", "metadata")
            }
            for value in objects
            if value["kind"] in case["kinds"]
        }
    }


def expected(expect: dict[str, Any]) -> dict[str, Any]:
    if "placements" not in expect:
        return expect
    return {
        **expect,
        "placements": [
            {**placement, "engines": sorted((engine["name"], engine["members"]) for engine in placement["engines"])}
            for placement in expect["placements"]
        ],
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
    answer_to = composed if "cluster" in case else survived if "resources" in case else decide
    answer, want_answer = answer_to(case), expected(case["expect"])
    if answer == want_answer:
        return ""
    lines = []
    for name, one, other in (("want", want_answer, answer), ("got ", answer, want_answer)):
        if "placements" in one and "placements" in other:
            only = [entry for entry in one["placements"] if entry not in other["placements"]]
            lines += [f"    {name} {json.dumps(entry, sort_keys=True)}" for entry in only]
            lines += [
                f"    {name} {key} {json.dumps(one[key], sort_keys=True)}"
                for key in ("dropped", "refused")
                if one.get(key) != other.get(key)
            ]
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

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Models of plans to draw: a small one with everything in it, an empty one, and large ones by size."""

from __future__ import annotations

import copy
from typing import Any

DEVICES = {
    "L4": {"name": "gpu", "count": 1, "claim": "DRA", "what": "gpu.nvidia.com, NVIDIA L4, 23034Mi"},
    "L40S": {"name": "gpu", "count": 4, "claim": "DRA", "what": "gpu.nvidia.com, NVIDIA L40S, 46068Mi"},
    "H100": {"name": "gpu", "count": 8, "claim": "DRA", "what": "gpu.nvidia.com, NVIDIA H100 80GB HBM3, 81559Mi"},
}
NIC = {"name": "nic", "count": 8, "claim": "DRA", "what": "nic.nvidia.com, ConnectX-7"}
FABRIC = {"name": "efa", "count": 1, "claim": "Synthetic", "what": "fabric.example.com, linkType efa"}


def empty() -> dict[str, Any]:
    return {
        "time": "2026-11-26T19:00:06Z",
        "is_observed": True,
        "commit": "",
        "counts": {
            "services": 0, "clusters": 0, "objects": 0, "desired": 0, "placed": 0, "pending": 0, "serving": 0,
        },
        "findings": [],
        "unusable": [],
        "sent_outside": [],
        "serves_paths": True,
        "clusters": [],
        "replicas": [],
        "services": [],
        "gateways": [],
        "caches": [],
        "policies": [],
        "pending": [],
        "removed": [],
        "objects": [],
        "files": {"created": [], "changed": [], "removed": []},
        "distributions": [],
        "what_if": {},
        "survival": {"losses": 0, "tried": 0, "needs": []},
        "cost": {},
        "memory": [],
    }  # fmt: skip


def occupant(namespace: str, deployment: str, replica: str, pods: int = 1, **rest: Any) -> dict[str, Any]:
    """A replica's pods in a pool; `devices` per pod."""
    entry = {"namespace": namespace, "deployment": deployment, "replica": replica, "engine": "main"}
    return entry | {"role": "Standalone", "pods": pods, "devices": {"gpu": 1}} | rest


def pool(name: str, nodes: int, kind: str, *occupied: dict[str, Any], **rest: Any) -> dict[str, Any]:
    entry = {"name": name, "nodes": nodes, "class": f"class-{kind.lower()}", "fabric": ""}
    entry |= {"schedulable_nodes": None, "unavailable_nodes": [], "unavailable": 0}
    entry |= {"devices": [DEVICES[kind]], "occupied": list(occupied), "overcommitted": ""} | rest
    return counted(entry)


def counted(entry: dict[str, Any]) -> dict[str, Any]:
    """A pool with its devices to claim, and how many of them its pods claim."""
    devices = sum(device["count"] for device in entry["devices"] if device["claim"] == "DRA")
    used = sum(pods["pods"] * sum(pods["devices"].values()) for pods in entry["occupied"])
    return entry | {"total": entry["nodes"] * devices, "used": used, "planned": 0}


def cluster(name: str, *pools: dict[str, Any], **rest: Any) -> dict[str, Any]:
    entry = {"name": name, "source": "Existing", "region": "us-central", "reason": "", "address": f"{name}.example.net"}
    entry |= {"labels": {"modelplane.ai/region": "us-central", "tier": "prod"}, "taints": [], "pools": list(pools)}
    entry |= {"gateways": []}
    entry |= {"state": "Ready", "message": "", "version": "1.36", "last_seen": "2026-11-26T19:00:06Z"}
    return entry | rest


def replica(occupied: dict[str, Any], place: str, in_pool: str, state: str = "kept", **rest: Any) -> dict[str, Any]:
    """The replica of an occupant."""
    pods = occupied["pods"]
    member = {"role": occupied["role"], "pools": [{"name": in_pool, "pods": pods}], "pods": pods}
    member["devices"] = occupied["devices"]
    engine = {"name": occupied["engine"], "copies": 1, "phase": "", "members": [member]}
    entry = {key: occupied[key] for key in ("namespace", "deployment", "replica")}
    entry |= {"cluster": place, "index": 0, "state": state, "reason": "", "engines": [engine]}
    return entry | {"status": "Serving", "message": ""} | rest


def finding(kind: str, subject: str, name: str, **rest: Any) -> dict[str, Any]:
    entry = {"kind": kind, "subject": subject, "namespace": "", "name": name, "cluster": "", "status": ""}
    return entry | {"message": "", "hint": "", "command": ""} | rest


def endpoint(name: str, weight: int, **rest: Any) -> dict[str, Any]:
    entry = {"name": name, "entry": 0, "priority": 0, "weight": weight, "usable": True, "unused": "", "external": False}
    entry |= {"model": ""}
    return entry | {"url": f"http://edge.example.net/ml-team/{name}/", "replica": name} | rest


def cost(name: str, nodes: str, hour: str, month: str, change: str, share: int | None, *notes: str) -> dict[str, Any]:
    amounts = {"per_hour": hour, "per_month": month, "change": change, "share": share}
    return {"name": name, "nodes": nodes, **amounts, "notes": list(notes)}


def small() -> dict[str, Any]:
    """Three clusters with one thing of every kind and state."""
    qwen = [occupant("ml-team", "qwen3-8b", f"qwen3-8b-{end}") for end in ("3fa91c0d11", "77be02a4c9")]
    llama = occupant("ml-team", "llama-405b", "llama-405b-90ad4410fe", 2, role="Worker", devices={"gpu": 8, "nic": 8})
    mixed = occupant("research", "deepseek-r1", "deepseek-r1-5cc1029be3", 1, engine="prefill", devices={"gpu": 4})
    decode = mixed | {"engine": "decode", "pods": 3, "devices": {"gpu": 2}}
    manual = occupant("research", "", "by-hand")
    held = occupant("search", "embed", "embed-00aa12bb34", devices={"gpu": 2})
    swapped = occupant("search", "rerank", "rerank-4b1d2f3a6c", devices={"gpu": 1})
    h100 = pool("gpu-h100", 6, "H100", llama, mixed, decode, fabric="efa-a", devices=[DEVICES["H100"], NIC, FABRIC])
    model = empty()
    model["cost"] = _costs()
    model["memory"] = _memory()
    model["clusters"] = [
        cluster("gcp-central", pool("gpu-l4", 8, "L4", *qwen, manual), pool("system", 2, "L4", devices=[])),
        cluster(
            "aws-west", h100,
            pool("gpu-l40s", 1, "L40S", held, held | {"replica": "embed-99ff00ee11"}, swapped,
                 overcommitted="5 gpu are claimed, the pool has 4"),
            source="EKS", region="us-west-2", labels={"modelplane.ai/region": "us-west", "team": "ml"},
            taints=["dedicated=ml:NoSchedule"],
        ),
        cluster("lab", pool("big", 64, "H100", occupant("lab", "sweep", "sweep-1", 40, devices={"gpu": 8})), region="",
                reason="Its gateway has no address yet", address="", labels={}, state="Unreachable",
                message="connection refused", gateways=["edge"]),
    ]  # fmt: skip
    model["replicas"] = [
        replica(qwen[0], "gcp-central", "gpu-l4", "kept"),
        replica(
            qwen[1],
            "gcp-central",
            "gpu-l4",
            "new",
            index=1,
            status="ImagePullBackOff",
            message='pod qwen-x: container engine: Back-off pulling image "vllm/vllm-openai:v0.23"',
        ),
        replica(llama, "aws-west", "gpu-h100", "new", status="New", message="the next run places it here"),
        _split(mixed),
        replica(held, "aws-west", "gpu-l40s", "held", reason="ModelCache search/weights cannot be read"),
        replica(swapped, "aws-west", "gpu-l40s", "replaced", reason="the engine has another member role"),
        replica(manual, "gcp-central", "gpu-l4", "manual"),
    ]
    names = [entry["replica"] for entry in model["replicas"]]
    model["services"] = _services(names)
    model["unusable"] = [
        {"reason": "Secret ml-team/key is missing", "hint": "Create it on the control cluster.", "of_models": False,
         "is_step": False, "services": [{"namespace": "ml-team", "name": "qwen", "endpoints": ["old"]}]},
    ]  # fmt: skip
    model["caches"] = [_cache()]
    model["policies"] = [_policy()]
    model["pending"] = [_pending()]
    model |= _changes(names[5])
    model["commit"] = "8f0c2a1b" * 5
    model["counts"] = {
        "services": 2, "clusters": 3, "objects": 78, "desired": 9, "placed": 7, "pending": 2, "serving": 5
    }  # fmt: skip
    model["findings"] = _findings(names[1])
    model["what_if"] = _answer(names)
    model["survival"] = _survival()
    return model


def _costs() -> dict[str, Any]:
    return {
        "currency": "USD", "hours": 730, "as_of": "The oldest price is of 2026-11-01.",
        "clusters": [
            cost("gcp-central", "10", "7.00", "5,110.00", "+0.70", 14),
            cost("aws-west", "7", "42.50", "31,025.00", "-", 86),
            cost("lab", "64", "unknown", "unknown", "-", None, "without 64 nodes whose price is not known: 64 of big"),
            cost("all", "81", "≥ 49.50", "≥ 36,135.00", "+0.70", 100),
        ],
        "deployments": [cost("ml-team/qwen3-8b", "-", "1.40", "1,022.00", "+0.70", 3)],
        "notes": ["without 64 nodes whose price is not known"],
    }  # fmt: skip


def _memory() -> list[dict[str, Any]]:
    return [
        {"namespace": "ml-team", "deployment": "qwen3-8b", "engine": "main", "pool": "gpu-l4", "device": "gpu",
         "clusters": ["gcp-central", "aws-west"], "weights": 15626 << 20, "cache": 4608 << 20, "tokens": 32768,
         "memory": 23034 << 20, "usable": 21187 << 20},
        {"namespace": "search", "deployment": "embed", "engine": "main", "pool": "gpu-l40s", "device": "gpu",
         "clusters": ["aws-west"], "weights": 40960 << 20, "cache": 9216 << 20, "tokens": 65536,
         "memory": 46068 << 20, "usable": 42384 << 20},
    ]  # fmt: skip


def _changes(replaced: str) -> dict[str, Any]:
    """Changes of the last run: of replicas, of objects and of files."""
    removed = [
        {"namespace": "search", "deployment": "rerank", "replica": replaced, "cluster": "lab",
         "action": "removed", "reason": "another member role"},
    ]  # fmt: skip
    objects = [
        {"cluster": "", "created": 0, "changed": 1, "removed": 0},
        {"cluster": "aws-west", "created": 2, "changed": 0, "removed": 0},
        {"cluster": "lab", "created": 0, "changed": 0, "removed": 1},
    ]
    files = {
        "created": [
            f"clusters/aws-west/namespaces/mp-ml-team-51733/{name}.yaml" for name in ("lws-llama", "httproute-llama")
        ],
        "changed": ["control/ml-team/modelreplica-qwen3-8b.yaml"],
        "removed": ["clusters/lab/namespaces/mp-search-9cc01/deployment-rerank.yaml"],
    }
    return {"removed": removed, "objects": objects, "files": files}


def _policy() -> dict[str, Any]:
    """A budget of which one caller spent all, and one whose use is not known."""
    use = [
        {"gateway": "edge", "caller": "acme", "used": 2000000},
        {"gateway": "edge", "caller": "initech", "used": 31250},
    ]
    daily = {"name": "tokens-a-day", "unit": "Tokens", "limit": 2000000, "per": "Day", "use": use}
    return {
        "namespace": "ml-team",
        "name": "customers",
        "message": "InferenceGateway edge, budget together: its rate limit service does not count it yet",
        "budgets": [
            {**daily, "moreCallers": 3, "resetsAt": "2026-11-27T00:00:00Z"},
            {"name": "together", "unit": "Requests", "limit": 600, "per": "Minute", "use": []},
        ],
    }


def budgeted(policies: int = 200) -> dict[str, Any]:
    """Policies with a budget each: the last ones are spent or nearly so, and of a third the use is not known."""
    model = empty()
    for number in range(policies):
        used = {policies - 2: 850, policies - 3: 1200}.get(number, number % 500)
        known = number % 3 != 1
        use = [{"gateway": "edge", "caller": f"caller-{number:03}", "used": used}] if known else []
        budget = {"name": "a-day", "unit": "Requests", "limit": 1000, "per": "Day", "use": use}
        message = "" if known else "InferenceGateway lab: cluster lab has not been observed: timed out"
        names = {"namespace": f"team-{number % 7}", "name": f"policy-{number:03}"}
        model["policies"].append({**names, "message": message, "budgets": [budget]})
    return model


def _answer(names: list[str]) -> dict[str, Any]:
    counts = {"namespace": "ml-team", "before": 2, "atOnce": 1, "after": 1}
    return {
        "asked": ["cluster aws-west is lost"],
        "question": {"lose": [{"cluster": "aws-west"}]},
        "moves": [
            {"namespace": "search", "deployment": "embed", "fromReplica": names[4], "fromCluster": "aws-west",
             "reason": "cluster aws-west is lost"},
            {"namespace": "ml-team", "deployment": "qwen3-8b", "fromReplica": names[1], "fromCluster": "aws-west",
             "toReplica": "qwen3-8b-0f", "toCluster": "gcp-central", "toPools": ["gpu-l4"], "reason": ""},
            {"namespace": "ml-team", "deployment": "qwen3-8b", "toReplica": "qwen3-8b-1f", "toCluster": "gcp-central",
             "toPools": ["gpu-l4"], "reason": ""},
        ],
        "pending": [{**_pending(), "replicas": 1, "message": "0 of 1 replicas scheduled (checked 2 clusters)"}],
        "services": [{"name": "chat", **counts}],
        "gateways": [
            {"name": "edge", "cluster": "aws-west",
             "services": ["no gateway is left, so that clients get no answer: ml-team/chat"]},
            {"name": "spare", "cluster": "aws-west", "services": []},
        ],
        "deployments": [{"name": "qwen3-8b", **counts}],
        "over": ["ml-team/qwen3-8b costs 3.00 USD per hour, more than the 2.00 USD of its spec.cost.ceilingPerHour"],
        "costs": {
            "currency": "USD", "hours": 730, "as_of": "",
            "clusters": [cost("gcp-central", "10", "9.00", "6,570.00", "+2.00", 100)],
            "deployments": [cost("ml-team/qwen3-8b", "-", "3.00", "2,190.00", "+1.60", 33)],
            "notes": [],
        },
    }  # fmt: skip


def _survival() -> dict[str, Any]:
    need = {"kind": "service", "namespace": "ml-team", "label": "", "clusters": 1, "is_fatal": True}
    places = [{"number": 1}, {"cluster": "aws-west", "number": 2}]
    return {
        "losses": 3,
        "tried": 3,
        "needs": [
            {**need, "name": "chat", "places": places, "what": "", "why": [], "fixes": ""},
            {**need, "kind": "gateway", "name": "chat", "places": places, "what": "", "why": [], "fixes": ""},
            {**need, "name": "embed", "places": places[1:], "what": "ModelService ml-team/embed has no endpoint",
             "why": ["no room"], "fixes": "1 more node of pool gpu-l4 on gcp-central would fix it"},
        ],
    }  # fmt: skip


def _findings(replica_: str) -> list[dict[str, Any]]:
    """One of every kind."""
    return [
        finding("unreachable", "cluster", "lab", cluster="lab", message="connection refused",
                hint="Check its network. `ansible-playbook modelplane.fleet.check --limit lab` reports what is wrong."),
        finding("unready", "service", "embed", namespace="search", message="no endpoint is usable", hint="Wait."),
        finding("unready", "replica", replica_, namespace="ml-team", cluster="gcp-central", status="ImagePullBackOff",
                message='pod qwen-x: container engine: Back-off pulling image "vllm/vllm-openai:v0.23"',
                command="kubectl -n mp-ml-team-51733 describe pod qwen-x"),
        finding("survival", "service", "embed", namespace="ml-team",
                message="ModelService ml-team/embed has no endpoint",
                hint="1 more node of pool gpu-l4 on gcp-central would fix it"),
        finding("pending", "deployment", "kimi-k2", namespace="research", status="2 of 3 replicas pending",
                message="InsufficientCapacity: No cluster has room for 2 more replicas.",
                hint="Add nodes to pool gpu-l4 of gcp-central, or ask for fewer replicas or devices."),
    ]  # fmt: skip


def distributed() -> dict[str, Any]:
    """The small model with a deployment that has all of spread, minimum, preferred clusters and preemption."""
    model = small()
    places = {each["name"]: each for each in model["clusters"]}
    new, held = (each for each in model["replicas"] if each["deployment"] in ("embed", "llama-405b"))
    returns, goes = (
        {key: each[key] for key in ("namespace", "deployment", "replica", "cluster")} for each in (new, held)
    )
    region = {"us-central": 1, "us-west": 4, "": 1}
    model["distributions"] = [
        {
            "namespace": "ml-team", "deployment": "llama-405b", "replicas": 6, "desired": 7, "minimum": 2,
            "topologies": [
                topology("topology.example.com/region", region, places, minimum=2, skew=2),
                topology("provider", {"gcp": 3, "aws": 3}, places, skew=1, required=False),
            ],
            "tiers": [
                {"labels": {"capacity": "reserved", "tier": "prod"}, "replicas": 2, "places": at({"aws-west": 2})},
                {"labels": {"capacity": "on-demand"}, "replicas": 3, "places": at({"gcp-central": 3, "lab": 0})},
                {"labels": {}, "replicas": 1, "places": at({"other-1": 1, "other-0": 0})},
            ],
            "returns": True, "preempts": True,
            "leaving": [
                returns | {"stays": True, "reason": "returns to preferred cluster aws-west, which has free capacity"},
            ],
            "preempted": [
                goes | {"stays": False, "reason": "preempted by ml-team/llama-405b, which has a higher priority"},
            ],
        },
    ]  # fmt: skip
    return model


def at(numbers: dict[str, int]) -> list[dict[str, Any]]:
    return [{"cluster": name, "replicas": number} for name, number in numbers.items()]


def topology(
    key: str, values: dict[str, int], places: dict[str, Any], *, skew: int, required: bool = True, **rest: Any
) -> dict[str, Any]:
    """A label with its values, each of which one cluster has."""
    rows = [
        {"value": value, "replicas": number, "takes_new": value != "", "places": at({name: number})}
        for (value, number), name in zip(values.items(), places, strict=False)
    ]
    fewest = min((value for value in values if value), key=lambda value: values[value])
    entry = {"key": key, "values": rows, "max_skew": skew, "most": values[fewest] + skew, "fewest": fewest}
    return entry | {"minimum": None, "required": required} | rest


def _split(prefill: dict[str, Any]) -> dict[str, Any]:
    """A replica of two engines, one for each phase."""
    split = replica(prefill, "aws-west", "gpu-h100", "changed", index=1)
    split["engines"][0]["phase"] = "Prefill"
    member = {"role": "Standalone", "pools": [{"name": "gpu-h100", "pods": 1}], "pods": 1, "devices": {"gpu": 2}}
    split["engines"].append({"name": "decode", "copies": 3, "phase": "Decode", "members": [member]})
    return split


def _services(names: list[str]) -> list[dict[str, Any]]:
    """One that serves, through endpoints of every kind, and one that does not yet."""
    return [
        {
            "namespace": "ml-team", "name": "qwen", "path": "/ml-team/qwen/", "at": "", "address": "http://203.0.113.10/ml-team/qwen",
            "tier": 0, "status": "Degraded", "message": "old not usable", "desired": 5,
            "endpoints": [
                endpoint(names[0], 45), endpoint(names[1], 45),
                endpoint("openai", 10, entry=1, url="https://api.openai.com/v1", external=True, replica=""),
                endpoint(names[2], 100, entry=2, priority=1), endpoint("old", 5, entry=0, usable=False),
            ],
        },
        {
            "namespace": "search", "name": "embed", "path": "/search/embed/", "at": "", "address": "", "tier": None,
            "status": "Unavailable", "message": "withheld until its first endpoint is ready", "desired": 0,
            "endpoints": [],
        },
    ]  # fmt: skip


def _cache() -> dict[str, Any]:
    phases = [
        {"cluster": "aws-west", "phase": "Ready", "message": ""},
        {"cluster": "lab", "phase": "Hydrating", "message": "the Job runs"},
    ]
    artifact = "hf://meta-llama/Llama-3.1-405B"
    return {"namespace": "ml-team", "name": "llama-weights", "artifact": artifact, "ready": 1, "clusters": phases}


def _pending() -> dict[str, Any]:
    refusals = [
        {"clusters": ["gcp-central"], "pool": "gpu-l4", "reason": "no match in `capacity.memory >= 140Gi`"},
        {"clusters": ["aws-west", "lab"], "pool": "", "reason": "no pool has 8 free devices on 2 nodes"},
    ]
    return {
        "namespace": "research", "deployment": "kimi-k2", "refusals": refusals,
    }  # fmt: skip


def large(clusters: int = 300, replicas: int = 1_000) -> dict[str, Any]:
    """A fleet with three pools a cluster, and a deployment and a service of its own for every replica."""
    regions = ("us-central1", "us-west-2", "europe-west4", "ap-south-1")
    model = empty()
    for number in range(clusters):
        region = regions[number % 4]
        model["clusters"].append(
            cluster(
                f"{'gke' if number % 2 else 'eks'}-{region}-prod-{number:03}",
                pool("gpu-l4", 16, "L4"),
                pool("gpu-l40s", 8, "L40S"),
                pool("gpu-h100", 8, "H100", fabric="ib", devices=[DEVICES["H100"], NIC, FABRIC]),
                region=region,
                labels={"modelplane.ai/region": region, "modelplane.ai/cluster": f"prod-{number:03}", "tier": "prod"},
                reason="Its gateway has no address yet" if number % 37 == 5 else "",
            )
        )
    for number in range(replicas):
        kind = number % 3
        space = f"team-{number % 40:02}"
        pods, devices = ((2, {"gpu": 1}), (3, {"gpu": 2}), (4, {"gpu": 8, "nic": 8}))[kind]
        # Not evenly, so that the overview has something to show, and a few times more than there is.
        start = int(clusters * (number * 7919 % 1000 / 1000) ** 2)
        for step in range(clusters):
            place = model["clusters"][(start + step) % clusters]
            home = place["pools"][kind]
            least = sum(other["pods"] * other["devices"]["gpu"] for other in home["occupied"]) + pods * devices["gpu"]
            if least <= home["nodes"] * home["devices"][0]["count"] or number % 100 == 99:
                break
        entry = occupant(space, f"model-{number:04}", f"model-{number:04}-{number * 7919:010x}", pods, devices=devices)
        home["occupied"].append(entry)
        claimed = sum(other["pods"] * other["devices"]["gpu"] for other in home["occupied"])
        there = home["nodes"] * home["devices"][0]["count"]
        home["overcommitted"] = f"{claimed} gpu are claimed, the pool has {there}" if claimed > there else ""
        model["replicas"].append(
            replica(entry, place["name"], home["name"], ("kept", "new", "changed")[number % 7 % 3])
        )
        route = endpoint(entry["replica"], 1)
        model["services"].append(
            {"namespace": space, "name": f"model-{number:04}", "path": f"/{space}/model-{number:04}/", "at": "",
             "address": "http://203.0.113.10", "tier": 0, "status": "Serving", "message": "",
             "desired": 1, "endpoints": [route]}
        )  # fmt: skip
        folder = f"clusters/{place['name']}/namespaces/mp-{space}-51733"
        model["files"]["created"] += [
            f"{folder}/{part}-{entry['replica']}.yaml" for part in ("deployment", "service", "httproute")
        ]
    everywhere = [place["name"] for place in model["clusters"]]
    for number in range(min(40, replicas)):
        refusals = [{"clusters": everywhere, "pool": "gpu-h100", "reason": "no 4 nodes with 8 free gpu each"}]
        refusals += [{"clusters": everywhere[number::3], "pool": "gpu-l4", "reason": "gpu has less than 140Gi"}]
        model["pending"].append(
            {"namespace": f"team-{number:02}", "deployment": f"giant-{number:02}", "refusals": copy.deepcopy(refusals)}
        )  # fmt: skip
    _observe(model)
    return model


def _observe(model: dict[str, Any]) -> None:
    """Counts of a large model, and a few clusters and replicas that are not as they should be."""
    created: dict[str, int] = {}
    for path in model["files"]["created"]:
        created[path.split("/")[1]] = created.get(path.split("/")[1], 0) + 1
    model["objects"] = [
        {"cluster": name, "created": number, "changed": 0, "removed": 0} for name, number in sorted(created.items())
    ]
    for number, place in enumerate(model["clusters"]):
        place["pools"] = [counted(entry) for entry in place["pools"]]
        if number % 50 == 3:
            place |= {"state": "Unreachable", "message": "no answer within 10 s"}
            model["findings"].append(
                finding("unreachable", "cluster", place["name"], cluster=place["name"], message=place["message"])
            )
    for number, row in enumerate(model["replicas"]):
        if number % 40 == 9:
            row |= {"status": "CrashLoopBackOff", "message": "pod x: container engine: exit code 1"}
            key = {key: row[key] for key in ("namespace", "cluster", "status", "message")}
            model["findings"].append(finding("unready", "replica", row["replica"], command="kubectl logs x", **key))
    model["findings"] += [
        finding("pending", "deployment", each["deployment"], namespace=each["namespace"],
                status="1 of 1 replica pending", message="InsufficientCapacity", hint="Add nodes.")
        for each in model["pending"]
    ]  # fmt: skip
    replicas, pending = len(model["replicas"]), len(model["pending"])
    failing = sum(each["subject"] == "replica" for each in model["findings"])
    model["counts"] = {
        "services": len(model["services"]), "clusters": len(model["clusters"]), "objects": sum(created.values()),
        "desired": replicas + pending, "placed": replicas, "pending": pending, "serving": replicas - failing,
    }  # fmt: skip

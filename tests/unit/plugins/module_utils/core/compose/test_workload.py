# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The workloads of engines: what users write reaches the pods as written, and what they may not change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import child_name
from ansible_collections.modelplane.fleet.tests.written import replica_objects

Make = Callable[..., dict[str, Any]]

NIXL_HOST = {"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
NIXL_PORT = {"name": "VLLM_NIXL_SIDE_CHANNEL_PORT", "value": "5557"}
LEADER_ADDRESS = {"name": "MODELPLANE_LEADER_ADDRESS", "value": "$(LWS_LEADER_ADDRESS)"}
RANK = {"name": "MODELPLANE_RANK", "value": "$(LWS_WORKER_INDEX)"}
DRAIN = "--shutdown-timeout=20"


def standalone_pod(replica: dict[str, Any]) -> dict[str, Any]:
    workload = next(
        each
        for each in replica_objects(replica)
        if each["kind"] == "Deployment" and not each["metadata"]["name"].endswith("-epp")
    )
    template: dict[str, Any] = workload["spec"]["template"]
    return template


def gang_pods(replica: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    workload = next(each for each in replica_objects(replica) if each["kind"] == "LeaderWorkerSet")
    template = workload["spec"]["leaderWorkerTemplate"]
    return template["leaderTemplate"], template["workerTemplate"]


@pytest.mark.parametrize("text", ["{{ lookup('pipe', 'id') }}", "{% raw %}", "$(POD_IP)", "a: b", "", "ünï\ncode"])
def test_text_reaches_the_pod_as_written(make_replica: Make, text: str) -> None:
    written = {"command": ["run", text], "args": [text], "env": [{"name": "A", "value": text}]}
    container = standalone_pod(make_replica(container=written))["spec"]["containers"][0]
    assert {field: container[field] for field in written} == written


@pytest.mark.parametrize(
    ("written", "field", "standalone", "leader"),
    [
        ({}, "args", [DRAIN], None),
        ({"args": []}, "args", [DRAIN], None),
        ({"args": ["-x"]}, "args", ["-x", DRAIN], ["-x"]),
        ({}, "command", None, None),
        ({"command": []}, "command", None, None),
        ({}, "env", None, [LEADER_ADDRESS, RANK]),
        ({"env": []}, "env", None, [LEADER_ADDRESS, RANK]),
        (
            {"env": [{"name": "A", "value": "$(MODELPLANE_RANK)"}]},
            "env",
            [{"name": "A", "value": "$(MODELPLANE_RANK)"}],
            [LEADER_ADDRESS, RANK, {"name": "A", "value": "$(MODELPLANE_RANK)"}],
        ),
        (
            {"env": [{"name": "MODELPLANE_RANK", "value": "7"}]},
            "env",
            [{"name": "MODELPLANE_RANK", "value": "7"}],
            [LEADER_ADDRESS, {"name": "MODELPLANE_RANK", "value": "7"}],
        ),
    ],
)
def test_optional_fields(
    make_replica: Make, make_member: Make, make_engine: Make, written: Any, field: str, standalone: Any, leader: Any
) -> None:
    """None: the key is not there."""
    alone = standalone_pod(make_replica(container=written))["spec"]["containers"][0]
    gang = make_engine("main", make_member("Leader", **written), make_member("Worker", **written))
    leads, works = (pod["spec"]["containers"][0] for pod in gang_pods(make_replica(gang)))
    assert alone.get(field) == standalone
    assert leads.get(field) == works.get(field) == leader


@pytest.mark.parametrize(
    ("written", "args"),
    [
        ({}, ["--model=/mnt/models"]),
        ({"args": ["-x"]}, ["-x", "--model=/mnt/models"]),
        ({"args": ["--model=m"]}, ["--model=m"]),
        ({"args": ["--model", "m"]}, ["--model", "m"]),
        ({"args": ["-x"], "command": ["vllm"]}, ["-x"]),
    ],
)
def test_cache_in_args(make_replica: Make, make_member: Make, make_engine: Make, written: Any, args: list[str]) -> None:
    cache = {"modelCacheRef": {"name": "weights"}}
    alone = standalone_pod(make_replica(container=written, **cache))["spec"]["containers"][0]
    gang = make_engine("main", make_member("Leader", **written), make_member("Worker", **written))
    leads, works = (pod["spec"]["containers"][0] for pod in gang_pods(make_replica(gang, **cache)))
    assert alone["args"] == [*args, *([] if written.get("command") else [DRAIN])]
    assert leads["args"] == args
    assert works.get("args") == written.get("args")


def test_the_cache_is_mounted_in_every_pod(make_replica: Make, gang: dict[str, Any]) -> None:
    for pod in gang_pods(make_replica(gang, modelCacheRef={"name": "qwen3-coder"})):
        claim = {"claimName": "modelcache-ml-team-qwen3-coder-c65e4"}
        assert pod["spec"]["volumes"][1] == {"name": "model-cache", "persistentVolumeClaim": claim}
        mount = {"name": "model-cache", "mountPath": "/mnt/models"}
        assert pod["spec"]["containers"][0]["volumeMounts"][1] == mount


HUB = {"modelCacheRef": {"name": "weights", "layout": "HubCache"}}
HF_HOME = {"name": "HF_HOME", "value": "/mnt/models"}
OFFLINE = {"name": "HF_HUB_OFFLINE", "value": "1"}


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        (None, [HF_HOME, OFFLINE]),
        ([{"name": "A", "value": "1"}], [HF_HOME, OFFLINE, {"name": "A", "value": "1"}]),
        ([{"name": "HF_HOME", "value": "/x"}], [OFFLINE, {"name": "HF_HOME", "value": "/x"}]),
        ([{"name": "HF_HUB_OFFLINE", "value": "0"}], [HF_HOME, {"name": "HF_HUB_OFFLINE", "value": "0"}]),
    ],
)
def test_a_hub_cache_is_found_by_environment(make_replica: Make, env: Any, expected: Any) -> None:
    written = {"args": ["--model=Qwen/Qwen3-8B"], **({} if env is None else {"env": env})}
    pod = standalone_pod(make_replica(container=written, **HUB))["spec"]
    container = pod["containers"][0]
    assert container["env"] == expected
    assert container["args"] == ["--model=Qwen/Qwen3-8B", DRAIN]
    assert {"name": "model-cache", "mountPath": "/mnt/models"} in container["volumeMounts"]
    assert pod["volumes"][1]["persistentVolumeClaim"] == {"claimName": child_name("modelcache", "ml-team", "weights")}


def test_a_hub_cache_adds_no_flag_and_reaches_every_pod(make_replica: Make, gang: dict[str, Any]) -> None:
    for pod in gang_pods(make_replica(gang, **HUB)):
        container = pod["spec"]["containers"][0]
        assert "args" not in container
        assert container["env"] == [LEADER_ADDRESS, RANK, HF_HOME, OFFLINE]


def test_a_folder_needs_no_environment(make_replica: Make) -> None:
    for reference in ({"name": "weights"}, {"name": "weights", "layout": "Folder"}):
        container = standalone_pod(make_replica(modelCacheRef=reference))["spec"]["containers"][0]
        assert "env" not in container
        assert container["args"] == ["--model=/mnt/models", DRAIN]


def test_a_gang_over_several_pools_runs_on_any_of_them_and_stays_apart(
    make_replica: Make, gang: dict[str, Any]
) -> None:
    leader, worker = gang["members"]
    leader["nodePoolName"] = worker["nodePoolName"] = "gpu-a"
    worker["worker"] = {"nodes": 3}
    worker["nodePools"] = [{"name": "gpu-a", "pods": 1}, {"name": "gpu-b", "pods": 2}]
    leads, works = (pod["spec"] for pod in gang_pods(make_replica(gang)))
    assert leads["nodeSelector"] == {"modelplane.ai/pool": "gpu-a"}
    assert "nodeAffinity" not in leads["affinity"]
    assert "nodeSelector" not in works
    required = works["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = required["nodeSelectorTerms"]
    assert term == {"matchExpressions": [{"key": "modelplane.ai/pool", "operator": "In", "values": ["gpu-a", "gpu-b"]}]}
    assert works["affinity"]["podAntiAffinity"] == leads["affinity"]["podAntiAffinity"]


def test_a_spread_worker_without_devices_keeps_its_pools(make_replica: Make, gang: dict[str, Any]) -> None:
    worker = gang["members"][1]
    del worker["deviceRequests"]
    worker["nodePools"] = [{"name": "a", "pods": 1}, {"name": "b", "pods": 1}]
    _leader, works = gang_pods(make_replica(gang))
    assert list(works["spec"]["affinity"]) == ["nodeAffinity"]


@pytest.mark.parametrize(("worker", "size"), [(None, 2), ({"nodes": 1}, 2), ({"nodes": 63}, 64)])
def test_gang_size(make_replica: Make, gang: dict[str, Any], worker: Any, size: int) -> None:
    gang["members"][1].pop("worker")
    if worker:
        gang["members"][1]["worker"] = worker
    spec = replica_objects(make_replica({**gang, "copies": 3}))[3]["spec"]
    assert (spec["replicas"], spec["leaderWorkerTemplate"]["size"]) == (3, size)


def test_the_order_of_a_gangs_members_does_not_matter(make_replica: Make, gang: dict[str, Any]) -> None:
    turned = {**gang, "members": gang["members"][::-1]}
    assert gang_pods(make_replica(turned)) == gang_pods(make_replica(gang))


SGLANG = ["python3", "-m", "sglang.launch_server"]


@pytest.mark.parametrize(
    ("labels", "container", "engine_type"),
    [
        ({}, {"command": SGLANG}, "sglang"),
        ({}, {"args": ["--model=m"]}, None),
        ({"llm-d.ai/engine-type": "own"}, {"command": SGLANG}, "own"),
        ({"llm-d.ai/engine-type": "sglang"}, {"image": "own-image"}, "sglang"),
    ],
)
def test_the_picker_knows_an_engine_whose_metrics_have_other_names(
    make_replica: Make, make_member: Make, make_engine: Make, labels: Any, container: Any, engine_type: str | None
) -> None:
    alone, leader, worker = (make_member(role, **container) for role in ("Standalone", "Leader", "Worker"))
    for member in (alone, leader, worker):
        member["template"]["metadata"] = {"labels": labels}
    leads, works = gang_pods(make_replica(make_engine("main", leader, worker)))
    found = [
        pod["metadata"]["labels"].get("llm-d.ai/engine-type")
        for pod in (standalone_pod(make_replica(make_engine("main", alone))), leads, works)
    ]
    assert found == [engine_type, engine_type, labels.get("llm-d.ai/engine-type")]


def test_gang_workers_do_not_serve(make_replica: Make, gang: dict[str, Any]) -> None:
    gang["members"][1]["template"]["metadata"] = {"labels": {"modelplane.ai/serving": "qwen3-8b-6e732e38e8", "a": "b"}}
    leader, worker = gang_pods(make_replica(gang))
    assert leader["metadata"]["labels"]["modelplane.ai/serving"] == "qwen3-8b-6e732e38e8"
    assert worker["metadata"]["labels"] == {
        "a": "b",
        "modelplane.ai/namespace": "ml-team",
        "modelplane.ai/deployment": "qwen3-8b",
        "modelplane.ai/replica": "qwen3-8b-6e732e38e8",
        "modelplane.ai/gang": "qwen3-8b-6e732e38e8-main-14ab19242f",
    }
    assert not {"ports", "readinessProbe"} & set(worker["spec"]["containers"][0])


def test_d7_claiming_pods_of_one_gang_stay_apart(make_replica: Make, gang: dict[str, Any]) -> None:
    for pod in gang_pods(make_replica(gang)):
        (term,) = pod["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert term["labelSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
        assert term["matchLabelKeys"] == ["leaderworkerset.sigs.k8s.io/group-index"]
        assert term["topologyKey"] == "kubernetes.io/hostname"


def test_d7_a_leader_that_claims_nothing_goes_anywhere(make_replica: Make, gang: dict[str, Any]) -> None:
    del gang["members"][0]["deviceRequests"]
    leader, worker = gang_pods(make_replica(gang))
    assert "affinity" not in leader["spec"]
    assert "modelplane.ai/gang" not in leader["metadata"]["labels"]
    assert "affinity" in worker["spec"]


def test_pod_metadata_of_the_user_is_kept_and_does_not_win(make_replica: Make) -> None:
    replica = make_replica()
    metadata = {
        "labels": {"team": "a", "modelplane.ai/serving": "x", "modelplane.ai/workload": "x"},
        "annotations": {"note": "{{ x }}"},
    }
    replica["spec"]["engines"][0]["members"][0]["template"]["metadata"] = metadata
    pod = standalone_pod(replica)["metadata"]
    assert pod["annotations"] == {"note": "{{ x }}", "cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    assert pod["labels"] == {
        "team": "a",
        "modelplane.ai/namespace": "ml-team",
        "modelplane.ai/deployment": "qwen3-8b",
        "modelplane.ai/replica": "qwen3-8b-6e732e38e8",
        "modelplane.ai/serving": "qwen3-8b-6e732e38e8",
        "modelplane.ai/workload": "qwen3-8b-6e732e38e8-main-14ab1",
    }


def test_image_pull_secrets_are_copied(make_replica: Make) -> None:
    replica = make_replica()
    replica["spec"]["engines"][0]["members"][0]["template"]["spec"]["imagePullSecrets"] = [{"name": "registry"}]
    assert standalone_pod(replica)["spec"]["imagePullSecrets"] == [{"name": "registry"}]


def test_a_member_without_devices_claims_none(make_replica: Make, make_member: Make, make_engine: Make) -> None:
    leader = make_member("Leader")
    del leader["deviceRequests"]
    replica = make_replica(make_engine("main", leader, make_member("Worker")))
    pod, _worker = gang_pods(replica)
    assert "resourceClaims" not in pod["spec"]
    assert "resources" not in pod["spec"]["containers"][0]
    assert pod["spec"]["nodeSelector"] == {"modelplane.ai/pool": "gpu-l4"}
    assert pod["spec"]["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    templates = [each for each in replica_objects(replica) if each["kind"] == "ResourceClaimTemplate"]
    assert len(templates) == 1


@pytest.mark.parametrize(
    ("classes", "taints"),
    [
        (["gpu.nvidia.com"], ["nvidia.com/gpu"]),
        (["gpu.amd.com"], ["nvidia.com/gpu", "amd.com/gpu"]),
        (["gpu.amd.com", "gpu.amd.com"], ["nvidia.com/gpu", "amd.com/gpu"]),
        (["mig.nvidia.com", "nic.example.com", "gpu", "gpu."], ["nvidia.com/gpu"]),
    ],
)
def test_tolerated_taints(make_replica: Make, classes: list[str], taints: list[str]) -> None:
    replica = make_replica()
    requests = [{"name": f"r{number}", "deviceClassName": each} for number, each in enumerate(classes)]
    replica["spec"]["engines"][0]["members"][0]["deviceRequests"] = requests
    found = standalone_pod(replica)["spec"]["tolerations"]
    assert found == [{"key": taint, "operator": "Exists", "effect": "NoSchedule"} for taint in taints]


def test_claim_requests(make_replica: Make) -> None:
    replica = make_replica()
    replica["spec"]["engines"][0]["members"][0]["deviceRequests"] = [
        {"name": "gpu", "deviceClassName": "gpu.amd.com", "count": 8, "selectors": [{"cel": "a"}, {"cel": "b\n"}]},
        {"name": "nic", "deviceClassName": "rdma.example.com", "selectors": []},
    ]
    template = replica_objects(replica)[1]
    assert template["spec"]["spec"]["devices"]["requests"] == [
        {
            "name": "gpu",
            "exactly": {
                "deviceClassName": "gpu.amd.com",
                "count": 8,
                "selectors": [{"cel": {"expression": "a"}}, {"cel": {"expression": "b\n"}}],
            },
        },
        {"name": "nic", "exactly": {"deviceClassName": "rdma.example.com", "count": 1}},
    ]
    assert "constraints" not in template["spec"]["spec"]["devices"]


def test_claim_constraints(make_replica: Make) -> None:
    replica = make_replica()
    constraints = [
        {"requests": ["gpu"], "matchAttribute": "resource.kubernetes.io/pcieRoot"},
        {"matchAttribute": "a.b/c"},
    ]
    replica["spec"]["engines"][0]["members"][0]["deviceConstraints"] = constraints
    assert replica_objects(replica)[1]["spec"]["spec"]["devices"]["constraints"] == constraints


def large(count: int, cards: int, *, constraints: Any = None, **fields: Any) -> list[dict[str, Any]]:
    """The member of an engine whose pod claims so many GPUs and network cards."""
    member: dict[str, Any] = {
        "role": "Standalone",
        "nodePoolName": "gpu",
        "deviceRequests": [
            {"name": "gpu", "deviceClassName": "gpu.nvidia.com", "count": count, "selectors": [{"cel": "true"}]},
            {"name": "nic", "deviceClassName": "efa.example.com", "count": cards, **fields},
        ],
        "template": {"spec": {"containers": [{"name": "engine", "image": "x"}]}},
    }
    if constraints:
        member["deviceConstraints"] = constraints
    return [member]


def claims_of(objects: Sequence[dict[str, Any]]) -> list[list[tuple[str, int]]]:
    """Return the requests and counts of each ResourceClaimTemplate, in the order of the pod's claims. All of them have
    the names that the pod and its container say."""
    templates = {each["metadata"]["name"]: each for each in objects if each["kind"] == "ResourceClaimTemplate"}
    pod = next(each for each in objects if each["kind"] == "Deployment")["spec"]["template"]["spec"]
    claims = pod["resourceClaims"]
    assert [claim["resourceClaimTemplateName"] for claim in claims] == list(templates)
    assert pod["containers"][0]["resources"]["claims"] == [{"name": claim["name"]} for claim in claims]
    return [
        [(each["name"], each["exactly"]["count"]) for each in template["spec"]["spec"]["devices"]["requests"]]
        for template in templates.values()
    ]


@pytest.mark.parametrize(
    ("count", "cards", "claims"),
    [
        (8, 23, [[("gpu", 8), ("nic", 23)]]),
        (8, 24, [[("gpu", 8), ("nic", 24)]]),
        (8, 25, [[("gpu", 8)], [("nic", 25)]]),
        (8, 32, [[("gpu", 8)], [("nic", 32)]]),
        (8, 40, [[("gpu", 8), ("nic", 8)], [("nic", 32)]]),
        (16, 48, [[("gpu", 16), ("nic", 16)], [("nic", 32)]]),
        (64, 1, [[("gpu", 32)], [("gpu", 32)], [("nic", 1)]]),
    ],
)
def test_a_claim_has_no_more_devices_than_kubernetes_accepts(
    make_replica: Make, make_engine: Make, count: int, cards: int, claims: list[list[tuple[str, int]]]
) -> None:
    found = claims_of(replica_objects(make_replica(make_engine("main", *large(count, cards)))))
    assert sorted(map(sorted, found)) == sorted(map(sorted, claims))
    assert all(sum(number for __, number in claim) <= 32 for claim in found)


def test_a_pod_within_the_limit_has_the_claim_that_it_had(make_replica: Make, make_engine: Make) -> None:
    objects = replica_objects(make_replica(make_engine("main", *large(8, 24))))
    template = next(each for each in objects if each["kind"] == "ResourceClaimTemplate")
    assert "-standalone-devices-" in template["metadata"]["name"]
    pod = next(each for each in objects if each["kind"] == "Deployment")["spec"]["template"]["spec"]
    assert pod["resourceClaims"] == [{"name": "devices", "resourceClaimTemplateName": template["metadata"]["name"]}]


def test_a_constraint_is_in_the_claim_of_its_requests(make_replica: Make, make_engine: Make) -> None:
    constraints = [{"requests": ["nic"], "matchAttribute": "a.b/c"}, {"requests": ["gpu"], "matchAttribute": "d.e/f"}]
    objects = replica_objects(make_replica(make_engine("main", *large(8, 32, constraints=constraints))))
    found = {
        each["spec"]["spec"]["devices"]["requests"][0]["name"]: each["spec"]["spec"]["devices"]["constraints"]
        for each in objects
        if each["kind"] == "ResourceClaimTemplate"
    }
    assert found == {"gpu": [constraints[1]], "nic": [constraints[0]]}


@pytest.mark.parametrize(
    ("cel", "composed"),
    [
        ('device.attributes["a.b"].c == 1', '"c" in device.attributes["a.b"] && device.attributes["a.b"].c == 1'),
        ('has(device.attributes["a.b"].c) && device.attributes["a.b"].c == 1', None),
        (
            'device.capacity["a.b"].m == quantity("1")',
            '"m" in device.capacity["a.b"] && device.capacity["a.b"].m == quantity("1")',
        ),
    ],
)
def test_a_guarded_claim_tests_for_what_its_selectors_read(
    make_replica: Make, make_engine: Make, cel: str, composed: str | None
) -> None:
    for guarded, expected in ((None, cel), (True, composed or cel)):
        fields = {"selectors": [{"cel": cel}], **({"guarded": guarded} if guarded else {})}
        objects = replica_objects(make_replica(make_engine("main", *large(1, 1, **fields))))
        requests = next(each for each in objects if each["kind"] == "ResourceClaimTemplate")["spec"]["spec"]["devices"]
        assert requests["requests"][1]["exactly"]["selectors"] == [{"cel": {"expression": expected}}]


def test_phases_not_names_make_the_pair(make_replica: Make, pick: Make, pair: tuple[Any, ...]) -> None:
    objects = replica_objects(make_replica(*pair, serving={"mode": "PrefillDecode"}))
    pods = {
        each["spec"]["template"]["metadata"]["labels"]["llm-d.ai/role"]: each["spec"]["template"]["spec"]["containers"]
        for each in objects
        if each["kind"] == "Deployment" and not each["metadata"]["name"].endswith("-epp")
    }
    assert [each["name"] for each in pods["prefill"]] == ["engine"]
    assert [each["name"] for each in pods["decode"]] == ["engine"]
    assert "blockSizeTokens: 64\n" in pick(objects, "ConfigMap")["data"]["epp-config.yaml"]


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        (None, [NIXL_HOST, NIXL_PORT]),
        ([{"name": "A", "value": "1"}], [{"name": "A", "value": "1"}, NIXL_HOST, NIXL_PORT]),
        (
            [{"name": "VLLM_NIXL_SIDE_CHANNEL_PORT", "value": "6000"}],
            [{"name": "VLLM_NIXL_SIDE_CHANNEL_PORT", "value": "6000"}, NIXL_HOST],
        ),
        ([NIXL_HOST, NIXL_PORT], [NIXL_HOST, NIXL_PORT]),
    ],
)
def test_side_channel_env(make_replica: Make, make_member: Make, make_engine: Make, env: Any, expected: Any) -> None:
    container = {} if env is None else {"env": env}
    engine = make_engine("main", make_member(**container), phase="Prefill")
    pod = standalone_pod(make_replica(engine, serving={"mode": "PrefillDecode"}))
    assert pod["spec"]["containers"][0]["env"] == expected


def test_a_decode_gang_has_the_sidecar_at_its_leader(make_replica: Make, make_member: Make, make_engine: Make) -> None:
    script = "ray start --head --port=6379 && exec vllm serve /mnt/models --port 8005"
    leader = make_member("Leader", command=["/bin/sh", "-c", script])
    decode = make_engine("decode", leader, make_member("Worker"), phase="Decode")
    prefill = make_engine("prefill", make_member(), phase="Prefill")
    leads, works = gang_pods(make_replica(prefill, decode, serving={"mode": "PrefillDecode"}))
    (engine,), (sidecar,) = leads["spec"]["containers"], leads["spec"]["initContainers"]
    assert engine["ports"] == [{"containerPort": 8005}]
    assert engine["readinessProbe"]["httpGet"] == {"path": "/health", "port": 8005}
    assert engine["env"] == [LEADER_ADDRESS, RANK, NIXL_HOST, NIXL_PORT]
    assert "--vllm-port=8005" in sidecar["args"]
    assert leads["metadata"]["labels"]["llm-d.ai/role"] == "decode"
    assert len(works["spec"]["containers"]) == 1
    assert "llm-d.ai/role" not in works["metadata"]["labels"]
    assert works["spec"]["containers"][0]["env"] == [LEADER_ADDRESS, RANK]


def containers_in(value: Any) -> Iterator[int]:
    """The identities of all dicts and lists in a value."""
    if isinstance(value, (dict, list)):
        yield id(value)
        for held in value.values() if isinstance(value, dict) else value:
            yield from containers_in(held)


def test_nothing_is_changed_and_nothing_is_shared(make_replica: Make, pair: tuple[Any, ...]) -> None:
    """Files would show sharing as YAML anchors, and a change of one object would reach another."""
    env = [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
    for engine in pair:
        engine["members"][0]["template"]["spec"]["containers"][0]["env"] = env
        engine["members"][0]["template"]["spec"]["imagePullSecrets"] = [{"name": "registry"}]
    replica = make_replica(*pair, serving={"mode": "PrefillDecode"})
    before = deepcopy(replica)
    objects = replica_objects(replica)
    identities = list(containers_in(list(objects)))
    assert replica == before
    assert len(identities) == len(set(identities))
    assert not set(identities) & set(containers_in(replica))
    assert objects == replica_objects(replica)


def test_workloads_name_the_spec_they_were_applied_with(make_replica: Make, gang: dict[str, Any]) -> None:
    def hashes(replica: dict[str, Any]) -> list[str]:
        metadata = [each["metadata"] for each in replica_objects(replica) if each["kind"] != "Namespace"]
        marked = [entry["annotations"] for entry in metadata if "annotations" in entry]
        assert all(set(annotations) == {"modelplane.ai/spec-hash"} for annotations in marked)
        return [annotations["modelplane.ai/spec-hash"] for annotations in marked]

    first, picker = hashes(make_replica(gang))
    assert first != picker
    assert hashes(make_replica(gang)) == [first, picker]
    other, same = hashes(make_replica({**gang, "copies": 3}))
    assert other != first
    assert same == picker


def test_keys_come_in_the_order_in_which_people_write_them(make_replica: Make) -> None:
    order = ["apiVersion", "kind", "metadata", "spec", "rules", "data", "subjects", "roleRef"]
    for each in replica_objects(make_replica()):
        assert list(each) == sorted(each, key=order.index)
        assert list(each["metadata"])[:1] == ["name"]

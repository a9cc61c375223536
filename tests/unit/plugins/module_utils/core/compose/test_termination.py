# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of how the pods of engines end: streams finish first, drains take one copy at a time, engines are not moved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import Options
from ansible_collections.modelplane.fleet.tests.written import replica_objects

Make = Callable[..., dict[str, Any]]
Spec = dict[str, Any]
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"


def templates(objects: Any) -> Iterator[dict[str, Any]]:
    """The pod templates of engines, leaders before their workers."""
    for each in objects:
        if each["kind"] == "LeaderWorkerSet":
            yield each["spec"]["leaderWorkerTemplate"]["leaderTemplate"]
            yield each["spec"]["leaderWorkerTemplate"]["workerTemplate"]
        elif each["kind"] == "Deployment" and not each["metadata"]["name"].endswith("-epp"):
            yield each["spec"]["template"]


def pause(container: Spec) -> int | None:
    """For how long a container serves on, at most."""
    hook = container.get("lifecycle", {}).get("preStop", {})
    if "sleep" in hook:
        return int(hook["sleep"]["seconds"])
    command = hook.get("exec", {}).get("command", ())
    return int(command[-1]) if command[:1] == ["sh"] else None


def pauses(spec: Spec) -> list[int | None]:
    """For how long each container serves on, at most."""
    return list(map(pause, spec["containers"]))


def sleep(seconds: int) -> dict[str, Any]:
    return {"preStop": {"sleep": {"seconds": seconds}}}


# What a member says of its pod, and of its container; grace of the fleet; period and pause of the pod.
ENDS: dict[str, tuple[Spec, Spec, int, int, int | None]] = {
    "default": ({}, {}, 240, 270, 240),
    "of the fleet": ({}, {}, 600, 630, 600),
    "at once": ({}, {}, 0, 30, None),
    "a period": ({"terminationGracePeriodSeconds": 630}, {}, 240, 630, 600),
    "a short period": ({"terminationGracePeriodSeconds": 30}, {}, 240, 30, 15),
    "the shortest period": ({"terminationGracePeriodSeconds": 1}, {}, 240, 1, None),
    "a pause": ({}, {"lifecycle": sleep(15)}, 240, 45, 15),
    "a longer pause": ({}, {"lifecycle": sleep(900)}, 240, 930, 900),
    "both": ({"terminationGracePeriodSeconds": 330}, {"lifecycle": sleep(15)}, 240, 330, 15),
}


@pytest.mark.parametrize(("pod", "container", "grace", "period", "pause"), ENDS.values(), ids=ENDS)
def test_a_pod_serves_on_until_its_streams_have_ended(
    make_replica: Make,
    make_member: Make,
    make_engine: Make,
    pod: Spec,
    container: Spec,
    grace: int,
    period: int,
    pause: int | None,
) -> None:
    member = make_member(**container)
    member["template"]["spec"].update(pod)
    (template,) = templates(replica_objects(make_replica(make_engine("main", member)), Options(stream_grace=grace)))
    assert template["spec"]["terminationGracePeriodSeconds"] == period
    assert pauses(template["spec"]) == [pause]


@pytest.mark.parametrize("container", [{}, {"lifecycle": sleep(15)}])
def test_a_sidecar_lasts_as_long_as_its_engine(
    make_replica: Make, make_member: Make, make_engine: Make, container: Spec
) -> None:
    """Kubernetes stops init containers that restart always after all others, without a pause of their own."""
    prefill = make_engine("prefill", make_member(), phase="Prefill")
    decode = make_engine("decode", make_member(**container), phase="Decode")
    _prefill, template = templates(replica_objects(make_replica(prefill, decode, serving={"mode": "PrefillDecode"})))
    assert [each["name"] for each in template["spec"]["containers"]] == ["engine"]
    (sidecar,) = template["spec"]["initContainers"]
    assert (sidecar["name"], sidecar["restartPolicy"]) == ("pd-sidecar", "Always")
    assert "lifecycle" not in sidecar


def test_what_a_container_does_at_its_start_and_end_is_passed_on(make_replica: Make) -> None:
    command = {"exec": {"command": ["sh", "-c", "$(X) {{ y }}"]}}
    request = {"httpGet": {"path": "/drain", "port": 8000}}
    (template,) = templates(replica_objects(make_replica()))
    drain = template["spec"]["containers"][0]["lifecycle"]["preStop"]
    for written, expected in (
        ({"postStart": command}, {"postStart": command, "preStop": drain}),
        ({"postStart": command, "preStop": request}, {"postStart": command, "preStop": request}),
    ):
        (template,) = templates(replica_objects(make_replica(container={"lifecycle": written})))
        assert template["spec"]["containers"][0]["lifecycle"] == expected


@pytest.mark.parametrize(
    ("pod", "container", "expected"),
    [
        ({}, {}, {}),
        ({"terminationGracePeriodSeconds": 60}, {}, {"terminationGracePeriodSeconds": 60}),
        ({}, {"lifecycle": sleep(90)}, {"terminationGracePeriodSeconds": 120, "lifecycle": sleep(90)}),
    ],
)
def test_a_worker_of_a_gang_ends_as_it_says(
    make_replica: Make, make_member: Make, make_engine: Make, pod: Spec, container: Spec, expected: Spec
) -> None:
    """Streams are the leader's, and its workers go after it."""
    worker = make_member("Worker", **container)
    worker["template"]["spec"].update(pod)
    leads, works = templates(replica_objects(make_replica(make_engine("main", make_member("Leader"), worker))))
    assert pauses(leads["spec"]) == [30]
    found = {**works["spec"], **works["spec"]["containers"][0]}
    assert {key: found[key] for key in ("terminationGracePeriodSeconds", "lifecycle") if key in found} == expected


@pytest.mark.parametrize(
    ("pod", "container", "grace", "period", "pause"),
    [
        ({}, {}, 240, 60, 30),
        ({}, {}, 10, 40, 10),
        ({}, {}, 0, 30, None),
        ({}, {"lifecycle": sleep(90)}, 240, 120, 90),
        ({"terminationGracePeriodSeconds": 630}, {}, 240, 630, 600),
    ],
)
def test_the_leader_of_a_gang_goes_soon_as_its_workers_go_at_once(
    make_replica: Make,
    make_member: Make,
    make_engine: Make,
    pod: Spec,
    container: Spec,
    grace: int,
    period: int,
    pause: int | None,
) -> None:
    leader = make_member("Leader", **container)
    leader["template"]["spec"].update(pod)
    replica = make_replica(make_engine("main", leader, make_member("Worker")))
    leads, _works = templates(replica_objects(replica, Options(stream_grace=grace)))
    assert leads["spec"]["terminationGracePeriodSeconds"] == period
    assert pauses(leads["spec"]) == [pause]


@pytest.mark.parametrize(
    ("image", "fields", "drains"),
    [
        ("vllm/vllm-openai:v0.23.0", {}, True),
        ("mirror.example.com/models/vllm-openai@sha256:" + "0" * 64, {}, True),
        ("ghcr.io/llm-d/llm-d-cuda:v0.3", {"command": ["sh", "-c", "exec vllm serve m --port 8000"]}, True),
        ("lmsysorg/sglang:v0.5", {"command": ["python3", "-m", "sglang.launch_server"]}, True),
        ("ghcr.io/huggingface/text-generation-inference:3", {}, False),
        ("example.com/own:1", {"command": ["/server"]}, False),
    ],
)
def test_only_known_engines_are_asked_for_their_requests(
    make_replica: Make, image: str, fields: Spec, drains: bool
) -> None:
    """An image of another server may have no shell, and a hook that cannot run ends the pod at once."""
    (template,) = templates(replica_objects(make_replica(container={"image": image, **fields})))
    container = template["spec"]["containers"][0]
    (handler,) = container["lifecycle"]["preStop"]
    assert (handler, pause(container)) == ("exec" if drains else "sleep", 240)
    assert ("livenessProbe" in container) is drains


@pytest.mark.parametrize(
    ("image", "fields", "added"),
    [
        ("vllm/vllm-openai:v0.19.0", {}, True),
        ("vllm/vllm-openai:v0.32.1-cu130", {"args": ["--model=m"]}, True),
        ("mirror.example.com:5000/vllm-openai-rocm:v1.0@sha256:" + "0" * 64, {"command": ["vllm", "serve", "m"]}, True),
        ("vllm/vllm-openai:v0.23.0", {"command": ["vllm", "serve", "m"]}, True),
        ("vllm/vllm-openai:v0.18.1", {}, False),
        ("vllm/vllm-openai:v0.19.0rc1", {}, False),
        ("vllm/vllm-openai:latest", {}, False),
        ("vllm/vllm-openai", {}, False),
        ("vllm/vllm-openai@sha256:" + "0" * 64, {}, False),
        ("example.com/engine:v0.23.0", {"command": ["vllm", "serve", "m"]}, False),
        ("vllm/vllm-openai:v0.23.0", {"command": ["sh", "-c", "vllm serve m"]}, False),
        ("vllm/vllm-openai:v0.23.0", {"args": ["--shutdown-timeout=300"]}, False),
        ("vllm/vllm-openai:v0.23.0", {"args": ["--shutdown_timeout", "0"]}, False),
        ("vllm/vllm-openai:v0.23.0", {"args": ["--config=/engine.yaml"]}, False),
        ("lmsysorg/sglang:v0.23.0", {"command": ["python3", "-m", "sglang.launch_server"]}, False),
    ],
)
def test_a_vllm_known_to_have_the_flag_waits_for_streams_on_sigterm(
    make_replica: Make, image: str, fields: Spec, added: bool
) -> None:
    """An engine does not start with a flag that it does not have."""
    (template,) = templates(replica_objects(make_replica(container={"image": image, **fields})))
    written = fields.get("args", [])
    assert template["spec"]["containers"][0].get("args", []) == [
        *written,
        *(["--shutdown-timeout=20"] if added else []),
    ]


@pytest.mark.parametrize(
    ("pod", "container", "timeout"),
    [
        ({"terminationGracePeriodSeconds": 330}, {"lifecycle": sleep(15)}, 305),
        ({"terminationGracePeriodSeconds": 30}, {}, 5),
        ({"terminationGracePeriodSeconds": 10}, {}, None),
    ],
)
def test_streams_have_the_rest_of_the_period(
    make_replica: Make, make_member: Make, make_engine: Make, pod: Spec, container: Spec, timeout: int | None
) -> None:
    member = make_member(**container)
    member["template"]["spec"].update(pod)
    (template,) = templates(replica_objects(make_replica(make_engine("main", member))))
    expected = [] if timeout is None else [f"--shutdown-timeout={timeout}"]
    assert template["spec"]["containers"][0]["args"] == expected


def test_a_gang_gets_no_further_flag(make_replica: Make, gang: Spec) -> None:
    for template in templates(replica_objects(make_replica(gang))):
        assert "--shutdown-timeout" not in str(template["spec"]["containers"][0].get("args"))


def test_a_prefill_engine_serves_until_its_kv_cache_is_read(
    make_replica: Make, make_member: Make, make_engine: Make
) -> None:
    engines = [make_engine(phase.lower(), make_member(), phase=phase) for phase in ("Prefill", "Decode")]
    objects = replica_objects(make_replica(*engines, serving={"mode": "PrefillDecode"}))
    commands = [
        template["spec"]["containers"][0]["lifecycle"]["preStop"]["exec"]["command"] for template in templates(objects)
    ]
    assert [command[5] for command in commands] == ["8000", "8001"]
    assert [command[6].endswith("|vllm:kv_cache_usage_perc") for command in commands] == [True, False]


def test_a_picker_serves_on_too(make_replica: Make, pick: Make) -> None:
    deployment = pick(replica_objects(make_replica(), Options(stream_grace=90)), "Deployment", "-epp")
    spec = deployment["spec"]["template"]["spec"]
    assert (spec["terminationGracePeriodSeconds"], pauses(spec)) == (120, [90])


@pytest.mark.parametrize(
    ("pod", "container", "period", "pause"),
    [
        ({"terminationGracePeriodSeconds": 630}, {}, 630, 600),
        ({"terminationGracePeriodSeconds": 330}, {"lifecycle": sleep(15)}, 330, 300),
        ({}, {"lifecycle": sleep(900)}, 930, 900),
        ({"terminationGracePeriodSeconds": 60}, {}, 270, 240),
    ],
)
def test_a_picker_serves_on_as_long_as_the_engine_that_takes_longest(
    make_replica: Make,
    make_member: Make,
    make_engine: Make,
    pick: Make,
    pod: Spec,
    container: Spec,
    period: int,
    pause: int,
) -> None:
    """Streams pass it, and it has rollouts of its own."""
    slow = make_member(**container)
    slow["template"]["spec"].update(pod)
    replica = make_replica(make_engine("slow", slow), make_engine("main", make_member()))
    spec = pick(replica_objects(replica), "Deployment", "-epp")["spec"]["template"]["spec"]
    assert (spec["terminationGracePeriodSeconds"], pauses(spec)) == (period, [pause])


@pytest.mark.parametrize(
    ("engine", "container", "start"),
    [
        ({}, {}, 3600),
        ({"startupMinutes": 5}, {}, 300),
        ({}, {"startupProbe": {"httpGet": {"port": 8000}}}, 30),
        ({}, {"startupProbe": {"tcpSocket": {"port": 1}, "initialDelaySeconds": 60, "failureThreshold": 720}}, 7260),
    ],
)
def test_a_rollout_may_take_the_time_of_a_start_and_of_a_stop(
    make_replica: Make, make_member: Make, make_engine: Make, pick: Make, engine: Spec, container: Spec, start: int
) -> None:
    """With all devices in use, the new pod starts when the old one is gone."""
    replica = make_replica(make_engine("main", make_member(**container), **engine))
    for grace in (0, 600):
        spec = pick(replica_objects(replica, Options(stream_grace=grace)), "Deployment", "-14ab1")["spec"]
        period = spec["template"]["spec"]["terminationGracePeriodSeconds"]
        assert spec["progressDeadlineSeconds"] == 600 + period + start


def test_no_one_moves_engines_to_empty_a_node(
    make_replica: Make, gang: Spec, make_engine: Make, make_member: Make
) -> None:
    replica = make_replica(gang, make_engine("second", make_member()))
    annotations = [each["metadata"]["annotations"] for each in templates(replica_objects(replica))]
    assert annotations == [{SAFE_TO_EVICT: "false"}] * 3


def test_a_user_may_have_engines_moved(make_replica: Make, make_member: Make, make_engine: Make) -> None:
    member = make_member()
    member["template"]["metadata"] = {"annotations": {SAFE_TO_EVICT: "true", "a": "b"}}
    (template,) = templates(replica_objects(make_replica(make_engine("main", member))))
    assert template["metadata"]["annotations"] == {SAFE_TO_EVICT: "true", "a": "b"}


@pytest.mark.parametrize("copies", [1, 2, 5])
def test_nodes_are_drained_one_copy_at_a_time(
    make_replica: Make, make_member: Make, make_engine: Make, gang: Spec, copies: int
) -> None:
    engine = make_engine("second", make_member(), copies=copies)
    objects = replica_objects(make_replica({**gang, "copies": copies}, engine))
    workloads = [
        each
        for each in objects
        if each["kind"] in ("Deployment", "LeaderWorkerSet") and not each["metadata"]["name"].endswith("-epp")
    ]
    budgets = [each for each in objects if each["kind"] == "PodDisruptionBudget"]
    if copies == 1:
        assert not budgets
        return
    assert [each["metadata"]["name"] for each in budgets] == [each["metadata"]["name"] for each in workloads]
    assert [each["spec"]["maxUnavailable"] for each in budgets] == [1, 1]
    gangs, deployment = (each["spec"]["selector"]["matchLabels"] for each in budgets)
    assert gangs == {"leaderworkerset.sigs.k8s.io/name": workloads[0]["metadata"]["name"]}
    assert deployment == workloads[1]["spec"]["selector"]["matchLabels"]

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The launch that a gang without a command gets: its flags, and what its scripts really run in a shell."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.conversion import canonical

ENVIRONMENT = {"MODELPLANE_LEADER_ADDRESS": "lws-0.lws.ns", "MODELPLANE_RANK": "3", "MODEL": "org/model"}


def gang(
    topology: dict[str, int],
    args: list[str] | None = None,
    *,
    cached: bool = False,
    decode: bool = False,
    **container: Any,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The leader's and the worker's container of a deployment in the workers form."""
    engine = {
        "name": "engine",
        "image": "vllm/vllm-openai",
        **({"args": args} if args is not None else {}),
        **container,
    }
    workers = {"topology": topology, "template": {"containers": [engine]}}
    selector = {"devices": [{"name": "gpu", "selectors": [{"cel": "true"}]}]}
    spec: dict[str, Any] = {"replicas": 1, "nodeSelector": selector, "workers": workers}
    if cached:
        spec["modelCacheRef"] = {"name": "weights"}
    if decode:
        prefill = {"topology": {"tensor": 1}, "template": {"containers": [{**engine, "command": ["x"]}]}}
        spec["prefill"] = {"nodeSelector": selector, "workers": prefill}
    document = canonical({"kind": "ModelDeployment", "spec": spec}).document
    leader, worker = document["spec"]["template"]["spec"]["engines"][-1]["members"]
    assert (leader["role"], worker["role"]) == ("Leader", "Worker")
    return leader["template"]["spec"]["containers"][0], worker["template"]["spec"]["containers"][0]


TP_PP = ["--tensor-parallel-size=8", "--pipeline-parallel-size=2"]

FLAGS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "axes": ({"args": ["--model=m"]}, ["--model=m", *TP_PP]),
    "no args": ({}, TP_PP),
    "given with =": ({"args": ["--tensor-parallel-size=4"]}, ["--tensor-parallel-size=4", TP_PP[1]]),
    "given apart": ({"args": ["--pipeline-parallel-size", "1"]}, ["--pipeline-parallel-size", "1", TP_PP[0]]),
    "given short": ({"args": ["-tp", "4", "-pp=1"]}, ["-tp", "4", "-pp=1"]),
    "given with underscores": ({"args": ["--tensor_parallel_size=4"]}, ["--tensor_parallel_size=4", TP_PP[1]]),
    "cache": ({"args": [], "cached": True}, ["--model=/mnt/models", *TP_PP]),
    "cache and a model": ({"args": ["--model", "m"], "cached": True}, ["--model", "m", *TP_PP]),
    "decode half": ({"args": [], "decode": True}, [*TP_PP, "--port=8001"]),
    "decode half with a port": ({"args": ["--port", "9000"], "decode": True}, ["--port", "9000", *TP_PP]),
}


@pytest.mark.parametrize(("deployment", "args"), FLAGS.values(), ids=FLAGS)
def test_flags_are_added_when_they_are_missing(deployment: dict[str, Any], args: list[str]) -> None:
    leader, worker = gang({"tensor": 8, "pipeline": 2}, **deployment)
    assert leader["args"] == worker["args"] == args


def test_data_axes_have_flags_of_their_own() -> None:
    leader, _worker = gang({"tensor": 2, "data": 16, "dataLocal": 4}, ["-dpl=2"])
    assert leader["args"] == [
        "-dpl=2",
        "--tensor-parallel-size=2",
        "--pipeline-parallel-size=1",
        "--data-parallel-size=16",
    ]


@pytest.mark.parametrize("command", [["/start.sh"], "not a list"])
def test_a_command_is_left_alone(command: Any) -> None:
    leader, worker = gang({"tensor": 8, "pipeline": 2}, ["-x"], command=command, env=[{"name": "A", "value": "b"}])
    expected = {"command": command, "args": ["-x"], "env": [{"name": "A", "value": "b"}]}
    assert leader == worker == {"name": "engine", "image": "vllm/vllm-openai", **expected}


def test_an_empty_command_is_none() -> None:
    assert gang({"tensor": 8, "pipeline": 2}, command=[])[0]["command"][:2] == ["/bin/sh", "-c"]


def test_malformed_args_are_left_to_the_validator() -> None:
    leader, _worker = gang({"tensor": 8, "pipeline": 2}, args=[1])  # type: ignore[list-item]
    assert "command" not in leader
    assert leader["args"] == [1]


def test_an_image_that_is_not_vllm_is_warned_about() -> None:
    workers = {
        "topology": {"tensor": 8, "pipeline": 2},
        "template": {"containers": [{"name": "engine", "image": "sglang"}]},
    }
    result = canonical({"kind": "ModelDeployment", "spec": {"workers": workers}})
    assert any("written for vLLM" in warning.message for warning in result.warnings)


# --- in a shell -----------------------------------------------------------------------------------------------------


def expanded(text: str) -> str:
    """`$(VAR)` as Kubernetes expands it in command and args before a container starts; unknown names stay."""
    return re.sub(r"\$\((\w+)\)", lambda match: ENVIRONMENT.get(match[1], match[0]), text)


def executable(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


def environment(folder: Path) -> dict[str, str]:
    return {**ENVIRONMENT, "PATH": f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin"}


def run(container: dict[str, Any], folder: Path, *, ray: bool) -> list[list[str]]:
    """Run a container's command with stand-ins for the programs of the image; what they were called with.

    python3 fails at its first call, as it does while nodes are still missing.
    """
    log = folder / "log"
    record = (
        f"""for word in "$(basename "$0")" "$@"; do printf '%s\\0' "$word" >> {log}; done; printf '\\n\\0' >> {log}"""
    )
    executable(folder / "vllm", f'{record}\nprintf "pack=%s" "$VLLM_RAY_DP_PACK_STRATEGY" > {folder}/pack')
    executable(folder / "python3", f"{record}\ntest -e {folder}/again || {{ touch {folder}/again; exit 1; }}")
    executable(folder / "sleep", record)
    if ray:
        executable(folder / "ray", record)
    words = [expanded(word) for word in [*container["command"], *container["args"]]]
    done = subprocess.run(
        words,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    calls = log.read_text(encoding="utf-8").split("\n\0")[:-1]
    return [call.split("\0")[:-1] for call in calls]


NASTY = ["--model=$(MODEL)", "--served-model-name=a b'c\"d; touch x", '--json={"a": "$HOME `id` $$"}', "--x=$(UNKNOWN)"]
NASTY_EXPANDED = ["--model=org/model", *NASTY[1:]]


@pytest.mark.integration
def test_leader_starts_ray_waits_for_all_nodes_and_serves(tmp_path: Path) -> None:
    leader, _worker = gang({"tensor": 8, "pipeline": 2}, NASTY)
    head, first, pause, second, serve = run(leader, tmp_path, ray=True)
    assert head == ["ray", "start", "--head", "--port=6379"]
    assert first == second
    assert (first[:2], first[-1]) == (["python3", "-c"], "2")
    compile(first[2], "wait", "exec")
    assert pause == ["sleep", "5"]
    assert serve == ["vllm", "serve", *NASTY_EXPANDED, *TP_PP, "--distributed-executor-backend=ray"]
    assert (tmp_path / "pack").read_text(encoding="utf-8") == "pack="


@pytest.mark.integration
def test_worker_waits_for_the_head_and_joins(tmp_path: Path) -> None:
    _leader, worker = gang({"tensor": 8, "pipeline": 2}, NASTY)
    first, pause, second, join = run(worker, tmp_path, ray=True)
    assert first == second
    assert first[3:] == ["lws-0.lws.ns", "6379"]
    compile(first[2], "wait", "exec")
    assert pause == ["sleep", "2"]
    assert join == ["ray", "start", "--address=lws-0.lws.ns:6379", "--block"]


@pytest.mark.integration
@pytest.mark.parametrize("part", [0, 1], ids=["leader", "worker"])
def test_a_gang_that_waits_ends_on_a_signal(tmp_path: Path, part: int) -> None:
    """The shell ends itself (143): in its pod it is process 1, which the signal alone would not end, as here (-15)."""
    container = gang({"tensor": 8, "pipeline": 2})[part]
    waiting = tmp_path / "waiting"
    executable(tmp_path / "ray", ":")
    executable(tmp_path / "python3", "exit 1")
    executable(tmp_path / "sleep", f": >{waiting}\nwhile [ -e {waiting} ]; do :; done")
    words = [expanded(word) for word in [*container["command"], *container["args"]]]
    with subprocess.Popen(words, env=environment(tmp_path), start_new_session=True) as process:
        while not waiting.exists():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        waiting.unlink()
        assert process.wait(timeout=20) == 143


@pytest.mark.integration
@pytest.mark.parametrize(("own", "expected"), [({}, "0"), ({"RAY_USAGE_STATS_ENABLED": "1"}, "1")])
@pytest.mark.parametrize("part", [0, 1], ids=["leader", "worker"])
def test_ray_sends_no_usage_reports_unless_they_are_enabled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: dict[str, str], expected: str, part: int
) -> None:
    for name, value in own.items():
        monkeypatch.setitem(ENVIRONMENT, name, value)
    container = gang({"tensor": 8, "pipeline": 2})[part]
    executable(tmp_path / "ray", f'printf "%s" "$RAY_USAGE_STATS_ENABLED" >{tmp_path}/stats')
    executable(tmp_path / "python3", ":")
    executable(tmp_path / "vllm", ":")
    words = [expanded(word) for word in [*container["command"], *container["args"]]]
    subprocess.run(words, env=environment(tmp_path), timeout=20, check=True)
    assert (tmp_path / "stats").read_text(encoding="utf-8") == expected


@pytest.mark.integration
def test_an_image_without_ray_uses_vllms_own_launch(tmp_path: Path) -> None:
    leader, worker = gang({"tensor": 8, "pipeline": 2}, NASTY)
    (tmp_path / "l").mkdir()
    (tmp_path / "w").mkdir()
    common = ["vllm", "serve", *NASTY_EXPANDED, *TP_PP, "--nnodes=2", "--node-rank=3", "--master-addr=lws-0.lws.ns"]
    assert run(leader, tmp_path / "l", ray=False) == [[*common, "--distributed-executor-backend=mp"]]
    assert run(worker, tmp_path / "w", ray=False) == [[*common, "--headless", "--distributed-executor-backend=mp"]]


@pytest.mark.integration
def test_a_named_backend_is_the_one_that_runs(tmp_path: Path) -> None:
    leader, worker = gang({"tensor": 8, "pipeline": 2}, ["--distributed-executor-backend=mp"])
    calls = run(leader, tmp_path, ray=True)
    assert [call[:1] for call in calls] == [["vllm"]]
    assert calls[0].count("--distributed-executor-backend=mp") == 1
    assert "ray" not in worker["command"][2]
    leader, _worker = gang({"tensor": 8, "pipeline": 2}, ["--distributed-executor-backend", "ray"])
    assert "--nnodes" not in leader["command"][2]
    assert leader["command"][2].count("--distributed-executor-backend") == 0


@pytest.mark.integration
def test_data_parallel_ranks_over_ray(tmp_path: Path) -> None:
    leader, _worker = gang({"tensor": 1, "data": 16, "dataLocal": 8}, [])
    serve = run(leader, tmp_path, ray=True)[-1]
    assert serve[-3:] == ["--data-parallel-size=16", "--data-parallel-size-local=8", "--data-parallel-backend=ray"]
    assert (tmp_path / "pack").read_text(encoding="utf-8") == "pack="


@pytest.mark.integration
def test_ranks_that_span_nodes_are_packed_so(tmp_path: Path) -> None:
    leader, _worker = gang({"tensor": 2, "pipeline": 2, "data": 8, "dataLocal": 4}, [])
    serve = run(leader, tmp_path, ray=True)[-1]
    assert serve[-2:] == ["--distributed-executor-backend=ray", "--data-parallel-backend=ray"]
    assert (tmp_path / "pack").read_text(encoding="utf-8") == "pack=span"


def test_the_launch_is_stable_text() -> None:
    pairs = [gang({"tensor": 8, "pipeline": 2}, ["--model=m"]) for _ in range(2)]
    assert json.dumps(pairs[0]) == json.dumps(pairs[1])

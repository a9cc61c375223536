# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The composed drain hook and stall probe, run as the kubelet runs them, with a stand-in for the engine."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.tests.written import replica_objects

pytestmark = pytest.mark.integration

Make = Callable[..., dict[str, Any]]
ENGINE = Path(__file__).resolve().parents[5] / "engine.py"
KEY = "key-of-the-stand-in"
LONG_AGO = 100_000


class StandIn:
    """A running stand-in."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.process = process
        started = json.loads(process.stdout.readline())
        self.port: int = started["port"]
        self.core: int = started["core"]

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as response:
            return str(response.read().decode())

    def counts(self) -> dict[str, float]:
        found: dict[str, float] = json.loads(self.get("/counts"))
        return found

    def wait(self, condition: Callable[[dict[str, float]], bool]) -> None:
        latest = time.monotonic() + 60
        while not condition(self.counts()):
            assert time.monotonic() < latest
            time.sleep(0.01)

    def request(self, **request: int) -> None:
        """Send a request that does not end by itself, and wait until the core computes it."""
        body = json.dumps({"max_tokens": 0, "steps": 1, **request}).encode()
        headers = {"Authorization": f"Bearer {KEY}"}
        sent = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/completions", body, headers)
        threading.Thread(target=_sent, args=(sent,), daemon=True).start()
        self.wait(lambda counts: counts["running"] == 1)

    def freeze(self) -> None:
        os.kill(self.core, signal.SIGSTOP)


def _sent(request: urllib.request.Request) -> None:
    try:
        urllib.request.urlopen(request, timeout=60).read()
    except OSError:
        return


@contextmanager
def stand_in(*arguments: str, **variables: str) -> Iterator[StandIn]:
    process = subprocess.Popen(
        [sys.executable, str(ENGINE), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables},
        start_new_session=True,
    )
    try:
        yield StandIn(process)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def files(folder: Path) -> Iterator[int]:
    """Serve the files of a folder on a port."""
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.fixture(params=["vllm", "sglang"])
def names(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def engine(names: str) -> Iterator[StandIn]:
    with stand_in("--names", names) as started:
        yield started


@pytest.fixture
def compose(make_replica: Make, make_member: Make, make_engine: Make) -> Callable[..., dict[str, Any]]:
    def build(**engine: Any) -> dict[str, Any]:
        replica = make_replica(make_engine("main", make_member(), **engine))
        deployment = next(each for each in replica_objects(replica) if each["kind"] == "Deployment")
        container: dict[str, Any] = deployment["spec"]["template"]["spec"]["containers"][0]
        return container

    return build


def adjusted(command: Sequence[str], values: Mapping[str, object]) -> list[str]:
    """The command with other ports, times and files. All of them are arguments."""
    assert set(values) <= set(command)
    return [str(values.get(argument, argument)) for argument in command]


@pytest.fixture
def drain(compose: Callable[..., dict[str, Any]]) -> Callable[..., list[str]]:
    """Builds the drain hook. It would wait an hour unless it sees that the engine is idle."""

    def build(port: int, most: float = 3600, **values: object) -> list[str]:
        command = compose()["lifecycle"]["preStop"]["exec"]["command"]
        return adjusted(command, {"8000": port, "15": 0.3, "5": 0.2, "240": most, **values})

    return build


class Stall:
    """The composed stall probe of a container, which remembers the metrics of its last run."""

    def __init__(self, folder: Path, container: Mapping[str, Any]) -> None:
        self._command: list[str] = container["livenessProbe"]["exec"]["command"]
        self.memory, self.log, self.termination = folder / "memory", folder / "log", folder / "termination"

    def run(self, port: int, patience: float = 20, **variables: str) -> subprocess.CompletedProcess[str]:
        files = {
            "/dev/shm/modelplane-stall": self.memory,
            "/proc/1/fd/1": self.log,
            "/dev/termination-log": self.termination,
        }
        command = adjusted(self._command, {"8000": port, "20": patience, **files})
        return subprocess.run(
            command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=60, check=False
        )

    def age(self, *, busy: bool = False) -> None:
        """Let the last run be long ago. `busy`: and all runs since then have seen requests."""
        progress, moved, idle = json.loads(self.memory.read_text())
        self.memory.write_text(json.dumps([progress, moved - LONG_AGO, idle - LONG_AGO * busy]))

    def result(self, port: int, **options: Any) -> tuple[int, int]:
        """The exit status of a run, and the number of lines in the log."""
        status = self.run(port, **options).returncode
        return status, len(self.log.read_text().splitlines()) if self.log.exists() else 0


@pytest.fixture
def stall(tmp_path: Path, compose: Callable[..., dict[str, Any]]) -> Stall:
    return Stall(tmp_path, compose(stall={"seconds": 300, "action": "Restart"}))


HEALTHY = (0, 0)
HANGS = (1, 1)
"""Result of a run that finds an engine that hangs."""


def test_an_idle_engine_is_asked_for_a_token_once(stall: Stall, engine: StandIn) -> None:
    assert stall.result(engine.port) == HEALTHY
    assert engine.counts()["asked"] == 0
    stall.age()
    assert stall.result(engine.port) == HEALTHY
    assert engine.counts()["asked"] == 1
    assert stall.result(engine.port) == HEALTHY
    assert engine.counts()["asked"] == 1


@pytest.mark.parametrize("request_", [{}, {"steps": 10**9}], ids=["streams", "long prompt"])
def test_a_busy_engine_is_not_asked(stall: Stall, engine: StandIn, request_: dict[str, int]) -> None:
    """The tokens of a long prompt are counted at its end."""
    engine.request(**request_)
    assert stall.result(engine.port) == HEALTHY
    before = engine.counts()
    engine.wait(lambda counts: (counts["generated"], counts["cache"]) != (before["generated"], before["cache"]))
    stall.age(busy=True)
    assert stall.result(engine.port) == HEALTHY
    assert engine.counts()["asked"] == 1


@pytest.mark.parametrize("running", [0, 1])
def test_a_frozen_engine_hangs_whatever_its_metrics_say(stall: Stall, engine: StandIn, running: int) -> None:
    if running:
        engine.request()
    engine.freeze()
    assert engine.get("/health") == ""
    assert stall.result(engine.port, patience=1) == HEALTHY
    assert stall.result(engine.port, patience=1) == HEALTHY
    stall.age()
    assert stall.result(engine.port, patience=1) == HANGS
    assert stall.log.read_text() == "modelplane: the engine hangs: no response within 1 s\n"


def test_a_restart_has_its_verdict_as_termination_message(stall: Stall, engine: StandIn) -> None:
    """The kubelet returns the file in the status of the container. It exists from the start of the container."""
    stall.termination.write_text("")
    stall.run(engine.port)
    engine.freeze()
    for __ in range(2):
        stall.age()
        assert stall.run(engine.port, patience=1).returncode == 1
    assert stall.termination.read_text() == "modelplane: the engine hangs: no response within 1 s\n"


def test_the_verdict_is_withdrawn_when_the_engine_recovers(stall: Stall, engine: StandIn) -> None:
    stall.termination.write_text("modelplane: the engine hangs: no response within 1 s\n")
    assert stall.result(engine.port) == HEALTHY
    assert stall.termination.read_text() == ""
    stall.termination.write_text("message of the engine")
    assert stall.result(engine.port) == HEALTHY
    assert stall.termination.read_text() == "message of the engine"


def test_a_hang_that_is_only_reported_is_no_termination_message(tmp_path: Path, compose: Any) -> None:
    stall = Stall(tmp_path, compose())
    stall.termination.write_text("")
    with stand_in() as engine:
        stall.run(engine.port)
        engine.freeze()
        stall.age()
        assert stall.result(engine.port, patience=1) == (0, 1)
    assert stall.termination.read_text() == ""


def test_by_default_a_hang_is_only_reported(tmp_path: Path, compose: Any) -> None:
    """A report is repeated after as long again."""
    stall = Stall(tmp_path, compose())
    with stand_in() as engine:
        stall.run(engine.port)
        engine.freeze()
        for lines in (1, 2):
            stall.age()
            assert stall.result(engine.port, patience=1) == (0, lines)
            assert stall.result(engine.port, patience=1) == (0, lines)
        os.kill(engine.process.pid, signal.SIGSTOP)
        stall.age()
        assert stall.result(engine.port, patience=1) == (0, 3)
        stall.log.unlink()
        stall.log.mkdir()
        stall.age()
        assert stall.run(engine.port, patience=1).returncode == 0


@pytest.mark.parametrize("given", ["variable", "flag"])
@pytest.mark.parametrize("frozen", [False, True])
def test_the_probe_has_the_key_of_the_engine(stall: Stall, names: str, given: str, frozen: bool) -> None:
    arguments = ["--names", names, *(["--api-key", KEY] if given == "flag" else [])]
    variables = {"VLLM_API_KEY": KEY} if given == "variable" else {}
    with stand_in(*arguments, **variables) as engine:
        stall.run(engine.port)
        stall.age()
        if frozen:
            engine.freeze()
        expected = HANGS if frozen else HEALTHY
        assert stall.result(engine.port, patience=20 if not frozen else 2, **variables) == expected
        assert engine.counts()["asked"] == 1
        assert KEY not in "".join(path.read_text() for path in (stall.memory, stall.log) if path.exists())


def test_without_its_key_an_engine_hangs_if_it_has_had_requests_all_the_time(
    stall: Stall, names: str, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text(KEY)
    with stand_in("--names", names, "--key-file", str(tmp_path / "key")) as engine:
        stall.run(engine.port)
        stall.age(busy=True)
        assert stall.result(engine.port) == HEALTHY
        engine.request()
        engine.freeze()
        stall.run(engine.port)
        stall.age()
        assert stall.result(engine.port) == HEALTHY
        stall.age(busy=True)
        assert stall.result(engine.port) == HANGS


def test_a_model_that_completes_nothing_does_not_hang(stall: Stall, names: str) -> None:
    with stand_in("--names", names, "--no-completions") as engine:
        stall.run(engine.port)
        stall.age(busy=True)
        assert stall.result(engine.port) == HEALTHY
        engine.request()
        engine.freeze()
        stall.run(engine.port)
        stall.age(busy=True)
        assert stall.result(engine.port) == HANGS


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-", "many"])
def test_metrics_that_are_no_finite_numbers_are_no_progress(stall: Stall, tmp_path: Path, value: str) -> None:
    (tmp_path / "metrics").write_text(f"vllm:kv_cache_usage_perc {value}\nvllm:prompt_tokens_total 7\n")
    with files(tmp_path) as port:
        stall.run(port, patience=5)
        assert json.loads(stall.memory.read_text())[0] == [7]


def test_a_server_that_does_not_respond_hangs(stall: Stall, engine: StandIn) -> None:
    assert stall.result(engine.port) == HEALTHY
    os.kill(engine.process.pid, signal.SIGSTOP)
    assert stall.result(engine.port, patience=1) == HEALTHY
    stall.age()
    assert stall.result(engine.port, patience=1) == HANGS


def test_a_server_that_does_not_finish_its_response_hangs(stall: Stall) -> None:
    with stand_in("--endless-metrics") as engine:
        assert stall.result(engine.port, patience=1) == HEALTHY
        stall.age()
        assert stall.result(engine.port, patience=1) == HANGS


def test_a_server_that_is_gone_hangs(stall: Stall, engine: StandIn) -> None:
    stall.run(engine.port)
    engine.process.kill()
    engine.process.wait()
    assert stall.result(engine.port) == HEALTHY
    stall.age()
    assert stall.result(engine.port) == HANGS


@pytest.mark.parametrize("arguments", [("--names", "none"), ("--closed-metrics", "--api-key", KEY)])
def test_an_engine_without_metrics_is_not_asked(stall: Stall, arguments: Sequence[str]) -> None:
    with stand_in(*arguments) as engine:
        stall.run(engine.port)
        stall.age()
        engine.freeze()
        assert stall.result(engine.port) == HEALTHY
        assert engine.counts()["asked"] == 0


def test_the_probe_does_without_its_memory(stall: Stall, engine: StandIn) -> None:
    stall.memory.write_text("[")
    assert stall.result(engine.port) == HEALTHY
    stall.memory.unlink()
    stall.memory.mkdir()
    engine.freeze()
    assert stall.result(engine.port) == HEALTHY
    assert stall.result(engine.port) == HEALTHY


def test_the_probe_succeeds_in_an_image_without_python(stall: Stall, tmp_path: Path) -> None:
    assert stall.run(1, PATH=str(path_of(tmp_path, "sh"))).returncode == 0


def path_of(folder: Path, *programs: str) -> Path:
    """A folder with these programs."""
    (folder / "bin").mkdir()
    for name in programs:
        (folder / "bin" / name).symlink_to(str(shutil.which(name)))
    return folder / "bin"


def ends(command: Sequence[str], **variables: str) -> int:
    return subprocess.run(command, env={**os.environ, **variables}, timeout=60, check=False).returncode


def test_an_idle_engine_stops(drain: Callable[..., list[str]], engine: StandIn) -> None:
    before = engine.counts()["polls"]
    assert ends(drain(engine.port)) == 0
    assert engine.counts()["polls"] - before > 1


def test_a_proxy_in_the_environment_is_not_for_the_engine(drain: Callable[..., list[str]], engine: StandIn) -> None:
    assert ends(drain(engine.port, most=3600), http_proxy="http://127.0.0.1:1", no_proxy="") == 0
    assert engine.counts()["polls"] > 1


def test_an_engine_stops_after_its_last_stream(drain: Callable[..., list[str]], engine: StandIn) -> None:
    engine.request()
    hook = subprocess.Popen(drain(engine.port, **{"15": 0, "5": 0.1}))
    engine.wait(lambda counts: counts["polls"] > 5)
    assert hook.poll() is None
    engine.get("/finish")
    assert hook.wait(timeout=60) == 0


def test_a_frozen_engine_stops(drain: Callable[..., list[str]], engine: StandIn) -> None:
    engine.freeze()
    assert ends(drain(engine.port)) == 0


def test_an_engine_with_a_key_stops(drain: Callable[..., list[str]], names: str) -> None:
    with stand_in("--names", names, "--api-key", KEY) as engine:
        assert ends(drain(engine.port)) == 0


def test_the_hook_of_a_stuck_stream_ends_with_the_pause(drain: Callable[..., list[str]], engine: StandIn) -> None:
    engine.request()
    engine.freeze()
    assert ends(drain(engine.port, most=1)) == 0


def test_an_engine_without_a_process_stops_at_once(drain: Callable[..., list[str]], engine: StandIn) -> None:
    engine.process.kill()
    engine.process.wait()
    assert ends(drain(engine.port, **{"15": 3600, "5": 3600})) == 0


@pytest.mark.parametrize("arguments", [("--names", "none"), ("--closed-metrics", "--api-key", KEY)])
def test_an_engine_without_metrics_serves_for_the_whole_pause(
    drain: Callable[..., list[str]], arguments: Sequence[str]
) -> None:
    with stand_in(*arguments) as engine:
        start = time.monotonic()
        assert ends(drain(engine.port, most=1)) == 0
        assert time.monotonic() - start >= 1


def test_an_image_without_python_serves_for_the_whole_pause(drain: Callable[..., list[str]], tmp_path: Path) -> None:
    start = time.monotonic()
    assert ends(drain(1, most=1), PATH=str(path_of(tmp_path, "sh", "sleep"))) == 0
    assert time.monotonic() - start >= 1

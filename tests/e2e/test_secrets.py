# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Secrets are planted wherever a fleet has some, and searched for in everything that runs leave behind.

Where one may be: a Secret's value in Secrets, those of the control cluster and the copies on workload clusters; a
variable's literal value in `env` of a manifest in what is composed of that manifest, files of the build folder and
objects alike, as it is what pods get. It is masked wherever people read: diffs, plan.json, report.html, messages.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.tests.e2e import fleets
from ansible_collections.modelplane.fleet.tests.e2e.failing_proxy import FailingProxy
from ansible_collections.modelplane.fleet.tests.e2e.live_fleet import MANAGED, LiveFleet, Run
from ansible_collections.modelplane.fleet.tests.e2e.snapshots import serving
from ansible_collections.modelplane.fleet.tests.kube.fleet import Fleet

# Shapes that no pattern knows, so that they are found wherever they are not kept out on purpose.
TOKENS = {"control": "qCzPlantedControl81", "east": "qCzPlantedEast82", "west": "qCzPlantedWest83"}
HF = ("qCzPlantedWeights84", "qCzPlantedWeights85")
PROVIDER = "qCzPlantedProvider86"
API_KEY = ("qCzPlantedVariable87", "qCzPlantedVariable88")
WRONG = "qCzPlantedWrong89"

_WEIGHTS = {"repo": "acme/private", "sizeGiB": 10, "authSecret": {"name": "hf", "key": "HF_TOKEN"}}
_ENDPOINT = {
    "apiVersion": fleets.API,
    "kind": "ModelEndpoint",
    "metadata": {"name": "together", "namespace": "team", "labels": {"provider": "together"}},
    "spec": {
        "url": "https://api.together.xyz/v1",
        "credential": {"apiKey": {"secretRef": {"name": "together", "key": "key"}}},
    },
}


@dataclass
class Planted:
    """A fleet with secrets in it, and what its runs said."""

    live: LiveFleet
    folder: Path
    said: dict[str, str]

    def run(self, name: str, playbook: str, *arguments: str) -> Run:
        """At -vvv, with a log and with all that is kept below the folder."""
        places = {
            "ANSIBLE_LOG_PATH": "ansible.log",
            "ANSIBLE_LOCAL_TEMP": "local",
            "ANSIBLE_REMOTE_TEMP": "remote",
            "XDG_CACHE_HOME": "cache",
            "TMPDIR": "tmp",
        }
        (self.folder / "tmp").mkdir(exist_ok=True)
        environment = {key: str(self.folder / value) for key, value in places.items()}
        found = self.live.run(playbook, "-vvv", "--diff", *arguments, **environment)
        self.said[name] = found.output
        return found

    def left(self) -> Iterator[tuple[str, str]]:
        """Everything that runs said and wrote, but for what they were given."""
        yield from self.said.items()
        for path in sorted(self.folder.rglob("*")):
            if path.is_file():
                yield str(path.relative_to(self.folder)), path.read_text(errors="replace")


@pytest.fixture(scope="module")
def planted(live: LiveFleet, fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planted]:
    keys = tmp_path_factory.mktemp("keys")
    folder = tmp_path_factory.mktemp("left")
    before = (dict(live.kubeconfigs), live.control_kubeconfig, dict(live.settings))
    proxies = {plane.name: FailingProxy(plane, keys / plane.name, TOKENS[plane.name]) for plane in fleet.all}
    live.settings |= {"fleet_build": str(folder / "build"), "fleet_report": str(folder / "report.html")}
    live.settings |= {"fleet_lease": 10}
    live.kubeconfigs |= {"east": "", "west": str(proxies["west"].kubeconfig)}
    live.control_kubeconfig = ""
    control = proxies["control"]
    settings = json.loads(control.kubeconfig.read_text())["clusters"][0]["cluster"]
    authority = base64.b64decode(settings["certificate-authority-data"]).decode()
    connect(live, "control", "fleet_control", {"server": control.url, "token": control.token, "ca_text": authority})
    connect(live, "east", "fleet_connection", {"kubeconfig_text": proxies["east"].kubeconfig.read_text()})
    live.control.create_namespace("team")
    live.control.apply(secret("hf", "HF_TOKEN", HF[0]))
    live.control.apply(secret("together", "key", PROVIDER))
    live.write("fleet.yaml", manifests(API_KEY[0]))
    yield Planted(live, folder, {})
    live.kubeconfigs, live.control_kubeconfig, live.settings = before
    for name in ("hf", "together"):
        live.control.objects.delete("v1", "Secret", name, "team")
    for path in (live.folder / "host_vars").iterdir():
        path.unlink()
    for proxy in proxies.values():
        proxy.stop()


class Copies:
    """Record of values that were in a Secret of a workload cluster at any time. A copy goes when a cache is filled."""

    def __init__(self, live: LiveFleet, value: str) -> None:
        self.found = False
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, args=(live, value), daemon=True)

    def __enter__(self) -> Copies:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _watch(self, live: LiveFleet, value: str) -> None:
        while not self.found and not self._stopped.wait(0.1):
            for plane in live.workloads.values():
                secrets = plane.objects.list("v1", "Secret", labels=MANAGED)
                self.found |= any(found_in(json.dumps(each["data"]), value) for each in secrets)


def manifests(api_key: str, tag: str = "v0.23.0", revision: str = "main") -> str:
    cache = fleets.cache("weights", **_WEIGHTS, revision=revision)
    deployment = fleets.deployment("chat", 2, tag=tag, modelCacheRef={"name": "weights"})
    body = json.loads(deployment.removeprefix("---\n"))
    container = body["spec"]["template"]["spec"]["engines"][0]["members"][0]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "API_KEY", "value": api_key}]
    service = fleets.service("chat", "chat")
    others = "".join(f"---\n{json.dumps(value)}\n" for value in (_ENDPOINT, body)) + cache
    return fleets.CLASSES + fleets.cluster("east") + fleets.cluster("west") + others + service


def secret(name: str, key: str, value: str) -> dict[str, Any]:
    data = {key: base64.b64encode(value.encode()).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "team"}, "data": data}


def connect(live: LiveFleet, host: str, variable: str, value: Mapping[str, Any]) -> None:
    folder = live.folder / "host_vars"
    folder.mkdir(exist_ok=True)
    (folder / f"{host}.json").write_text(json.dumps({variable: value}))


def spellings(value: str) -> set[str]:
    """As it is, and in the three ways base64 writes it in the middle of something longer."""
    found = {value}
    for shift in range(3):
        coded = base64.b64encode(b"\0" * shift + value.encode()).decode()
        # Without the letters that bits of neighbours have a part in.
        found.add(coded[4 if shift else 0 : -4].rstrip("="))
    return found


def found_in(text: str, *values: str) -> bool:
    return any(spelling in text for value in values for spelling in spellings(value))


def test_base64_is_found() -> None:
    for before in ("", "a", "ab", "abc"):
        text = base64.b64encode(f"{before}{PROVIDER}, and more".encode()).decode()
        assert found_in(text, PROVIDER)
        assert not found_in(text, WRONG)


def test_no_run_gives_a_secret_away(planted: Planted) -> None:
    live = planted.live
    planted.run("preview", "site", "--check").ok()
    with Copies(live, HF[0]) as copies:
        planted.run("first", "site").ok()
    assert copies.found, "nothing was there to be given away"
    assert all(serving(plane) for plane in live.workloads.values())

    live.control.apply(secret("hf", "HF_TOKEN", HF[1]))
    live.write("fleet.yaml", manifests(API_KEY[1], "v0.24.0", "newer"))
    with Copies(live, HF[1]) as copies:
        planted.run("preview of an edit", "reconcile", "--check").ok()
        assert not copies.found
        planted.run("edit", "reconcile").ok()
    assert copies.found
    planted.run("status", "status").ok()
    shown = planted.said["preview of an edit"]
    assert "v0.24.0" in shown, "the diff has to be there, else nothing can be found in it"
    assert "API_KEY" in shown
    check(planted)


def test_no_failure_gives_a_secret_away(planted: Planted) -> None:
    """Credentials that are refused, and ones that cannot be read."""
    live = planted.live
    whole = json.loads((live.folder / "host_vars" / "east.json").read_text())["fleet_connection"]["kubeconfig_text"]
    broken = {
        "refused, and no kubeconfig": (
            {"kubeconfig_text": whole.replace(TOKENS["east"], WRONG)},
            {"kubeconfig_text": f"token: {WRONG}"},
        ),
        "no header, and no YAML": (
            {"server": "https://127.0.0.1:1", "token": f"{WRONG}\nmore"},
            {"kubeconfig_text": f'{{"users": [{{"token": "{WRONG}"'},
        ),
        "a password in a URL": ({"server": f"https://me:{WRONG}@127.0.0.1:1", "token": WRONG}, {}),
        "an unknown key": ({"kubeconfig_text": whole, "tokn": WRONG}, {}),
    }
    before = live.kubeconfigs["west"]
    for name, (east, west) in broken.items():
        connect(live, "east", "fleet_connection", east)
        connect(live, "west", "fleet_connection", west)
        live.kubeconfigs["west"] = "" if west else before
        run = planted.run(name, "reconcile", "--check", "-e", "fleet_timeout=5", "-e", "fleet_retries=1")
        assert run.code != 0, f"{name}: {run.output}"
    live.kubeconfigs["west"] = before
    connect(live, "west", "fleet_connection", {})
    connect(live, "east", "fleet_connection", {"kubeconfig_text": whole})
    check(planted)


def test_teardown_gives_no_secret_away(planted: Planted) -> None:
    planted.run("teardown", "teardown").ok()
    check(planted)


def check(planted: Planted) -> None:
    credentials = [*TOKENS.values(), *HF, PROVIDER, WRONG]
    searched = 0
    for name, text in planted.left():
        searched += 1
        assert not found_in(text, *credentials), f"{name} has a secret: {_around(text, *credentials)}"
        if not (name.startswith("build/") and name.endswith(".yaml")):
            assert not found_in(text, *API_KEY), f"{name} has a variable's value: {_around(text, *API_KEY)}"
    names = {name for name, _ in planted.left()}
    assert {"ansible.log", "report.html", "build/plan.json", "build/report.html"} & names >= {"ansible.log"}
    assert searched > len(planted.said) + 10, sorted(names)
    for plane in (planted.live.control, *planted.live.workloads.values()):
        for key, value in planted.live.ours(plane).items():
            text = json.dumps(value)
            hidden = [*TOKENS.values(), WRONG] if key[0] == "Secret" else credentials
            assert not found_in(text, *hidden), f"{plane.name}: {key}: {_around(text, *hidden)}"


def _around(text: str, *values: str) -> str:
    """Return what a person needs to see where it leaked."""
    place = min(text.find(spelling) for value in values for spelling in spellings(value) if spelling in text)
    return text[max(0, place - 300) : place + 60]

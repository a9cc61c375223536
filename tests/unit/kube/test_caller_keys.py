# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Keys of callers on a real control cluster: the module, two runs at once, the playbook, and where keys are left."""

from __future__ import annotations

import base64
import itertools
import json
import os
import stat
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.managed_fields import managed
from ansible_collections.modelplane.fleet.plugins.module_utils.core.caller_keys import KeysError, Request
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.caller_keys import Done, ensure
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import FIELD_MANAGER, Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import Connection, connect
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import ApiError
from ansible_collections.modelplane.fleet.plugins.modules import keys
from ansible_collections.modelplane.fleet.tests import ansible_run
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane
from ansible_collections.modelplane.fleet.tests.module_run import run_module
from ansible_collections.modelplane.fleet.tests.unit.kube.places import settle
from ansible_collections.modelplane.fleet.tests.unit.kube.rights import given

SYSTEM = "modelplane-system"
NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
_NUMBERS = itertools.count(1)


class Keyring:
    """A Secret that no other test has, and callers of its own."""

    def __init__(self, plane: ControlPlane) -> None:
        number = next(_NUMBERS)
        self.plane, self.login = plane, plane.kubeconfig
        self.name, self.acme, self.initech = f"keys-{number}", f"acme-{number}", f"initech-{number}"

    def module(self, state: str = "present", *callers: str, **more: Any) -> dict[str, Any]:
        check_mode, no_log = more.pop("check_mode", False), more.pop("no_log", True)
        control = {"kubeconfig": str(self.login)}
        arguments = {"control": control, "state": state, "callers": list(callers), "secret": self.name, **more}
        return run_module(keys, arguments, check_mode=check_mode, no_log=no_log)

    def client(self) -> Client:
        return connect(Connection("control", kubeconfig=str(self.login)), write_cache=False)

    def ensure(self, control: Client, state: Any, *callers: str, path: str = "") -> Done:
        return ensure(control, self.name, Request(state, callers, NOW), {}, check_mode=False, path=path)

    def live(self) -> dict[str, Any] | None:
        found = self.plane.get("v1", "Secret", self.name, SYSTEM)
        return dict(found) if found is not None else None

    def held(self) -> dict[str, str]:
        live = self.live()
        return {name: base64.b64decode(key).decode() for name, key in ((live or {}).get("data") or {}).items()}

    def listed(self, result: dict[str, Any]) -> list[dict[str, Any]]:
        return [each for each in result["callers"] if each["secret"] == self.name]


@pytest.fixture
def ring(cluster: ControlPlane) -> Iterator[Keyring]:
    settle(cluster)
    made = Keyring(cluster)
    yield made
    for name in (made.name, f"{made.name}-other"):
        cluster.objects.delete("v1", "Secret", name, SYSTEM)


def test_a_key_from_its_making_to_its_end(ring: Keyring) -> None:
    acme, following = ring.acme, f"{ring.acme}.next"
    made = ring.module("present", acme, ring.initech, labels={"example.org/audience": "customers"})
    first = ring.held()
    assert (made["changed"], made["made"], made["new_keys"]) == (True, [acme, ring.initech], first)
    assert len(set(first.values())) == 2
    assert all(key.startswith("mpk_") and len(key) == 47 for key in first.values())
    live = ring.live()
    assert live is not None
    assert (live["type"], live["metadata"]["labels"]) == (
        "Opaque",
        {
            "app.kubernetes.io/managed-by": "modelplane.fleet",
            "modelplane.ai/keys": "callers",
            "example.org/audience": "customers",
        },
    )
    # A fleet that is applied does not take it for an object of its own that is no longer desired.
    assert managed(live, FIELD_MANAGER) is None

    again = ring.module("present", acme)
    assert (again["changed"], again["made"], "new_keys" in again) == (False, [], False)

    rotated = ring.module("rotated", acme)
    assert ring.held() == {**first, following: rotated["new_keys"][acme]}
    assert [entry["name"] for entry in ring.listed(rotated)[0]["entries"]] == [acme, following]
    repeated = ring.module("rotated", acme)
    assert (repeated["changed"], ring.held()) == (False, {**first, following: rotated["new_keys"][acme]})
    forced = ring.module("rotated", acme, force=True)
    assert forced["new_keys"][acme] not in (rotated["new_keys"][acme], first[acme])

    early = ring.module("retired", grace=3600)
    assert (early["changed"], early["waiting"]) == (False, [acme])
    retired = ring.module("retired")
    assert (retired["removed"], ring.held()) == ([acme], {**first, acme: forced["new_keys"][acme]})
    assert not ring.module("retired", acme)["changed"]

    ring.module("rotated", acme)
    revoked = ring.module("revoked", acme)
    assert (revoked["removed"], ring.held()) == ([acme], {ring.initech: first[ring.initech]})
    assert not ring.module("revoked", acme)["changed"]
    assert ring.module("revoked", ring.initech)["changed"]
    assert ring.live() is not None
    assert ring.held() == {}
    assert ring.listed(ring.module("present")) == []


def test_check_mode_makes_nothing(ring: Keyring, tmp_path: Path) -> None:
    file = tmp_path / "new"
    made = ring.module("present", ring.acme, check_mode=True, path=str(file))
    assert (made["changed"], made["made"], ring.live()) == (True, [ring.acme], None)
    assert [each["name"] for each in ring.listed(made)] == [ring.acme]
    ring.module("present", ring.acme)
    for state in ("rotated", "revoked"):
        assert ring.module(state, ring.acme, check_mode=True, path=str(file))["changed"]
    ring.module("rotated", ring.acme)
    assert ring.module("retired", check_mode=True)["removed"] == [ring.acme]
    assert set(ring.held()) == {ring.acme, f"{ring.acme}.next"}
    assert not file.exists()


def test_labels_change_and_those_of_others_stay(ring: Keyring) -> None:
    ring.module("present", ring.acme, labels={"group": "a"})
    ring.plane.objects.patch("v1", "Secret", ring.name, {"metadata": {"labels": {"mine": "1"}}}, SYSTEM)
    held = ring.held()
    changed = ring.module("present", labels={"group": "b"})
    assert changed["diff"]["before"]["labels"]["group"] == "a"
    assert changed["diff"]["after"]["labels"]["group"] == "b"
    assert ring.listed(changed)[0]["labels"].items() >= {"group": "b", "mine": "1"}.items()
    assert ring.held() == held


def test_a_new_key_is_in_a_file_or_on_the_terminal_and_not_in_the_result(ring: Keyring, tmp_path: Path) -> None:
    file = tmp_path / "new"
    filed = ring.module("present", ring.acme, path=str(file), no_log=False)
    key = ring.held()[ring.acme]
    assert file.read_text() == f"{ring.acme}: {key}\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert key not in json.dumps(filed)

    refused = ring.module("rotated", ring.acme, path=str(file))
    assert (refused["failed"], "exists" in refused["msg"]) == (True, True)
    assert set(ring.held()) == {ring.acme}
    assert not ring.module("present", ring.acme, path=str(file))["failed"]

    shown = ring.module("rotated", ring.acme, show=True, no_log=False)
    following = ring.held()[f"{ring.acme}.next"]
    assert [following in line for line in shown.pop("shown_once")] == [True]
    assert following not in json.dumps(shown)


@pytest.mark.parametrize("state", ["present", "rotated"])
@pytest.mark.parametrize("place", ["there", "dangling", "none/new", "there/new"])
def test_a_file_that_cannot_be_made_ends_check_mode_as_well_before_a_key_is_made(
    ring: Keyring, tmp_path: Path, state: str, place: str
) -> None:
    (tmp_path / "there").write_text("theirs")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    path = tmp_path / place
    if state == "rotated":
        ring.module("present", ring.acme)
    before = ring.held()
    checked, done = (ring.module(state, ring.acme, path=str(path), check_mode=mode) for mode in (True, False))
    assert (checked["failed"], checked["msg"]) == (True, done["msg"])
    assert f"{path} exists" in done["msg"] or f"{path.parent} is no folder" in done["msg"]
    assert ring.held() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["dangling", "there"]
    assert (tmp_path / "there").read_text() == "theirs"


@contextmanager
def read_only_folder() -> Iterator[Path]:
    """Folder that the block may read, and not write: root, which may write everything, is no one meanwhile."""
    with tempfile.TemporaryDirectory(prefix="keys-") as folder:
        Path(folder).chmod(0o555)
        is_root = os.geteuid() == 0
        if is_root:
            os.seteuid(65534)
        try:
            yield Path(folder)
        finally:
            if is_root:
                os.seteuid(0)
            Path(folder).chmod(0o755)


def test_a_folder_that_may_not_be_written_ends_check_mode_as_well_before_a_key_is_made(ring: Keyring) -> None:
    request = Request("present", [ring.acme], NOW)
    with closing(ring.client()) as control:
        # Reads the certificates, which only root may read.
        ring.ensure(control, "revoked", ring.acme)
        with read_only_folder() as folder:
            for check_mode in (True, False):
                with pytest.raises(KeysError, match=f"you may not write to folder {folder}"):
                    ensure(control, ring.name, request, {}, check_mode=check_mode, path=str(folder / "new"))
            assert list(folder.iterdir()) == []
    assert ring.live() is None


@pytest.mark.parametrize(("state", "verb"), [("revoked", "revoke"), ("retired", "retire")])
def test_a_caller_without_a_key_is_a_warning_with_the_one_that_it_resembles(
    ring: Keyring, state: str, verb: str
) -> None:
    ring.module("present", ring.initech)
    for check_mode in (True, False):
        found = ring.module(state, f"{ring.initech}x", check_mode=check_mode)
        assert (found["failed"], found["changed"]) == (False, False)
        assert found["warnings"] == [f"{ring.initech}x has no key to {verb}. Did you mean {ring.initech}?"]
    assert list(ring.held()) == [ring.initech]
    assert ring.module("retired", ring.initech)["warnings"] == []
    assert ring.module("revoked", ring.initech)["warnings"] == []


def test_labels_that_are_no_text_are_refused_before_a_key_is_made(ring: Keyring) -> None:
    wrong = ring.module("present", ring.acme, labels={"team": None, "ok": True, "version": 1.10, "a b": "c"})
    assert [line.partition(":")[0] for line in wrong["msg"].splitlines()] == [
        'labels["team"]',
        'labels["ok"]',
        'labels["version"]',
        'labels["a b"]',
    ]
    assert ring.live() is None


def test_a_task_that_would_show_keys_fails_before_one_is_made(ring: Keyring) -> None:
    refused = ring.module("present", ring.acme, no_log=False)
    assert "no_log: true" in refused["msg"]
    assert ring.live() is None
    assert not ring.module("present", no_log=False)["failed"]


def test_wrong_arguments_are_named_together(ring: Keyring) -> None:
    wrong = ring.module("rotated", secret="No Name", grace=-1, labels={"a b": ""})["msg"].splitlines()
    assert [line.split()[0] for line in wrong] == ["secret", 'labels["a', "callers", "grace"]
    assert "has no key to rotate" in ring.module("rotated", ring.acme)["msg"]


def test_a_caller_has_its_keys_in_one_secret(ring: Keyring) -> None:
    ring.module("present", ring.acme)
    for state in ("present", "rotated", "retired", "revoked"):
        refused = ring.module(state, ring.acme, secret=f"{ring.name}-other")
        assert f"{ring.acme} has its key in Secret {SYSTEM}/{ring.name}" in refused["msg"]


def test_a_secret_of_others_is_not_touched(ring: Keyring) -> None:
    ring.plane.create_namespace(SYSTEM)
    metadata = {"name": ring.name, "namespace": SYSTEM, "labels": {"app.kubernetes.io/managed-by": "modelplane.fleet"}}
    ring.plane.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"kubeconfig": "x"}})
    assert "was not made by modelplane.fleet for keys" in ring.module("present", ring.acme)["msg"]
    assert ring.held() == {"kubeconfig": "x"}


def test_runs_at_once_lose_nothing(ring: Keyring) -> None:
    callers = [f"{ring.acme}-{number}" for number in range(6)]
    start = threading.Barrier(len(callers))
    made: dict[str, str] = {}

    def run(caller: str) -> None:
        with closing(ring.client()) as control:
            control.version()
            start.wait()
            made.update(ring.ensure(control, "present", caller).keys)

    threads = [threading.Thread(target=run, args=(caller,)) for caller in callers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ring.held() == made
    assert sorted(made) == callers


@pytest.mark.parametrize("exists", [True, False])
def test_a_run_that_is_overtaken_starts_from_what_the_other_one_left(
    ring: Keyring, tmp_path: Path, exists: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if exists:
        ring.module("present", ring.initech)
    file = tmp_path / "new"
    with closing(ring.client()) as control, closing(ring.client()) as other:
        method = "replace" if exists else "create"
        write, calls = getattr(control, method), []

        def overtaken(value: Any) -> Any:
            calls.append(method)
            if len(calls) == 1:
                ring.ensure(other, "present", ring.acme)
            return write(value)

        monkeypatch.setattr(control, method, overtaken)
        second = f"{ring.acme}-second"
        done = ring.ensure(control, "present", ring.acme, second, path=str(file))
    held = ring.held()
    # The other run made the key of the first caller, and gave it out.
    assert done.keys == {second: held[second]}
    assert file.read_text() == f"{second}: {held[second]}\n"
    assert set(held) == {ring.acme, second, *([ring.initech] if exists else [])}


@pytest.mark.parametrize(("code", "kept"), [(422, False), (403, False), (500, True), (0, True)])
def test_a_file_stays_where_its_keys_may_be_valid(
    ring: Keyring, tmp_path: Path, code: int, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring.module("present", ring.acme)
    file = tmp_path / "new"

    def fail(_value: Any) -> Any:
        raise ApiError("no", cluster="control", action="replace", code=code)

    with closing(ring.client()) as control:
        monkeypatch.setattr(control, "replace", fail)
        with pytest.raises((ApiError, KeysError)) as refused:
            ring.ensure(control, "rotated", ring.acme, path=str(file))
    assert file.exists() == kept
    assert (str(file) in str(refused.value)) == kept
    assert "mpk_" not in str(refused.value)


def test_the_rights_of_the_fleet_are_enough(ring: Keyring) -> None:
    ring.login = ring.plane.user_kubeconfig("keys-of-the-fleet", groups=["modelplane:control-plane"])
    with given(ring.plane, "control-plane"):
        ring.plane.wait_for("the authorizer knows the rights", lambda: not ring.module("present")["failed"])
        assert ring.module("present", ring.acme)["changed"]
        assert ring.module("rotated", ring.acme)["changed"]
        assert ring.module("retired")["changed"]
        assert ring.module("revoked", ring.acme)["changed"]


class Planted:
    """Runs of the playbook at -vvv with a log, a fact cache, a build folder and temporary files below one folder."""

    def __init__(self, ring: Keyring, folder: Path) -> None:
        self.ring, self.folder = ring, folder
        self.said: list[tuple[str, str]] = []
        self.inventory = folder / "hosts.yml"
        variables = {
            "fleet_control_kubeconfig": str(ring.login),
            "fleet_build": str(folder / "build"),
            "fleet_keys_secret": ring.name,
        }
        self.inventory.write_text(
            json.dumps({"all": {"children": {"control_plane": {"hosts": {"control": variables}}}}})
        )
        (folder / "tmp").mkdir()

    def run(self, *arguments: str, rc: int = 0, **variables: Any) -> str:
        places = {
            "ANSIBLE_LOG_PATH": "ansible.log",
            "ANSIBLE_LOCAL_TEMP": "local",
            "ANSIBLE_REMOTE_TEMP": "remote",
            "ANSIBLE_CACHE_PLUGIN_CONNECTION": "facts",
            "XDG_CACHE_HOME": "cache",
            "TMPDIR": "tmp",
        }
        environment = {key: str(self.folder / value) for key, value in places.items()}
        given = {f"fleet_keys_{name}": value for name, value in variables.items()}
        command = ["modelplane.fleet.keys", "-i", str(self.inventory), "-vvv", "--diff", "-e", json.dumps(given)]
        done = ansible_run.completed(
            "ansible-playbook", *command, *arguments, **environment, ANSIBLE_CACHE_PLUGIN="ansible.builtin.jsonfile"
        )
        assert done.returncode == rc, done.stdout + done.stderr
        self.said.append((done.stdout, done.stderr))
        return done.stdout

    def places_of(self, key: str) -> list[str]:
        """Return where a key is, also as a Secret has it: outputs by their number, files by their name."""
        spellings = (key, base64.b64encode(key.encode()).decode())
        texts = [
            (f"{name} {number}", text)
            for number, run in enumerate(self.said)
            for name, text in zip(("stdout", "stderr"), run, strict=True)
        ]
        texts += [
            (str(path.relative_to(self.folder)), path.read_text(errors="replace"))
            for path in sorted(self.folder.rglob("*"))
            if path.is_file()
        ]
        return [place for place, text in texts for each in spellings for _ in range(text.count(each))]


def test_a_key_is_in_the_secret_and_where_it_was_given_out_and_nowhere_else(
    ring: Keyring, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # Ansible has a socket below it, whose path may have about a hundred characters.
    folder = tmp_path_factory.mktemp("keys")
    planted = Planted(ring, folder)
    acme, file = ring.acme, str(folder / "next.yml")
    planted.run(state="present", callers=[acme])
    first = ring.held()[acme]
    # As a module in a process of its own, which another spelling of the same Python makes it.
    python = Path(sys.executable)
    other = str(python.with_name("python" if python.name == "python3" else "python3"))
    own_process = ("-e", f"ansible_python_interpreter={other}")
    planted.run(*own_process, state="rotated", callers=acme, file=file)
    following = ring.held()[f"{acme}.next"]
    # The file of the run before is there: the next key that it has is not replaced.
    assert "exists" in planted.run(state="rotated", callers=[acme], force=True, file=file, rc=2)
    assert ring.held() == {acme: first, f"{acme}.next": following}
    assert ring.name in planted.run()
    # Callers without a state, which would change nothing for them.
    assert "without fleet_keys_state" in planted.run(callers=[acme], rc=2)
    assert "without fleet_keys_state" in planted.run(callers=acme, state=None, rc=2)
    assert ring.name in planted.run("--tags", "list", callers=[acme])
    # A key in place of the name of a caller.
    for arguments in ((), own_process):
        assert "callers[1] is a key" in planted.run(*arguments, state="revoked", callers=[acme, first], rc=2)
    # There is no key to show.
    planted.run(*own_process, state="retired")
    assert ring.held() == {acme: following}
    # On the standard error of the first run, and in the file of the second one.
    assert planted.places_of(first) == ["stderr 0"]
    assert planted.places_of(following) == ["next.yml"]
    assert "Create, rotate or revoke API keys" in (folder / "ansible.log").read_text()

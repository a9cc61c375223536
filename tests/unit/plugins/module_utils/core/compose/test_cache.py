# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""ModelCaches on a cluster: the objects, and the script of the hydration Job, which is run for real.

The script runs in /bin/sh with a temporary folder as the volume. `hf` and `pip` are stand-ins that write down how they
were called.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import Options
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.cache import (
    ARTIFACT_ANNOTATION,
    SecretCopy,
    claim_name,
    job_name,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.hydration_packages import PACKAGES
from ansible_collections.modelplane.fleet.tests.written import artifact, cache_objects, replica_objects, token_copy

Make = Callable[..., dict[str, Any]]

OPTIONS = Options()
MARKER = ".modelplane-hydrated"
STARTED = ".modelplane-hydrating"


def model_cache(**source: Any) -> dict[str, Any]:
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "ModelCache",
        "metadata": {"name": "qwen3-coder", "namespace": "ml-team"},
        "spec": {"source": "HuggingFace", "huggingFace": {"repo": "Qwen/Qwen3-8B", "sizeGiB": 40, **source}},
    }


def job(cache: Mapping[str, Any], *, settled: bool = True, options: Options = OPTIONS) -> dict[str, Any]:
    return cache_objects(cache, "modelplane-rwx", hydrate=True, settled=settled, options=options)[-1]


def pod(cache: Mapping[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = job(cache)["spec"]["template"]["spec"]
    return spec


# Worked example 12.2 of the reference composition: names, labels, fields of the volume.


def test_names_are_those_of_the_reference_implementation() -> None:
    cache = model_cache(authSecret={"name": "hf-token"})
    copy = token_copy(cache)
    assert claim_name("ml-team", "qwen3-coder") == "modelcache-ml-team-qwen3-coder-c65e4"
    assert job_name("ml-team", "qwen3-coder") == "modelcache-ml-team-qwen3-coder-hydrate-4774c"
    assert copy == SecretCopy(
        source_namespace="ml-team",
        source_name="hf-token",
        source_key="HF_TOKEN",
        namespace="mp-ml-team-51733",
        name="modelcache-ml-team-qwen3-coder-auth-a73ec",
        key="HF_TOKEN",
    )


def test_the_volume() -> None:
    objects = cache_objects(model_cache(), "modelplane-rwx-efs", hydrate=False, settled=True, options=OPTIONS)
    namespace, claim = objects
    assert (namespace["kind"], namespace["metadata"]["name"]) == ("Namespace", "mp-ml-team-51733")
    assert claim == {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "modelcache-ml-team-qwen3-coder-c65e4",
            "namespace": "mp-ml-team-51733",
            "labels": {
                "app.kubernetes.io/managed-by": "modelplane.fleet",
                "modelplane.ai/namespace": "ml-team",
                "modelplane.ai/modelcache": "qwen3-coder",
            },
            "annotations": {"modelplane.ai/artifact": "Qwen/Qwen3-8B@main@Folder"},
        },
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "modelplane-rwx-efs",
            "resources": {"requests": {"storage": "40Gi"}},
        },
    }


def test_the_namespace_is_the_one_of_replicas(make_replica: Make) -> None:
    namespace = cache_objects(model_cache(), "x", hydrate=False, settled=True, options=OPTIONS)[0]
    assert namespace == replica_objects(make_replica())[0]


def test_engines_mount_the_volume(make_replica: Make, pick: Make) -> None:
    objects = replica_objects(make_replica(modelCacheRef={"name": "qwen3-coder"}))
    volumes = pick(objects, "Deployment", "-14ab1")["spec"]["template"]["spec"]["volumes"]
    claim = cache_objects(model_cache(), "x", hydrate=False, settled=True, options=OPTIONS)[1]["metadata"]["name"]
    assert {"claimName": claim} in [volume.get("persistentVolumeClaim") for volume in volumes]


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ({}, "Qwen/Qwen3-8B@main@Folder"),
        ({"revision": "v1.0"}, "Qwen/Qwen3-8B@v1.0@Folder"),
        ({"layout": "HubCache"}, "Qwen/Qwen3-8B@main@HubCache"),
    ],
)
def test_artifact(source: dict[str, str], text: str) -> None:
    assert artifact(model_cache(**source)) == text
    assert job(model_cache(**source))["metadata"]["annotations"] == {ARTIFACT_ANNOTATION: text}


def test_a_job_that_is_observed_goes_away() -> None:
    made = job(model_cache())
    assert made["metadata"]["name"] == job_name("ml-team", "qwen3-coder")
    assert (made["spec"]["backoffLimit"], made["spec"]["ttlSecondsAfterFinished"]) == (3, 180)
    assert job(model_cache(revision="v2"))["metadata"]["name"] == made["metadata"]["name"]


def test_a_job_that_no_one_observes_stays_and_never_changes() -> None:
    """Kubernetes refuses a change of a Job's pods, so another download is another Job."""
    caches = [model_cache(), model_cache(revision="v2"), model_cache(layout="HubCache"), model_cache(repo="a/b")]
    jobs = [job(cache, settled=False) for cache in caches] + [
        job(model_cache(), settled=False, options=Options(hydration_image="registry.example/hf:1"))
    ]
    assert len({each["metadata"]["name"] for each in jobs}) == len(jobs)
    assert all("ttlSecondsAfterFinished" not in each["spec"] for each in jobs)
    assert job(model_cache(sizeGiB=50), settled=False)["metadata"]["name"] == jobs[0]["metadata"]["name"]


def test_the_job_has_no_rights_and_no_place_to_write_but_its_own() -> None:
    spec = pod(model_cache())
    (container,) = spec["containers"]
    assert spec["restartPolicy"] == "OnFailure"
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert container["resources"]["requests"]
    variables = {each["name"]: each.get("value") for each in container["env"]}
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {variables["HOME"], variables["VOLUME"], "/tmp"} == mounts
    assert container["image"] == "docker.io/library/python:3.11-slim"


def test_the_token_is_read_only_where_there_is_one() -> None:
    assert token_copy(model_cache()) is None
    assert not any(each["name"] == "HF_TOKEN" for each in pod(model_cache())["containers"][0]["env"])
    cache = model_cache(authSecret={"name": "hf-token", "key": "token"})
    (found,) = [each for each in pod(cache)["containers"][0]["env"] if each["name"] == "HF_TOKEN"]
    copy = token_copy(cache)
    assert copy is not None
    assert found["valueFrom"]["secretKeyRef"] == {"name": copy.name, "key": copy.key}
    assert (copy.source_name, copy.source_key, copy.key) == ("hf-token", "token", "token")


def test_h12_what_is_composed_needs_no_other_cluster() -> None:
    """Nothing on a workload cluster has to be finished by something that is gone with the cluster."""
    for each in cache_objects(model_cache(), "x", hydrate=True, settled=True, options=OPTIONS):
        assert not {"finalizers", "ownerReferences"} & set(each["metadata"])


def test_nothing_is_changed_and_nothing_is_shared() -> None:
    cache = model_cache(authSecret={"name": "hf-token"})
    before = deepcopy(cache)
    one, other = (cache_objects(cache, "x", hydrate=True, settled=True, options=OPTIONS) for _ in range(2))
    for each in one:
        each["metadata"]["labels"]["changed"] = "yes"
    assert cache == before
    assert not any("changed" in each["metadata"]["labels"] for each in other)


# The script.

# As the real one, it takes files that are there for the whole when it cannot reach the hub, which is no failure to it.
HF = """\
#!/bin/sh
set -eu
revision=main folder= probe=
for word in "$@"; do
  case "$word" in
    --revision=*) revision="${word#*=}" ;;
    --local-dir=*) folder="${word#*=}" ;;
    '--exclude=*') probe=yes ;;
  esac
  repo="$word"
done
if [ -n "$probe" ]; then printf 'probe\\n' >>"$CALLS"; else printf '%s\\n' "$@" >>"$CALLS"; fi
printf 'end HF_HUB_CACHE=%s\\n' "${HF_HUB_CACHE:-}" >>"$CALLS"
model="${HF_HUB_CACHE:-}/models--$(printf '%s' "$repo" | sed 's|/|--|g')"
if [ -e "$FAIL" ]; then
  [ -n "$folder" ] || folder="$model/snapshots/commit-of-$revision"
  [ ! -d "$folder" ] || exit 0
  exit 7
fi
[ ! -e "$FAIL.later" ] || [ -n "$probe" ] || exit 8
if [ -n "$folder" ]; then
  mkdir -p "$folder"
  [ -n "$probe" ] || printf '%s' "$revision" >"$folder/weights-$revision"
else
  mkdir -p "$model/snapshots/commit-of-$revision" "$model/refs"
  case "$revision" in
    c0ffee) mkdir -p "$model/snapshots/c0ffee" ;;
    *) mkdir -p "$(dirname "$model/refs/$revision")"; printf 'commit-of-%s' "$revision" >"$model/refs/$revision" ;;
  esac
fi
"""
PIP = """\
#!/bin/sh
set -eu
printf 'pip\\n' >>"$CALLS"
printf '%s\\n' "$@" >>"$CALLS"
[ ! -e "$FAIL" ] || exit 9
while [ "$1" != --target ]; do shift; done
mkdir -p "$2/bin"
cp "$HF" "$2/bin/hf"
"""
TOOLS = ("cat", "chmod", "cp", "dirname", "find", "id", "ls", "mkdir", "mv", "rm", "sed", "touch")


class Machine:
    """A folder as the volume, and a PATH that has the tools of a small image."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.volume = folder / "vol ume"
        self.calls_file = folder / "calls"
        self.fail = folder / "fail"
        self.fail_later = folder / "fail.later"
        self.bin = folder / "bin"
        self.stand_in = folder / "hf-stand-in"
        for new in (self.volume, self.bin, folder / "home"):
            new.mkdir()
        for tool in TOOLS:
            where = shutil.which(tool)
            assert where
            (self.bin / tool).symlink_to(where)
        self._script("hf", HF)
        self._script("pip", PIP)
        shutil.copy(self.bin / "hf", self.stand_in)

    def _script(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def without_hf(self) -> None:
        (self.bin / "hf").unlink()

    def with_folders_that_no_one_may_read(self) -> None:
        """Let find do its work and then fail, as it does for them. To root all folders can be read."""
        find = self.bin / "find"
        real = find.readlink()
        find.unlink()
        self._script("find", f'#!/bin/sh\n{real} "$@"\nexit 1\n')

    def run(self, cache: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
        """Run the container as Kubernetes would: its command, with its variables, and nothing else."""
        container = pod(cache)["containers"][0]
        env: dict[str, str] = {}
        for each in container["env"]:
            if "value" in each:
                env[each["name"]] = expanded(each["value"], env)
        for name in {"VOLUME", "HOME", "HF_HOME", "HF_HUB_CACHE"} & set(env):
            inside = env[name].replace("/mnt/artifact", str(self.volume))
            env[name] = inside.replace("/work", str(self.folder / "home"), 1) if inside == env[name] else inside
        env.update(PATH=str(self.bin), CALLS=str(self.calls_file), FAIL=str(self.fail), HF=str(self.stand_in))
        command = [expanded(word, env) for word in container["command"]]
        return subprocess.run(
            command, env=env, cwd=self.folder, capture_output=True, text=True, timeout=30, check=False
        )

    @property
    def calls(self) -> list[str]:
        return self.calls_file.read_text().split("\n") if self.calls_file.exists() else []

    def downloads(self) -> int:
        return self.calls.count("download")

    def marker(self) -> str | None:
        path = self.volume / MARKER
        return path.read_text().strip() if path.exists() else None

    def names(self) -> set[str]:
        return {path.name for path in self.volume.iterdir()}

    def contents(self) -> dict[str, str]:
        return {str(path): path.read_text() for path in self.volume.rglob("*") if path.is_file()}


def expanded(text: str, known: Mapping[str, str]) -> str:
    """Expand a value or an argument like Kubernetes: $(NAME) of a variable before it, $$ a plain $, else itself."""
    return re.sub(
        r"\$\$|\$\(([^)]*)\)",
        lambda found: "$" if found[0] == "$$" else known.get(found[1], found[0]),
        text,
    )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.integration
def test_folder(machine: Machine) -> None:
    cache = model_cache()
    result = machine.run(cache)
    assert result.returncode == 0, result.stderr
    assert machine.calls[2:6] == ["download", f"--local-dir={machine.volume}", "--", "Qwen/Qwen3-8B"]
    assert machine.names() == {MARKER, "weights-main"}
    assert machine.marker() == artifact(cache)


@pytest.mark.integration
def test_hub_cache(machine: Machine) -> None:
    cache = model_cache(layout="HubCache")
    result = machine.run(cache)
    assert result.returncode == 0, result.stderr
    assert machine.calls[2:6] == ["download", "--", "Qwen/Qwen3-8B", f"end HF_HUB_CACHE={machine.volume}/hub"]
    model = machine.volume / "hub" / "models--Qwen--Qwen3-8B"
    assert (model / "refs" / "main").read_text() == "commit-of-main"
    assert machine.marker() == artifact(cache)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("revision", "commit"), [("v1", "commit-of-v1"), ("c0ffee", "c0ffee"), ("refs/pr/1", "commit-of-refs/pr/1")]
)
def test_engines_that_name_no_revision_find_the_one_that_is_there(machine: Machine, revision: str, commit: str) -> None:
    result = machine.run(model_cache(layout="HubCache", revision=revision))
    assert result.returncode == 0, result.stderr
    assert machine.calls[2:4] == ["download", f"--revision={revision}"]
    assert (machine.volume / "hub" / "models--Qwen--Qwen3-8B" / "refs" / "main").read_text() == commit


def test_hub_cache_is_where_engines_expect_it(make_replica: Make, pick: Make) -> None:
    """HF_HUB_CACHE of the Job and HF_HOME of the engines are the same place in the volume."""
    objects = replica_objects(make_replica(modelCacheRef={"name": "w", "layout": "HubCache"}))
    engine = pick(objects, "Deployment", "-14ab1")["spec"]["template"]["spec"]["containers"][0]
    job_env = {each["name"]: each.get("value") for each in pod(model_cache(layout="HubCache"))["containers"][0]["env"]}
    engine_env = {each["name"]: each.get("value") for each in engine["env"]}
    below = job_env["HF_HUB_CACHE"].removeprefix(job_env["VOLUME"])
    mounted = next(each["mountPath"] for each in engine["volumeMounts"] if each["name"] == "model-cache")
    assert mounted == engine_env["HF_HOME"]
    assert below == "/hub"


@pytest.mark.integration
@pytest.mark.parametrize("layout", ["Folder", "HubCache"])
def test_a_second_run_does_nothing(machine: Machine, layout: str) -> None:
    cache = model_cache(layout=layout)
    machine.run(cache)
    before = machine.names()
    result = machine.run(cache)
    assert result.returncode == 0
    assert machine.downloads() == 1
    assert machine.names() == before


@pytest.mark.integration
@pytest.mark.parametrize(
    "other",
    [{"revision": "v2"}, {"repo": "Qwen/Qwen3-32B"}, {"layout": "HubCache"}, {"layout": "HubCache", "revision": "v2"}],
)
def test_a_volume_that_holds_something_else_is_not_touched(machine: Machine, other: dict[str, str]) -> None:
    """Engines read from it; and weights of two models in one folder would be loaded as one."""
    machine.run(model_cache())
    (machine.volume / "weights-extra").write_text("x")
    before = machine.contents()
    result = machine.run(model_cache(**other))
    assert result.returncode == 1
    assert "holds Qwen/Qwen3-8B@main@Folder" in result.stderr
    assert machine.downloads() == 1
    assert machine.contents() == before


@pytest.mark.integration
@pytest.mark.parametrize("layout", ["Folder", "HubCache"])
def test_a_hub_that_cannot_be_reached_is_a_failure(machine: Machine, layout: str) -> None:
    """Or a wrong repository or token: to `hf` what is there already is then good enough."""
    cache = model_cache(layout=layout)
    machine.fail_later.touch()
    assert machine.run(cache).returncode == 8
    machine.fail_later.unlink()
    partial = machine.volume / "hub" / "models--Qwen--Qwen3-8B" / "snapshots" / "commit-of-main"
    partial.mkdir(parents=True)
    machine.fail.touch()
    for _ in range(2):
        assert machine.run(cache).returncode == 7
        assert machine.marker() is None
    machine.fail.unlink()
    assert machine.run(cache).returncode == 0
    assert machine.marker() == artifact(cache)


@pytest.mark.integration
def test_a_failure_leaves_no_marker_and_what_was_downloaded(machine: Machine) -> None:
    machine.fail_later.touch()
    assert machine.run(model_cache()).returncode == 8
    assert machine.names() == {STARTED}
    (machine.volume / "partial").write_text("half")
    machine.fail_later.unlink()
    assert machine.run(model_cache()).returncode == 0
    assert machine.names() == {MARKER, "partial", "weights-main"}


@pytest.mark.integration
@pytest.mark.parametrize(
    ("layout", "place"),
    [("Folder", ".cache/huggingface/download"), ("HubCache", "hub/models--Qwen--Qwen3-8B/blobs")],
)
def test_pieces_of_an_interrupted_download_do_not_stay(machine: Machine, layout: str, place: str) -> None:
    """Each attempt of `hf` gives its pieces names of their own, so that no later attempt would continue them."""
    cache = model_cache(layout=layout)
    machine.fail_later.touch()
    assert machine.run(cache).returncode == 8
    folder = machine.volume / place
    folder.mkdir(parents=True)
    for name in ("shard-1.0a1b2c3d.incomplete", "shard-2.4e5f6a7b.incomplete", "shard-3"):
        (folder / name).write_text("x")
    machine.fail_later.unlink()
    assert machine.run(cache).returncode == 0
    assert [path.name for path in folder.iterdir()] == ["shard-3"]


@pytest.mark.integration
def test_pieces_in_a_volume_of_something_else_are_not_touched(machine: Machine) -> None:
    machine.run(model_cache())
    (machine.volume / "x.incomplete").write_text("x")
    assert machine.run(model_cache()).returncode == 0
    assert machine.run(model_cache(revision="v2")).returncode == 1
    assert "x.incomplete" in machine.names()


@pytest.mark.integration
@pytest.mark.parametrize("closed", [False, True])
def test_engines_may_read_what_hf_knows_of_a_revision(machine: Machine, closed: bool) -> None:
    """Whatever there is on the share that no one may read."""
    if closed:
        machine.with_folders_that_no_one_may_read()
    machine.fail_later.touch()
    cache = model_cache(layout="HubCache")
    machine.run(cache)
    tree = machine.volume / "hub" / "models--Qwen--Qwen3-8B" / "trees" / "c0ffee.json"
    tree.parent.mkdir(parents=True)
    tree.write_text("{}")
    tree.chmod(0o600)
    machine.fail_later.unlink()
    assert machine.run(cache).returncode == 0
    assert tree.stat().st_mode & 0o777 == 0o644


@pytest.mark.integration
def test_a_share_that_the_user_may_not_write_to_is_reported(machine: Machine) -> None:
    shutil.rmtree(machine.volume)
    machine.volume.symlink_to("/proc/self")
    result = machine.run(model_cache())
    assert result.returncode == 1
    assert "may not write to the volume: " in result.stderr
    assert "Make this user the owner of the folder of the share" in result.stderr
    assert machine.calls == []


def test_no_second_pod_writes_while_one_ends() -> None:
    assert job(model_cache())["spec"]["podReplacementPolicy"] == "Failed"


@pytest.mark.integration
def test_a_half_download_of_something_else_is_not_touched(machine: Machine) -> None:
    machine.fail_later.touch()
    machine.run(model_cache())
    (machine.volume / "partial").write_text("half")
    machine.fail_later.unlink()
    before = machine.contents()
    assert machine.run(model_cache(revision="v2")).returncode == 1
    assert machine.contents() == before
    assert machine.run(model_cache()).returncode == 0


@pytest.mark.integration
def test_a_mark_that_was_interrupted_is_written_again(machine: Machine) -> None:
    """As after a kill between the opening and the writing of the file."""
    (machine.volume / STARTED).write_text("")
    assert machine.run(model_cache()).returncode == 0
    assert machine.names() == {MARKER, "weights-main"}


@pytest.mark.integration
def test_files_that_no_run_made_stay(machine: Machine) -> None:
    (machine.volume / "mine").write_text("x")
    assert machine.run(model_cache()).returncode == 0
    assert machine.names() == {MARKER, "mine", "weights-main"}


@pytest.mark.integration
def test_a_run_that_was_overtaken_does_not_claim_the_volume(machine: Machine) -> None:
    """Another Job began in the same volume meanwhile: what is there is neither's until that one has ended."""
    taken = machine.volume / STARTED
    machine.bin.joinpath("hf").write_text(f"#!/bin/sh\necho other@main@Folder >'{taken}'\n")
    result = machine.run(model_cache())
    assert result.returncode == 1
    assert "Another download" in result.stderr
    assert machine.marker() is None


@pytest.mark.integration
def test_hf_is_installed_where_the_image_has_none(machine: Machine) -> None:
    machine.without_hf()
    result = machine.run(model_cache())
    assert result.returncode == 0, result.stderr
    pip, install, *rest = machine.calls
    assert (pip, install) == ("pip", "install")
    home = machine.folder / "home"
    listed = f"{home}/packages.txt"
    hashed = ["--require-hashes", "--only-binary=:all:", "-r", listed]
    assert rest[:7] == ["--quiet", "--target", f"{home}/packages", *hashed]
    assert Path(listed).read_text() == PACKAGES
    assert machine.names() == {MARKER, "weights-main"}


@pytest.mark.integration
def test_an_installation_that_fails_leaves_no_marker(machine: Machine) -> None:
    machine.without_hf()
    machine.fail.touch()
    assert machine.run(model_cache()).returncode == 9
    assert machine.marker() is None
    assert machine.downloads() == 0


def test_nothing_is_installed_without_a_hash() -> None:
    """Nor without a version; for both architectures, where a package has wheels for each."""
    requirements = PACKAGES.replace(" \\\n", " ").splitlines()
    found = {}
    for line in requirements:
        requirement, *hashes = line.split()
        matched = re.fullmatch(r"([a-z0-9][a-z0-9.-]*)==([0-9][0-9a-z.]*)", requirement)
        assert matched, line
        assert hashes, line
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each) for each in hashes), line
        found[matched[1]] = len(hashes)
    assert {"huggingface-hub", "hf-xet", "pyyaml"} <= set(found)
    assert found["hf-xet"] >= 2
    assert found["huggingface-hub"] == 1
    assert not re.search(r"\$|[^ -~\n]", PACKAGES), "it is the value of a variable"


HOSTILE = [
    "x; rm -rf /",
    "$(touch pwned)",
    "$(VOLUME)",
    "$(REPO)",
    "$(LAYOUT)",
    "$$(HOME) $HOME",
    "`touch pwned`",
    "a' ; touch pwned ; '",
    'a"; touch pwned; "',
    "--help",
    "-rf",
    "a\ntouch pwned",
    "a b\tc",
    "*",
    "%s%n\\n",
    "(",
    "!",
]


@pytest.mark.integration
@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("layout", ["Folder", "HubCache"])
def test_what_users_write_stays_a_word(machine: Machine, text: str, layout: str) -> None:
    """One argument behind `--`, whatever is in it; the stand-in prints one argument a line."""
    machine.bin.joinpath("hf").write_text('#!/bin/sh\nprintf \'<%s>\' "$@" >>"$CALLS"\n')
    cache = model_cache(repo=text, revision=text, layout=layout)
    result = machine.run(cache)
    folder = "" if layout == "HubCache" else f"<--local-dir={machine.volume}>"
    assert result.returncode == 0, result.stderr
    probe = f"<download><--local-dir={machine.folder}/home/probe/folder><--exclude=*><--revision={text}><--><{text}>"
    assert machine.calls_file.read_text() == f"{probe}<download>{folder}<--revision={text}><--><{text}>"
    assert machine.marker() == artifact(cache)
    assert not list(machine.folder.rglob("pwned"))
    assert machine.run(cache).returncode == 0
    assert machine.calls_file.read_text().count("<download>") == 2


def test_the_token_is_neither_printed_nor_built() -> None:
    cache = model_cache(authSecret={"name": "hf-token"})
    script = pod(cache)["containers"][0]["command"][2]
    assert "HF_TOKEN" not in script
    assert "set -x" not in script
    made = job(cache)
    assert made["metadata"]["annotations"].pop("modelplane.ai/auth-secret") == "hf-token"
    assert "hf-token" not in json.dumps(made)

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The cache of what is known of a build: it saves work, and no answer depends on it, whoever wrote what into it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning import workloads
from ansible_collections.modelplane.fleet.plugins.module_utils.stores import known_files
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import REPORT_FILE
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import build, fleet_inputs

SAMPLE = Path(__file__).parents[5] / "inventories/quickstart/manifests"
CLUSTER = "gke-us-central"
SYSTEM = "modelplane-system"


class Place:
    """A build of the sample, the cache of its user, and how often the objects of a replica were composed."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.build = folder / "build"
        self.cache = folder / "cache" / "modelplane-fleet" / "builds"
        self.composed = 0
        self._compose = workloads.replica_objects
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        monkeypatch.setattr(build, "_FEWEST_REPLICAS", 0)
        monkeypatch.setattr(workloads, "replica_objects", self._count)

    def _count(self, *arguments: object) -> object:
        self.composed += 1
        return self._compose(*arguments)  # type: ignore[arg-type]

    def run(self, resources: Path = SAMPLE, **more: object) -> build.Outcome:
        self.composed = 0
        return build.build(fleet_inputs.Settings((str(resources),), str(self.build), **more))  # type: ignore[arg-type]

    @property
    def file(self) -> Path:
        return self.cache / known_files.KnownFiles(self.build, write=False)._name

    @property
    def seals(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self.file.read_text())["seals"]
        return found

    def write(self, seals: object, **more: object) -> None:
        self.file.write_text(json.dumps({"format": 1, "seals": seals, **more}))

    def objects(self) -> list[Path]:
        return sorted(
            path for path in (self.build / "clusters" / CLUSTER).rglob("*.yaml") if "deployment-" in path.name
        )


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    found = Place(tmp_path, monkeypatch)
    found.run()
    return found


def test_what_is_known_is_not_composed(place: Place) -> None:
    first = place.run()
    assert not first.changes
    assert place.composed == 0
    # Only the cluster in which something is another.
    path = place.objects()[0]
    written = path.read_text()
    path.write_text(written.replace("replicas: 1", "replicas: 7"))
    second = place.run()
    assert second.changes.changed == (path.relative_to(place.build).as_posix(), REPORT_FILE)
    assert 0 < place.composed < len(second.plan.replicas)
    assert path.read_text() == written
    assert place.run().plan.workloads.size(CLUSTER) == len(second.plan.workloads[CLUSTER])


def test_the_cache_has_no_text_of_the_fleet_and_is_its_users_alone(place: Place) -> None:
    of_control = {f"control/{below}" for below in ("cluster-scoped", "namespaces/ml-team", f"namespaces/{SYSTEM}")}
    assert set(place.seals) == {"byo-us-east", CLUSTER, "eks-us-west", *of_control}
    assert all(len(seal) == 40 and int(seal, 16) for seal in place.seals.values())
    assert {path.stat().st_mode & 0o777 for path in (place.file, place.cache / "key")} == {0o600}
    assert place.cache.stat().st_mode & 0o777 == 0o700


def test_check_mode_writes_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(tmp_path, monkeypatch)
    place.run(check_mode=True)
    assert not place.cache.exists()
    place.run()
    before = place.file.read_bytes()
    place.objects()[0].unlink()
    place.run(check_mode=True)
    assert place.file.read_bytes() == before


def test_a_small_fleet_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(tmp_path, monkeypatch)
    monkeypatch.setattr(build, "_FEWEST_REPLICAS", 100)
    place.run()
    assert not place.cache.exists()


def _forge(place: Place) -> None:
    """Seal what is in the folder, as someone who has the code but not the key would."""
    mine = {name: text for name, text in _read(place).items() if name.startswith(f"clusters/{CLUSTER}/")}
    workloads = place.run(check_mode=True).plan.workloads
    seal = known_files._seal(b"x" * 32, lambda: workloads.inputs(CLUSTER), mine)
    place.write({**place.seals, CLUSTER: seal})


def _read(place: Place) -> dict[str, str]:
    return {path.relative_to(place.build).as_posix(): path.read_text() for path in place.build.rglob("*.yaml")}


def _exchange(place: Place) -> None:
    one, *others = place.seals
    place.write({one: place.seals[others[-1]], **dict.fromkeys(others, place.seals[one])})


def _of_another_fleet(place: Place) -> None:
    folder = place.build.parent / "other"
    build.build(fleet_inputs.Settings((str(SAMPLE),), str(folder), composing=fleet_inputs.Composing(stream_grace=10)))
    [other] = set(place.cache.glob("*.json")) - {place.file}
    other.rename(place.file)


CACHES: dict[str, Callable[[Place], object]] = {
    "as it was": lambda _place: None,
    "none": lambda place: shutil.rmtree(place.cache),
    "without a key": lambda place: (place.cache / "key").unlink(),
    "with another key": lambda place: (place.cache / "key").write_bytes(b"y" * 32),
    "with a key that others can read": lambda place: (place.cache / "key").chmod(0o644),
    "empty": lambda place: place.file.write_bytes(b""),
    "no JSON": lambda place: place.file.write_bytes(b"\x80{"),
    "nested without end": lambda place: place.file.write_text("[" * 100_000),
    "a list": lambda place: place.file.write_text("[]"),
    "of another version": lambda place: place.write({}, format=2),
    "with seals that are none": lambda place: place.write(
        {CLUSTER: 1, "eks-us-west": None, "x": [], "byo-us-east": "é"}
    ),
    "with seals that are a list": lambda place: place.write([CLUSTER]),
    "with the seals of other clusters": _exchange,
    "of another fleet": _of_another_fleet,
    "forged": _forge,
    "that others can write": lambda place: place.file.chmod(0o666),
    "in a folder where others can write": lambda place: place.cache.chmod(0o777),
    "that is a link": lambda place: place.file.symlink_to(place.file.rename(place.cache.parent / "elsewhere")),
    "that is a folder": lambda place: (path := place.file, path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("name", CACHES)
def test_no_answer_depends_on_the_cache(place: Place, name: str) -> None:
    """A file of the control cluster and one of a cluster were edited, one is gone, and one is of nothing: all that is
    seen and mended."""
    expected = _read(place)
    edited, gone = place.objects()[:2]
    route = next((place.build / "control").rglob("httproute-*.yaml"))
    route.write_text(route.read_text().replace("timeouts:", "timeout:"))
    edited.write_text(edited.read_text().replace("replicas: 1", "replicas: 7"))
    gone.unlink()
    more = edited.with_name("service-x.yaml")
    more.write_text(edited.read_text())
    CACHES[name](place)
    changes = place.run(check_mode=True).changes
    names = [path.relative_to(place.build).as_posix() for path in (gone, edited, route, more)]
    assert (changes.added, changes.removed) == ((names[0],), (names[3],))
    assert changes.changed == (names[1], names[2], REPORT_FILE)
    place.run()
    assert _read(place) == expected
    assert not place.run().changes


def test_other_code_proves_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_files, "_code", lambda: b"another")
    place.run()
    assert place.composed
    monkeypatch.setattr(known_files, "_code", lambda: b"")
    assert not place.run().changes
    assert place.composed


def test_other_inputs_prove_nothing(place: Place) -> None:
    changed = place.run(composing=fleet_inputs.Composing(stream_grace=10), check_mode=True).changes.changed
    place.cache.rename(place.cache.with_name("gone"))
    assert changed == place.run(composing=fleet_inputs.Composing(stream_grace=10), check_mode=True).changes.changed
    assert any("deployment-" in name for name in changed)


def test_of_many_builds_the_oldest_are_forgotten(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_files, "_MOST_BUILDS", 2)
    for number in range(3):
        old = place.cache / f"{number}.json"
        old.write_text("{}")
        os.utime(old, (number, number))
    place.objects()[0].unlink()
    (place.cache / "key").write_bytes(b"y" * 32)
    place.run()
    assert sorted(path.name for path in place.cache.glob("*.json")) == sorted(["2.json", place.file.name])

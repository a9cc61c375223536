# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Waiting for what was applied to a real API server."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Iterator

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.progress import Seen
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes import waiting
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.waiting import wait_ready
from ansible_collections.modelplane.fleet.tests.unit.kube.places import (
    Place,
    deployment,
    job,
    only,
)


def test_waiting_ends_when_all_is_ready(place: Place) -> None:
    place.plane.add_nodes(f"pool-{place.fleet}", 1)
    objects = [*place.objects(), job("fill", place.namespace, "one")]
    objects[3] = deployment("web", place.namespace, delay="1s")
    assert not place.apply(objects).ready
    applied = place.apply(objects, wait=60)
    assert applied.ready, [(found.key, found.message) for found in applied.results if not found.ready]
    assert not applied.changed


def test_waiting_says_what_was_seen_last(place: Place) -> None:
    place.plane.add_nodes(f"pool-{place.fleet}", 1)
    objects = place.objects()
    objects[3] = deployment("web", place.namespace, fate="image-pull")
    applied = place.apply(objects, wait=5)
    found = only(applied, "Deployment")
    assert (applied.failed, applied.ready, found.ready) == (False, False, False)
    assert "0 of 1 pods available" in found.message
    assert "ImagePullBackOff" in found.message


def test_a_wait_shows_why_pods_do_not_start(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their workload does not change when they fail."""
    monkeypatch.setattr(waiting, "_EXPLAIN_SECONDS", 0.2)
    place.plane.add_nodes(f"pool-{place.fleet}", 1)
    objects = place.objects()
    objects[3] = deployment("web", place.namespace, fate="image-pull")
    place.apply(objects)
    shown: list[str] = []

    @contextlib.contextmanager
    def progress(cluster: str, awaited: str, usual: str) -> Iterator[Seen]:
        shown.append(f"{cluster}: {awaited} ({usual})")

        def seen(text: str) -> None:
            shown.append(text)
            if "ImagePullBackOff" in text:
                place.apply(place.objects())

        yield seen

    states = wait_ready(place.client, [objects[3]], 300, progress=progress)
    assert all(state.ready for state in states.values()), states
    begun, *texts = shown
    assert begun == f"{place.client.name}: Deployment web to be ready (up to 2 min)"
    name = f"Deployment {place.namespace}/web: 0 of 1 pods available"
    assert texts[0].startswith(f"0 of 1 ready; {name}")
    failing = next(text for text in texts if "ImagePullBackOff" in text)
    # What a narrow terminal cuts comes last.
    assert re.fullmatch(rf"0 of 1 ready; pod web-\S+: container main: ImagePullBackOff.*; {name}.*", failing)
    assert texts[-1] == "1 of 1 ready"


def test_waiting_ends_when_nothing_will_change_any_more(place: Place) -> None:
    place.plane.add_nodes(f"pool-{place.fleet}", 1)
    objects = place.objects()
    objects[3] = deployment("web", place.namespace, fate="never-ready")
    objects[3]["spec"]["progressDeadlineSeconds"] = 2
    begin = time.monotonic()
    applied = place.apply(objects, wait=120)
    assert time.monotonic() - begin < 60
    found = only(applied, "Deployment")
    assert (applied.failed, found.ready) == (False, False)
    assert "progress" in found.message


def test_waiting_outlives_a_restart_of_the_server(place: Place) -> None:
    place.plane.add_nodes(f"pool-{place.fleet}", 1)
    objects = place.objects()
    objects[3] = deployment("web", place.namespace, delay="4s")
    place.apply(objects)

    def restart() -> None:
        time.sleep(0.5)
        place.plane.kill_api_server()
        place.plane.start_api_server()

    thread = threading.Thread(target=restart)
    thread.start()
    try:
        states = wait_ready(place.client, objects[2:], 90)
    finally:
        thread.join()
    assert all(state.ready for state in states.values()), states

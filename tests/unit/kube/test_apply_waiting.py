# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Waiting for what was applied to a real API server."""

from __future__ import annotations

import threading
import time

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

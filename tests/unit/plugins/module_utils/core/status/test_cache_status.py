# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of how far a cluster is with a cache, from what it shows and from what was known."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.model_cache import CachePhase
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.status import sightings as seen
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.status.sightings import (
    conditions,
    showing,
)
from ansible_collections.modelplane.fleet.tests.written import artifact, cache_phase, model_cache

PVC, JOB = seen.cache_parts()
ARTIFACT = "Qwen/Qwen3-8B@main@Folder"
EDITED = {
    **seen.CACHE,
    "spec": {**seen.CACHE["spec"], "huggingFace": {**seen.CACHE["spec"]["huggingFace"], "revision": "v2"}},
}
OLD_JOB = JOB
_, NEW_JOB = seen.cache_parts(EDITED)
BOUND = showing(PVC, phase="Bound")
READY = {"clusters": [{"name": "west", "phase": "Failed"}, {"name": "east", "phase": "Ready", "artifact": ARTIFACT}]}


def ended(job: Any, how: str) -> Any:
    return showing(job, conditions=conditions(**{how: "True"}))


def phase(*objects: Any, cache: Any = seen.CACHE, before: Any = None, cluster: Any = "") -> CachePhase:
    observed = seen.cluster(*objects) if cluster == "" else cluster
    return cache_phase(cache, "east", PVC["metadata"]["name"], JOB["metadata"]["name"], observed, before)


def earlier(kind: str, held: str = "", message: str = "") -> dict[str, Any]:
    return {"clusters": [{"name": "east", "phase": kind, "artifact": held, "message": message}]}


CLAIM_NAME, JOB_NAME = PVC["metadata"]["name"], JOB["metadata"]["name"]
PHASES: dict[str, tuple[CachePhase, CachePhase]] = {
    "nothing yet": (phase(), CachePhase("Pending", "", f"PersistentVolumeClaim {CLAIM_NAME} does not exist yet")),
    "claim without status": (
        phase(PVC),
        CachePhase("Pending", "", f"PersistentVolumeClaim {CLAIM_NAME} is not bound yet"),
    ),
    "claim pending": (
        phase(showing(PVC, phase="Pending"), JOB),
        CachePhase("Pending", "", f"PersistentVolumeClaim {CLAIM_NAME} is Pending"),
    ),
    "downloads": (phase(BOUND, JOB), CachePhase("Hydrating", "", f"Job {JOB_NAME} is downloading {ARTIFACT}")),
    "no job yet": (phase(BOUND), CachePhase("Hydrating", "", f"Job {JOB_NAME} does not exist yet")),
    "complete": (phase(BOUND, ended(JOB, "Complete")), CachePhase("Ready", ARTIFACT)),
    "complete, volume lost": (
        phase(showing(PVC, phase="Lost"), ended(JOB, "Complete")),
        CachePhase("Pending", "", f"PersistentVolumeClaim {CLAIM_NAME} is Lost"),
    ),
    "failed": (
        phase(BOUND, ended(JOB, "Failed")),
        CachePhase(
            "Failed",
            "",
            f"Job {JOB_NAME} failed: Failed is True; see the logs of its pods, then delete it to try again",
        ),
    ),
    "failed wins over what was": (
        phase(BOUND, ended(JOB, "Failed"), before=READY)._replace(message=""),
        CachePhase("Failed"),
    ),
    "the job is gone": (phase(BOUND, before=READY), CachePhase("Ready", ARTIFACT)),
    "the volume is gone": (
        phase(before=READY),
        CachePhase("Pending", "", f"PersistentVolumeClaim {CLAIM_NAME} does not exist yet"),
    ),
    "ready on another cluster": (
        phase(BOUND, before={"clusters": [{**READY["clusters"][1], "name": "west"}]}),
        CachePhase("Hydrating", "", f"Job {JOB_NAME} does not exist yet"),
    ),
    "another revision": (
        phase(BOUND, cache=EDITED, before=READY),
        CachePhase("Hydrating", "", f"Job {JOB_NAME} does not exist yet"),
    ),
    "another revision, job of the old one": (
        phase(BOUND, ended(OLD_JOB, "Complete"), cache=EDITED, before=READY),
        CachePhase("Hydrating", "", f"Job {JOB_NAME} does not exist yet"),
    ),
    "another revision, job of the old one failed": (
        phase(BOUND, ended(OLD_JOB, "Failed"), cache=EDITED),
        CachePhase("Hydrating", "", f"Job {JOB_NAME} does not exist yet"),
    ),
    "another revision, complete": (
        phase(BOUND, ended(NEW_JOB, "Complete"), cache=EDITED, before=READY),
        CachePhase("Ready", "Qwen/Qwen3-8B@v2@Folder"),
    ),
    "ready before artifacts were recorded": (
        phase(BOUND, before=earlier("Ready")),
        CachePhase("Hydrating", "", f"Job {JOB_NAME} does not exist yet"),
    ),
    "silent, ready before": (phase(cluster=seen.silent(), before=READY), CachePhase("Ready", ARTIFACT)),
    "silent, failed before": (
        phase(cluster=seen.silent(), before=earlier("Failed", message="why")),
        CachePhase("Failed", "", "why"),
    ),
    "silent, another revision": (
        phase(cluster=seen.silent(), cache=EDITED, before=READY),
        CachePhase("Hydrating", "", f"the volume holds {ARTIFACT}, not Qwen/Qwen3-8B@v2@Folder"),
    ),
    "silent, unknown": (
        phase(cluster=seen.silent()),
        CachePhase("", "", "the cluster did not answer: connection refused"),
    ),
    "not observed": (phase(cluster=None), CachePhase("", "", "the cluster has not been observed")),
    "not observed, ready before": (phase(cluster=None, before=READY), CachePhase("Ready", ARTIFACT)),
    "odd past": (phase(cluster=None, before=earlier("Done")), CachePhase("", "", "the cluster has not been observed")),
}


@pytest.mark.parametrize("name", PHASES)
def test_phase(name: str) -> None:
    found, desired = PHASES[name]
    assert found == desired


def test_failures_of_the_download_are_reported() -> None:
    labels = {"batch.kubernetes.io/job-name": JOB_NAME}
    state = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": seen.WORKLOADS, "labels": labels},
        "status": {"containerStatuses": [{"name": "hydrate", "state": state}]},
    }
    assert phase(BOUND, JOB, pod).message.endswith("; pod p: container hydrate: ImagePullBackOff: no such image")


def test_ready_lasts_as_long_as_nothing_is_lost() -> None:
    """The status of one observation is what the next one starts from."""
    status: dict[str, Any] | None = None
    history = []
    observations: list[Any] = [
        seen.cluster(),
        seen.cluster(PVC, JOB),
        seen.cluster(BOUND, JOB),
        seen.cluster(BOUND, ended(JOB, "Complete")),
        seen.cluster(BOUND),
        seen.silent(),
        None,
        seen.cluster(BOUND),
        seen.cluster(),
        seen.cluster(BOUND),
    ]
    for index, observation in enumerate(observations):
        found = phase(cluster=observation, before=status)
        status = model_cache(seen.CACHE, ["east"], {"east": found}, False, previous=status).wire(
            status, 1, f"2026-01-01T00:00:{index:02}Z"
        )
        history.append(status["clusters"][0]["phase"])
    assert history == ["Pending", "Pending", "Hydrating", *["Ready"] * 5, "Pending", "Hydrating"]
    ready = next(entry for entry in status["conditions"] if entry["type"] == "Ready")
    assert (ready["reason"], ready["lastTransitionTime"]) == ("Unavailable", "2026-01-01T00:00:08Z")


def test_clusters_are_reported_by_name_with_what_they_hold() -> None:
    phases = {"b": CachePhase("Ready", ARTIFACT), "a": ("Pending", "", "no claim"), "z": CachePhase("Ready", ARTIFACT)}
    status = model_cache(seen.CACHE, ["b", "c", "a"], phases, False)
    assert status.fields == {
        "summary": {"ready": "1/3"},
        "clusters": [
            {"name": "a", "phase": "Pending", "message": "no claim"},
            {"name": "b", "phase": "Ready", "artifact": ARTIFACT},
            {"name": "c"},
        ],
    }
    staged = status.condition("ArtifactReady")
    assert staged is not None
    assert staged.message == "1 of 3 clusters have it; a: no claim; c: the cluster has not been observed"


def test_no_cluster_is_none_of_none() -> None:
    assert model_cache(seen.CACHE, [], {}, True).fields == {"summary": {"ready": "0/0"}, "clusters": []}


def test_the_artifact_is_what_the_cache_asks_for() -> None:
    assert artifact(seen.CACHE) == ARTIFACT

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Stages of kwok for nodes, pods and volume claims, in place of kubelets and a provisioner: `write` writes them.

A stage is a rule: objects that its selector finds get its steps (kwok.x-k8s.io/v1alpha1). So each selector leaves out
the state to which its steps lead. Templates are Go templates that yield YAML.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

# Annotation of a pod (or of its template): what becomes of it, one of FATES. Without it the pod is Ready once bound; a
# pod of a Job succeeds. An image whose tag is `missing` is never pulled.
FATE = "test.modelplane.ai/fate"
NEVER_READY = "never-ready"
IMAGE_PULL = "image-pull"
OUT_OF_MEMORY = "out-of-memory"
FATES = (NEVER_READY, IMAGE_PULL, OUT_OF_MEMORY)
# Annotation of a pod: how long it takes until then (`2s`).
DELAY = "test.modelplane.ai/delay"
# Claims of a storage class with this provisioner get a volume.
PROVISIONER = "test.modelplane.ai/volumes"

Expression = dict[str, Any]


def write(path: Path) -> None:
    """Write the configuration file of kwok."""
    path.write_text("\n---\n".join(json.dumps(stage, indent=1) for stage in _stages()), encoding="utf-8")


def _stages() -> list[dict[str, Any]]:
    pulls_missing = '.spec.containers.[].image | select( endswith(":missing") )'
    not_pulled = _no_container('.state.waiting.reason == "ImagePullBackOff"')
    pending, active = _is(".status.phase", "Pending"), _is(".status.phase", "Pending", "Running")
    return [
        _stage("node-ready", "Node", [_absent(_ready("status"))], _status(_NODE)),
        _pod(
            "ready",
            [_no_fate(), _absent(pulls_missing), active, _is_not(_ready("status"), "True")],
            _running(ready=True, state="running: {startedAt: {{ $now | Quote }}}") + _INITIALISED + _ADDRESSES,
        ),
        _pod(
            NEVER_READY,
            [_fate(NEVER_READY), active, _no_container(".state.running != null and .ready == false")],
            _running(ready=False, state="running: {startedAt: {{ $now | Quote }}}") + _ADDRESSES,
        ),
        _pod("image-missing", [_no_fate(), _present(pulls_missing), pending, not_pulled], _NOT_PULLED),
        _pod(IMAGE_PULL, [_fate(IMAGE_PULL), active, not_pulled], _NOT_PULLED),
        _pod(
            OUT_OF_MEMORY,
            [_fate(OUT_OF_MEMORY), active, _no_container('.state.waiting.reason == "CrashLoopBackOff"')],
            _running(
                ready=False,
                restarts=3,
                state='waiting: {reason: CrashLoopBackOff, message: "back-off 40s restarting failed container"}',
                last="terminated: {exitCode: 137, reason: OOMKilled, startedAt: {{ $now | Quote }},"
                " finishedAt: {{ $now | Quote }}}",
            )
            + _ADDRESSES,
        ),
        _pod(
            "succeeded",
            [
                _no_fate(),
                _is(".metadata.ownerReferences.[].kind", "Job"),
                _is(".status.phase", "Running"),
                _is(_ready("status"), "True"),
            ],
            _running(
                ready=False,
                phase="Succeeded",
                reason="PodCompleted",
                state="terminated: {exitCode: 0, reason: Completed, startedAt: {{ $now | Quote }},"
                " finishedAt: {{ $now | Quote }}}",
            ),
        ),
        _stage("pod-deleted", "Pod", [_present(".metadata.deletionTimestamp")], {"delete": True}),
        # The binder of the controller manager asks for a volume by this annotation, and binds the claim to it.
        _stage(
            "volume-provisioned",
            "PersistentVolumeClaim",
            [
                _absent(".metadata.deletionTimestamp"),
                _is('.metadata.annotations["volume.kubernetes.io/storage-provisioner"]', PROVISIONER),
                _absent(".spec.volumeName"),
            ],
            {"apply": {"template": _VOLUME}},
        ),
    ]


def _stage(
    name: str, kind: str, expressions: list[Expression], step: dict[str, Any], delay: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": kind},
            "selector": {"matchExpressions": expressions},
            **({"delay": delay} if delay else {}),
            "steps": [step],
        },
    }


def _pod(name: str, expressions: list[Expression], template: str) -> dict[str, Any]:
    delay = {"durationMilliseconds": 0, "durationFrom": {"expressionFrom": f'.metadata.annotations["{DELAY}"]'}}
    living = [_absent(".metadata.deletionTimestamp"), *expressions]
    return _stage(f"pod-{name}", "Pod", living, _status(template), delay)


def _status(template: str) -> dict[str, Any]:
    return {"patch": {"root": "status", "subresource": "status", "template": "{{ $now := Now }}\n" + template}}


def _is(key: str, *values: str) -> Expression:
    return {"key": key, "operator": "In", "values": list(values)}


def _is_not(key: str, value: str) -> Expression:
    return {"key": key, "operator": "NotIn", "values": [value]}


def _present(key: str) -> Expression:
    return {"key": key, "operator": "Exists"}


def _absent(key: str) -> Expression:
    return {"key": key, "operator": "DoesNotExist"}


def _no_container(is_so: str) -> Expression:
    return _absent(f".status | select( any(.containerStatuses[]?; {is_so}) )")


def _fate(fate: str) -> Expression:
    return _is(f'.metadata.annotations["{FATE}"]', fate)


def _no_fate() -> Expression:
    return _absent(f'.metadata.annotations["{FATE}"]')


def _ready(field: str) -> str:
    return f'.status.conditions.[] | select( .type == "Ready" ) | .{field}'


def _running(
    *,
    ready: bool,
    state: str,
    last: str = "",
    phase: str = "Running",
    reason: str = "ContainersNotReady",
    restarts: int = 0,
    pulled: bool = True,
) -> str:
    """The template of a pod's status whose containers are all in one state."""
    why = "" if ready else f", reason: {reason}"
    started = "true" if state.startswith("running") else "false"
    image = "{{ .image | Quote }}" if pulled else '""'
    return f"""
phase: {phase}
startTime: {{{{ or .status.startTime $now | Quote }}}}
conditions:
- {{type: Initialized, status: "True", lastTransitionTime: {{{{ $now | Quote }}}}}}
- {{type: PodReadyToStartContainers, status: "True", lastTransitionTime: {{{{ $now | Quote }}}}}}
{{{{ range list "ContainersReady" "Ready" }}}}
- {{type: {{{{ . }}}}, status: "{ready}"{why}, lastTransitionTime: {{{{ $now | Quote }}}}}}
{{{{ end }}}}
{{{{ range .spec.readinessGates }}}}
- {{type: {{{{ .conditionType | Quote }}}}, status: "{ready}", lastTransitionTime: {{{{ $now | Quote }}}}}}
{{{{ end }}}}
containerStatuses:
{{{{ range .spec.containers }}}}
- name: {{{{ .name | Quote }}}}
  image: {{{{ .image | Quote }}}}
  imageID: {image}
  ready: {str(ready).lower()}
  started: {started}
  restartCount: {restarts}
  state: {{{state}}}
  lastState: {{{last}}}
{{{{ end }}}}
"""


_NODE = """
conditions:
{{ range NodeConditions }}
- type: {{ .type | Quote }}
  status: {{ .status | Quote }}
  reason: {{ .reason | Quote }}
  message: {{ .message | Quote }}
  lastHeartbeatTime: {{ $now | Quote }}
  lastTransitionTime: {{ $now | Quote }}
{{ end }}
"""
_INITIALISED = """
initContainerStatuses:
{{ range .spec.initContainers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: {{ .image | Quote }}
  ready: true
  restartCount: 0
  {{ if eq .restartPolicy "Always" }}
  started: true
  state: {running: {startedAt: {{ $now | Quote }}}}
  {{ else }}
  state: {terminated: {exitCode: 0, reason: Completed, startedAt: {{ $now | Quote }}, finishedAt: {{ $now | Quote }}}}
  {{ end }}
{{ end }}
"""
# An address is kept for life: lists are merged, and a second address of a family would be refused.
_ADDRESSES = """
{{ if not .status.podIP }}
hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
{{ with PodIPWith .spec.nodeName ( or .spec.hostNetwork false ) .metadata.uid .metadata.name .metadata.namespace }}
podIP: {{ . | Quote }}
podIPs: [{ip: {{ . | Quote }}}]
{{ end }}
{{ end }}
"""
_NOT_PULLED = _running(
    ready=False,
    phase="Pending",
    pulled=False,
    state="waiting: {reason: ImagePullBackOff, message:"
    ' {{ printf "Back-off pulling image %q: ErrImagePull: not found" .image | Quote }}}',
)
_VOLUME = f"""
apiVersion: v1
kind: PersistentVolume
metadata:
  name: pvc-{{{{ .metadata.uid }}}}
  annotations: {{pv.kubernetes.io/provisioned-by: {PROVISIONER}}}
spec:
  accessModes:
  {{{{ YAML .spec.accessModes 1 }}}}
  capacity: {{storage: {{{{ .spec.resources.requests.storage | Quote }}}}}}
  persistentVolumeReclaimPolicy: Retain
  storageClassName: {{{{ .spec.storageClassName | Quote }}}}
  volumeMode: {{{{ or .spec.volumeMode "Filesystem" | Quote }}}}
  claimRef:
    apiVersion: v1
    kind: PersistentVolumeClaim
    name: {{{{ .metadata.name | Quote }}}}
    namespace: {{{{ .metadata.namespace | Quote }}}}
    uid: {{{{ .metadata.uid | Quote }}}}
  hostPath: {{path: "/nowhere/{{{{ .metadata.uid }}}}"}}
"""

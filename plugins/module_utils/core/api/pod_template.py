# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Pod template of an engine: the fields that users can set. The fleet composes all other fields of the pod."""

# isinstance accepts a bool as an int. pylint: disable=unidiomatic-typecheck

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from ..._pydantic import Field, model_validator
from ..text import meant_memory, meant_quantity
from .base import (
    DNSLabel,
    Hidden,
    IntOrString,
    ListMap,
    Model,
    Rule,
    Violation,
    Words,
    allowed_if,
    exactly_one,
    has,
    whole_numbers_as_text,
)
from .meta import LabelValue, key_rules, template_label_rules
from .pod_security import NOT_IN_A_POD, ContainerSecurityContext, PodSecurityContext

ENGINE_CONTAINER = "engine"
MOST_GRACE_SECONDS = 86400
# Grammar of resource.Quantity (k8s.io/apimachinery/pkg/api/resource), without signs: an amount of CPU or memory.
QUANTITY = r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$"
# Relative paths without a segment `..`. File names must not begin with `..`.
_SEGMENTS = r"(/([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+|\.?))*"
_SUB_PATH = rf"^(([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+|\.){_SEGMENTS})?$"
_FILE_PATH = rf"^([^/.][^/]*|\.[^/.][^/]*|\.){_SEGMENTS}$"
_PATH_WORDS = "must be a relative path below the volume"
FIELD_PATH = (
    r"^(metadata\.(name|namespace|uid|(labels|annotations)\['[^']+'\])|spec\.(nodeName|serviceAccountName)|"
    r"status\.(hostIPs?|podIPs?))$"
)
Cores = Annotated[str, Words("must be a quantity of cores, such as 4 or 500m"), IntOrString()]
Bytes = Annotated[str, Words("must be a quantity, such as 512Mi or 16Gi"), IntOrString()]


class KeyRef(Model):
    """Key of a Secret or ConfigMap on the inference cluster."""

    name: str = Field(description="Name of the Secret or ConfigMap.")
    key: str = Field(description="Key in the data of the object.")
    optional: bool | None = Field(
        default=None, description="Whether the container can start without the object or key. Defaults to false."
    )


class FieldRef(Model):
    """Field of the pod."""

    field_path: Annotated[str, Words("must be a field that pods provide to variables, such as status.podIP")] = Field(
        pattern=FIELD_PATH, description="Path of the field, such as status.podIP."
    )
    api_version: str | None = Field(default=None, description="API version of the schema of the path. Defaults to v1.")


class EnvVarSource(Model):
    """Source of the value of an environment variable."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        exactly_one(("MD-21", "MR-15"), "secretKeyRef", "configMapKeyRef", "fieldRef"),
    )

    secret_key_ref: Annotated[KeyRef, Hidden()] | None = Field(
        default=None, description="Key of a Secret on the inference cluster."
    )
    config_map_key_ref: KeyRef | None = Field(default=None, description="Key of a ConfigMap on the inference cluster.")
    field_ref: FieldRef | None = Field(default=None, description="Field of the pod.")


class EnvVar(Model):
    """Environment variable."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            ids=("MD-22", "MR-16"),
            message="value and valueFrom exclude each other",
            cel="!has(self.value) || self.value.size() == 0 || !has(self.valueFrom)",
            check=lambda variable: not variable.value or variable.value_from is None,
            hint="Remove one of them",
            schema=allowed_if(has("value", "", absent=True), "valueFrom"),
        ),
    )

    name: Annotated[str, Words("must be printable ASCII without '='")] = Field(
        min_length=1, pattern="^[ -<>-~]+$", description="Name of the variable."
    )
    value: str | None = Field(
        default=None,
        description="Value of the variable. Can reference earlier variables as $(NAME). Defaults to an empty value.",
    )
    value_from: EnvVarSource | None = Field(
        default=None, description="Source of the value. Mutually exclusive with a value."
    )


class ResourceList(Model):
    """Quantities of CPU, memory and disk. Request devices in nodeSelector.devices."""

    NOT_HERE: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("nvidia.com/gpu", "amd.com/gpu", "gpu"), "Request GPUs in nodeSelector.devices of the member"
    )

    @classmethod
    def hint_of_amount(cls, path: Sequence[str | int], amount: str) -> str:
        """Return the hint for memory or disk space without a unit, which means bytes, and for a CPU with an invalid
        unit."""
        if path[-1] == "cpu":
            cores = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,3})?) ?(?:(m)|(?i:c|cores?|v?cpus?))", amount.strip())
            if cores:
                return f"Write {cores[1]}m" if cores[2] else f'Write "{cores[1]}"'
            # Kubernetes accepts units of memory for a CPU, as billions of cores.
            return "Units of memory do not apply to a CPU" if meant_quantity(amount) else ""
        quantity = meant_memory(amount)
        return f"Add the unit, such as {quantity}" if quantity else ""

    cpu: Cores | None = Field(
        default=None, max_length=32, pattern=QUANTITY, description="Quantity of CPU cores, such as 4 or 500m."
    )
    memory: Bytes | None = Field(
        default=None, max_length=32, pattern=QUANTITY, description="Quantity of memory, such as 64Gi."
    )
    ephemeral_storage: Bytes | None = Field(
        default=None,
        alias="ephemeral-storage",
        max_length=32,
        pattern=QUANTITY,
        description="Quantity of local disk space, such as 100Gi.",
    )

    @model_validator(mode="before")
    @classmethod
    def _whole_numbers_as_text(cls, value: Any) -> Any:
        """Convert `cpu: 4` to the quantity "4", as Kubernetes does."""
        return whole_numbers_as_text(value)


class Resources(Model):
    """Compute resources of the container."""

    NOT_HERE: ClassVar[Mapping[str, str]] = {"claims": "Request devices in nodeSelector.devices of the member"}

    requests: ResourceList | None = Field(default=None, description="Minimum resources for the container.")
    limits: ResourceList | None = Field(default=None, description="Maximum resources of the container.")


class ExecAction(Model):
    """Command in the container, without a shell."""

    command: list[str] = Field(min_length=1, description="Command and its arguments.")


class HttpGetAction(Model):
    """HTTP GET request to the pod."""

    path: str | None = Field(default=None, description="Path of the request. Defaults to /.")
    port: int = Field(ge=1, le=65535, description="Port of the container.")
    scheme: Literal["HTTP", "HTTPS"] | None = Field(
        default=None, description="Scheme of the request. Defaults to HTTP."
    )


class SleepAction(Model):
    """Pause of the container."""

    seconds: int = Field(ge=1, le=MOST_GRACE_SECONDS, description="Number of seconds to sleep.")


class LifecycleHandler(Model):
    """Action of a lifecycle hook. Exactly one action must be set."""

    RULES: ClassVar[tuple[Rule, ...]] = (exactly_one(("MD-26", "MR-22"), "exec", "httpGet", "sleep"),)

    exec_: ExecAction | None = Field(default=None, description="Command to run in the container.")
    http_get: HttpGetAction | None = Field(default=None, description="HTTP GET request to send to the pod.")
    sleep: SleepAction | None = Field(default=None, description="Pause of the container.")


class TcpSocketAction(Model):
    """TCP connection to the pod."""

    port: int = Field(ge=1, le=65535, description="Port of the container.")


class GrpcAction(Model):
    """gRPC health check of the pod."""

    port: int = Field(ge=1, le=65535, description="Port of the container.")
    service: str | None = Field(
        default=None, description="Service name in the health check request. If unset, the name is empty."
    )


_Seconds = Annotated[int, Field(ge=1, le=MOST_GRACE_SECONDS)]
_Times = Annotated[int, Field(ge=1, le=2**31 - 1)]


class _Probe(Model):
    RULES: ClassVar[tuple[Rule, ...]] = (exactly_one(("MD-36", "MR-32"), "exec", "httpGet", "tcpSocket", "grpc"),)

    exec_: ExecAction | None = Field(default=None, description="Command that exits with 0 if the container is healthy.")
    http_get: HttpGetAction | None = Field(
        default=None, description="HTTP request with a status code below 400 if the container is healthy."
    )
    tcp_socket: TcpSocketAction | None = Field(
        default=None, description="TCP connection that succeeds if the container is healthy."
    )
    grpc: GrpcAction | None = Field(default=None, description="gRPC health check.")
    initial_delay_seconds: int | None = Field(
        default=None,
        ge=0,
        le=MOST_GRACE_SECONDS,
        description="Number of seconds between the start of the container and the first check. Defaults to 0.",
    )
    period_seconds: _Seconds | None = Field(
        default=None, description="Number of seconds between checks. Defaults to 10."
    )
    timeout_seconds: _Seconds | None = Field(default=None, description="Timeout of a check in seconds. Defaults to 1.")


class Probe(_Probe):
    """Periodic check by the kubelet, with the fields of a Kubernetes probe."""

    NOT_HERE: ClassVar[Mapping[str, str]] = {"successThreshold": "Kubernetes accepts only 1 for this probe"}

    failure_threshold: _Times | None = Field(
        default=None,
        description="Number of consecutive failures after which the container restarts. Defaults to 3.",
    )
    termination_grace_period_seconds: _Seconds | None = Field(
        default=None,
        description="Grace period in seconds for the container to stop before it restarts. Defaults to the grace "
        "period of the pod.",
    )


class ReadinessProbe(_Probe):
    """Periodic check by the kubelet whether the pod can receive requests."""

    NOT_HERE: ClassVar[Mapping[str, str]] = {
        "terminationGracePeriodSeconds": "Kubernetes does not accept it for a readiness probe"
    }

    failure_threshold: _Times | None = Field(
        default=None,
        description="Number of consecutive failures after which the pod receives no requests. Defaults to 3.",
    )
    success_threshold: _Times | None = Field(
        default=None,
        description="Number of consecutive successes after which the pod receives requests again. Defaults to 1.",
    )


class VolumeMount(Model):
    """Mount of a volume of the pod."""

    name: str = Field(min_length=1, description="Name of the volume.")
    mount_path: Annotated[str, Words("must be an absolute path without a colon")] = Field(
        min_length=2, max_length=1024, pattern="^/[^:]+$", description="Path in the container."
    )
    sub_path: Annotated[str, Words(_PATH_WORDS)] | None = Field(
        default=None,
        max_length=1024,
        pattern=_SUB_PATH,
        description="Path in the volume to mount. Defaults to its root.",
    )
    read_only: bool | None = Field(
        default=None, description="Whether the container cannot write to the volume. Defaults to false."
    )


class Lifecycle(Model):
    """Lifecycle hooks of the container."""

    MIN_PROPERTIES: ClassVar[int] = 1

    post_start: LifecycleHandler | None = Field(default=None, description="Action after the container starts.")
    pre_stop: LifecycleHandler | None = Field(
        default=None,
        description="Action before the container receives SIGTERM, within terminationGracePeriodSeconds. Replaces the "
        "composed hook, which waits until the engine has no requests.",
    )


class Container(Model):
    """Container of the engine."""

    NOT_HERE: ClassVar[Mapping[str, str]] = {
        "ports": "Engines listen on port 8000, or on the port of the engine",
        "envFrom": "List the variables in env, with valueFrom",
    }

    name: str = Field(min_length=1, description=f"Name of the container. Must be {ENGINE_CONTAINER}.")
    image: str = Field(min_length=1, description="Image of the inference engine.")
    command: list[str] | None = Field(
        default=None, description="Entrypoint of the container. Defaults to the entrypoint of the image."
    )
    args: list[str] | None = Field(
        default=None, description="Arguments of the entrypoint. Defaults to the arguments of the image."
    )
    env: list[EnvVar] | None = Field(
        default=None, max_length=256, description="Environment variables of the container, in order."
    )
    resources: Resources | None = Field(default=None, description="CPU, memory and disk of the container.")
    lifecycle: Lifecycle | None = Field(
        default=None, description="Lifecycle hooks of the container. If unset, only the composed preStop hook runs."
    )
    liveness_probe: Probe | None = Field(
        default=None,
        description="Probe that restarts the container when it fails. Replaces the composed probe of `stall`.",
    )
    readiness_probe: ReadinessProbe | None = Field(
        default=None,
        description="Readiness probe of the container. Replaces the composed probe of `healthPath`.",
    )
    startup_probe: Probe | None = Field(
        default=None,
        description="Probe that restarts the container if it does not start. Replaces the composed probe of "
        "`startupMinutes`.",
    )
    volume_mounts: Annotated[list[VolumeMount], ListMap(("mountPath",))] | None = Field(
        default=None,
        max_length=32,
        description="Mounts of volumes of the pod. A mount at /dev/shm replaces the composed shared memory.",
    )
    security_context: ContainerSecurityContext | None = Field(
        default=None,
        description="Security settings of the container. If unset, the defaults of its fields apply.",
    )


class ImagePullSecret(Model):
    """Image pull secret."""

    name: str = Field(description="Name of a Secret on the inference cluster.")


def _pause_fits(pod: Any) -> list[Violation]:
    """Return the preStop pauses that are longer than the grace period, which Kubernetes rejects."""
    period = pod.termination_grace_period_seconds
    violations = []
    for index, container in enumerate(pod.containers):
        pre_stop = container.lifecycle and container.lifecycle.pre_stop
        if period is not None and pre_stop and pre_stop.sleep and pre_stop.sleep.seconds > period:
            path = ("containers", index, "lifecycle", "preStop", "sleep", "seconds")
            violations.append(Violation(path, value=pre_stop.sleep.seconds))
    return violations


class KeyToPath(Model):
    """Key of a ConfigMap or Secret, mounted as a file."""

    key: str = Field(min_length=1, description="Key in the data of the object.")
    path: Annotated[str, Words(_PATH_WORDS)] = Field(
        min_length=1, max_length=1024, pattern=_FILE_PATH, description="Path of the file in the volume."
    )
    mode: int | None = Field(
        default=None, ge=0, le=0o777, description="Permissions of the file. Defaults to defaultMode."
    )


class _Files(Model):
    items: list[KeyToPath] | None = Field(
        default=None, max_length=64, description="Keys to mount as files. Defaults to all keys."
    )
    default_mode: int | None = Field(
        default=None, ge=0, le=0o777, description="Permissions of files. Defaults to 0644."
    )
    optional: bool | None = Field(
        default=None, description="Whether the pod can start without the object or its keys. Defaults to false."
    )


class ConfigMapFiles(_Files):
    """Files from a ConfigMap on the inference cluster."""

    name: str = Field(min_length=1, max_length=253, description="Name of the ConfigMap.")


class SecretFiles(_Files):
    """Files from a Secret on the inference cluster."""

    secret_name: str = Field(min_length=1, max_length=253, description="Name of the Secret.")


class EmptyDir(Model):
    """Empty directory with the lifetime of the pod."""

    medium: Literal["Memory"] | None = Field(
        default=None, description="Storage medium. Memory is a file system in memory. Defaults to the disk of the node."
    )
    size_limit: Annotated[str, Words("must be a quantity, such as 512Mi or 16Gi"), IntOrString()] | None = Field(
        default=None,
        max_length=32,
        pattern=QUANTITY,
        description="Maximum size. Files in memory count toward the memory limit of the container. If unset, there is "
        "no limit.",
    )

    @model_validator(mode="before")
    @classmethod
    def _whole_numbers_as_text(cls, value: Any) -> Any:
        return whole_numbers_as_text(value)


class Volume(Model):
    """Volume of the pod. Exactly one source must be set."""

    NOT_HERE: ClassVar[Mapping[str, str]] = {
        "persistentVolumeClaim": "Set modelCacheRef to mount weights at /mnt/models",
        "hostPath": 'Pod Security "baseline" forbids it',
        "projected": "Use a separate volume for each ConfigMap and Secret",
    }
    RULES: ClassVar[tuple[Rule, ...]] = (exactly_one(("MD-37", "MR-33"), "configMap", "secret", "emptyDir"),)

    name: DNSLabel = Field(description="Name of the volume.")
    config_map: ConfigMapFiles | None = Field(default=None, description="Files from a ConfigMap.")
    secret: Annotated[SecretFiles, Hidden()] | None = Field(default=None, description="Files from a Secret.")
    empty_dir: EmptyDir | None = Field(default=None, description="Empty directory.")


class PodSpec(Model):
    """Containers and volumes of the pod."""

    NOT_HERE: ClassVar[Mapping[str, str]] = {
        "nodeSelector": "It belongs to the member, next to template",
        "tolerations": "They belong to the deployment, next to engines",
        "initContainers": "An engine has exactly one container",
        **NOT_IN_A_POD,
    }
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            ids=("MD-20", "MR-14"),
            message=f"the container must be named {ENGINE_CONTAINER}",
            cel=f"self.containers.size() == 1 && self.containers[0].name == '{ENGINE_CONTAINER}'",
            check=lambda pod: len(pod.containers) == 1 and pod.containers[0].name == ENGINE_CONTAINER,
            hint=f"Set containers[0].name: {ENGINE_CONTAINER}",
            schema={"properties": {"containers": {"items": {"properties": {"name": {"enum": [ENGINE_CONTAINER]}}}}}},
        ),
        Rule(
            ids=("MD-27", "MR-23"),
            message="preStop.sleep.seconds must not be more than terminationGracePeriodSeconds",
            cel="!has(self.terminationGracePeriodSeconds) || self.containers.all(c, !has(c.lifecycle) || "
            "!has(c.lifecycle.preStop) || !has(c.lifecycle.preStop.sleep) || "
            "c.lifecycle.preStop.sleep.seconds <= self.terminationGracePeriodSeconds)",
            check=_pause_fits,
            hint="Raise terminationGracePeriodSeconds, or leave it out: it then follows the pause",
        ),
    )

    containers: list[Container] = Field(
        min_length=1, max_length=1, description=f"Exactly one container, named {ENGINE_CONTAINER}."
    )
    image_pull_secrets: Annotated[list[ImagePullSecret], Hidden()] | None = Field(
        default=None, description="Image pull secrets on the inference cluster."
    )
    service_account_name: DNSLabel | None = Field(
        default=None,
        description="ServiceAccount on the inference cluster that provides the cloud identity of the pod. Its token "
        "for the Kubernetes API is not mounted. Defaults to `default`.",
    )
    volumes: Annotated[list[Volume], ListMap(("name",))] | None = Field(
        default=None, max_length=32, description="Volumes for volumeMounts of the container."
    )
    termination_grace_period_seconds: _Seconds | None = Field(
        default=None,
        description="Grace period in seconds for the pod to stop. An engine with requests keeps serving until 30 "
        "seconds before the end of the period, or until half of a period of less than a minute. If unset, the period "
        "is `fleet_stream_grace`, or the sleep of preStop, plus 30 seconds. A leader of a multi-node engine has at "
        "most 60 seconds by default.",
    )
    security_context: PodSecurityContext | None = Field(
        default=None, description="Security settings of the pod. If unset, the defaults of its fields apply."
    )


class PodMetadata(Model):
    """Labels and annotations of the pod."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        *template_label_rules(
            reserved=("MD-14", "MR-8"),
            syntax=("MD-15", "MR-9"),
            prefix=("MD-16", "MR-10"),
            value=("MD-17", "MR-11"),
        ),
        *key_rules("annotations", syntax=("MD-18", "MR-12"), prefix=("MD-19", "MR-13")),
    )

    labels: dict[str, LabelValue] | None = Field(default=None, max_length=32, description="Labels of the pod.")
    annotations: dict[str, Annotated[str, Field(max_length=8192)]] | None = Field(
        default=None, max_length=32, description="Annotations of the pod."
    )


class PodTemplate(Model):
    """Template of the pods of an engine member."""

    NOT_HERE: ClassVar[Mapping[str, str]] = {
        "containers": "It belongs under spec",
        "imagePullSecrets": "It belongs under spec",
        "securityContext": "It belongs under spec",
    }

    metadata: PodMetadata | None = Field(default=None, description="Labels and annotations of the pod.")
    spec: PodSpec = Field(description="Container and volumes of the pod.")

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The securityContext of an engine's pod and container: what Pod Security "baseline" lets in, and IPC_LOCK.

The lists are those of Kubernetes 1.34 ("Pod Security Standards"; k8s.io/pod-security-admission, policy).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, ClassVar, Literal

from ..._pydantic import Field
from .base import ListMap, Model, Rule, Words, allowed_if, has, requires

BASELINE_CAPABILITIES = (
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
)
IPC_LOCK = "IPC_LOCK"
"""To pin memory beyond the limit of the node, which RDMA needs. "baseline" does not let it in."""

_SYSCTLS = (
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
)
_SELINUX_TYPES = ("container_t", "container_init_t", "container_kvm_t", "container_engine_t")
_PROFILES = ("RuntimeDefault", "Localhost")
_LARGEST_ID = 2**31 - 1
_ALLOWS = 'Pod Security "baseline" allows no other'
_FORBIDS = 'Pod Security "baseline" forbids it'
_OF_THE_POD = "It belongs to the securityContext of the pod, beside containers"
_OF_THE_CONTAINER = "It belongs to the securityContext of the container"
_NO_WINDOWS = "Engines run on Linux"


def _one_of(names: Iterable[str]) -> str:
    return f"^({'|'.join(name.replace('.', '[.]') for name in names)})$"


_CAPABILITIES = (*BASELINE_CAPABILITIES, IPC_LOCK)
Capability = Annotated[
    str,
    Words(f"must be one of {', '.join(_CAPABILITIES)}: {_ALLOWS}, and IPC_LOCK is for RDMA"),
    Field(pattern=_one_of(_CAPABILITIES)),
]
DroppedCapability = Annotated[
    str,
    Words("must be ALL or the name of a capability such as NET_RAW"),
    Field(max_length=64, pattern="^[A-Z][A-Z_]*$"),
]
ProfileType = Annotated[str, Words(f"must be one of {', '.join(_PROFILES)}: {_ALLOWS}")]
SelinuxType = Annotated[str, Words(f"must be one of {', '.join(_SELINUX_TYPES)}: {_ALLOWS}")]
SysctlName = Annotated[str, Words(f"must be one of {', '.join(_SYSCTLS)}: {_ALLOWS}")]
GroupId = Annotated[int, Field(ge=0, le=_LARGEST_ID)]


class Capabilities(Model):
    """Capabilities of the container beyond none: all are dropped first."""

    add: list[Capability] | None = Field(
        default=None, max_length=len(_CAPABILITIES), description="Capabilities that the container has."
    )
    drop: list[DroppedCapability] | None = Field(
        default=None, max_length=64, description="Changes nothing: whatever is not in add is dropped."
    )


class SecurityProfile(Model):
    """A profile of seccomp or AppArmor."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        requires(("MD-30", "MR-30"), "type", "Localhost", "localhostProfile"),
        Rule(
            ids=("MD-31", "MR-31"),
            message="localhostProfile is allowed only when type is Localhost",
            cel="self.type == 'Localhost' || !has(self.localhostProfile)",
            check=lambda profile: profile.type == "Localhost" or profile.localhost_profile is None,
            hint="Remove localhostProfile, or set type: Localhost",
            schema=allowed_if(has("type", "Localhost"), "localhostProfile"),
        ),
    )

    type: ProfileType = Field(
        pattern=_one_of(_PROFILES), description="RuntimeDefault, or Localhost for a profile on the nodes."
    )
    localhost_profile: str | None = Field(
        default=None, min_length=1, max_length=253, description="The profile on the nodes, when type is Localhost."
    )


class SelinuxOptions(Model):
    """SELinux labels."""

    NOT_HERE: ClassVar[Mapping[str, str]] = {"user": _FORBIDS, "role": _FORBIDS}

    type: SelinuxType | None = Field(default=None, pattern=_one_of(_SELINUX_TYPES), description="Type.")
    level: str | None = Field(default=None, max_length=253, description="Level, such as s0:c123,c456.")


class Sysctl(Model):
    """A parameter of the kernel, for this pod alone."""

    name: SysctlName = Field(pattern=_one_of(_SYSCTLS), description="Name of the parameter.")
    value: str = Field(max_length=253, description="Its value.")


class _SecurityContext(Model):
    run_as_user: int | None = Field(
        default=None, ge=0, le=_LARGEST_ID, description="User, by its number; absent is the image's."
    )
    run_as_group: int | None = Field(
        default=None, ge=0, le=_LARGEST_ID, description="Primary group, by its number; absent is the image's."
    )
    run_as_non_root: bool | None = Field(default=None, description="Whether to refuse to run as root.")
    seccomp_profile: SecurityProfile | None = Field(default=None, description="Absent is RuntimeDefault.")
    app_armor_profile: SecurityProfile | None = Field(
        default=None, description="Absent is that of the container runtime."
    )
    se_linux_options: SelinuxOptions | None = Field(
        default=None, description="Absent is what the container runtime chooses."
    )


class PodSecurityContext(_SecurityContext):
    """Rights of all containers of the pod."""

    NOT_HERE: ClassVar[Mapping[str, str]] = {
        "privileged": _FORBIDS,
        "windowsOptions": _NO_WINDOWS,
        **dict.fromkeys(("allowPrivilegeEscalation", "capabilities", "readOnlyRootFilesystem"), _OF_THE_CONTAINER),
    }

    fs_group: int | None = Field(default=None, ge=0, le=_LARGEST_ID, description="Group that owns volumes.")
    fs_group_change_policy: Literal["OnRootMismatch", "Always"] | None = Field(
        default=None, description="When files of volumes get that group; absent is Always."
    )
    supplemental_groups: list[GroupId] | None = Field(
        default=None, max_length=32, description="Further groups, by their numbers."
    )
    supplemental_groups_policy: Literal["Merge", "Strict"] | None = Field(
        default=None, description="Whether groups of the image count too; absent is Merge."
    )
    sysctls: Annotated[list[Sysctl], ListMap(("name",))] | None = Field(
        default=None, max_length=len(_SYSCTLS), description="Parameters of the kernel."
    )


class ContainerSecurityContext(_SecurityContext):
    """Rights of the engine's container."""

    NOT_HERE: ClassVar[Mapping[str, str]] = {
        "privileged": f"{_FORBIDS}: devices are claimed, and RDMA needs no more than capabilities.add: [IPC_LOCK]",
        "procMount": _FORBIDS,
        "windowsOptions": _NO_WINDOWS,
        **dict.fromkeys(("fsGroup", "fsGroupChangePolicy", "supplementalGroups", "sysctls"), _OF_THE_POD),
    }

    allow_privilege_escalation: bool | None = Field(
        default=None, description="Whether programs may gain rights that their parent has not; absent is false."
    )
    read_only_root_filesystem: bool | None = Field(
        default=None, description="Whether files of the image cannot be changed; absent is false."
    )
    capabilities: Capabilities | None = Field(
        default=None, description="Absent is none, or IPC_LOCK where a network device is claimed."
    )


NOT_IN_A_POD: Mapping[str, str] = {
    **dict.fromkeys(("hostNetwork", "hostPID", "hostIPC"), _FORBIDS),
    "automountServiceAccountToken": "Engines have no access to the Kubernetes API",
}
"""Fields of a pod that users search beside its securityContext."""

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Security contexts of engine pods and containers: the settings of Pod Security "baseline", and IPC_LOCK.

The lists are from Kubernetes 1.34 ("Pod Security Standards"; k8s.io/pod-security-admission, policy).
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
"""Capability to lock more memory than the limit of the node, for RDMA. "baseline" forbids it."""

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
_OF_THE_POD = "It belongs to the securityContext of the pod, next to containers"
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
    """Linux capabilities of the container. All capabilities that are not in add are dropped."""

    add: list[Capability] | None = Field(
        default=None,
        max_length=len(_CAPABILITIES),
        description="Capabilities to add. If unset, no capabilities are added.",
    )
    drop: list[DroppedCapability] | None = Field(
        default=None,
        max_length=64,
        description="Capabilities to drop. Has no effect, because all capabilities that are not in add are dropped.",
    )


class SecurityProfile(Model):
    """Seccomp or AppArmor profile."""

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
        pattern=_one_of(_PROFILES),
        description="Type of the profile. RuntimeDefault is the profile of the container runtime, and Localhost a "
        "profile on the nodes.",
    )
    localhost_profile: str | None = Field(
        default=None,
        min_length=1,
        max_length=253,
        description="Name of the profile on the nodes. Required for type Localhost, otherwise not allowed.",
    )


class SelinuxOptions(Model):
    """SELinux labels."""

    NOT_HERE: ClassVar[Mapping[str, str]] = {"user": _FORBIDS, "role": _FORBIDS}

    type: SelinuxType | None = Field(default=None, pattern=_one_of(_SELINUX_TYPES), description="SELinux type label.")
    level: str | None = Field(default=None, max_length=253, description="SELinux level label, such as s0:c123,c456.")


class Sysctl(Model):
    """Kernel parameter of the pod."""

    name: SysctlName = Field(pattern=_one_of(_SYSCTLS), description="Name of the parameter.")
    value: str = Field(max_length=253, description="Value of the parameter.")


class _SecurityContext(Model):
    run_as_user: int | None = Field(
        default=None,
        ge=0,
        le=_LARGEST_ID,
        description="UID of the container process. Defaults to the user of the image.",
    )
    run_as_group: int | None = Field(
        default=None,
        ge=0,
        le=_LARGEST_ID,
        description="GID of the container process. Defaults to the group of the image.",
    )
    run_as_non_root: bool | None = Field(
        default=None, description="Whether the kubelet rejects a container that runs as root. Defaults to false."
    )
    seccomp_profile: SecurityProfile | None = Field(
        default=None, description="Seccomp profile. Defaults to RuntimeDefault."
    )
    app_armor_profile: SecurityProfile | None = Field(
        default=None, description="AppArmor profile. Defaults to the profile of the container runtime."
    )
    se_linux_options: SelinuxOptions | None = Field(
        default=None, description="SELinux labels. If unset, the container runtime selects the labels."
    )


class PodSecurityContext(_SecurityContext):
    """Security settings of all containers of the pod."""

    NOT_HERE: ClassVar[Mapping[str, str]] = {
        "privileged": _FORBIDS,
        "windowsOptions": _NO_WINDOWS,
        **dict.fromkeys(("allowPrivilegeEscalation", "capabilities", "readOnlyRootFilesystem"), _OF_THE_CONTAINER),
    }

    fs_group: int | None = Field(
        default=None,
        ge=0,
        le=_LARGEST_ID,
        description="GID that owns the volumes of the pod. If unset, the ownership of volumes does not change.",
    )
    fs_group_change_policy: Literal["OnRootMismatch", "Always"] | None = Field(
        default=None, description="Policy for changes of the ownership of volumes. Defaults to Always."
    )
    supplemental_groups: list[GroupId] | None = Field(
        default=None, max_length=32, description="GIDs of supplemental groups of the container processes."
    )
    supplemental_groups_policy: Literal["Merge", "Strict"] | None = Field(
        default=None,
        description="Policy for the groups of the image. Merge adds them, and Strict ignores them. Defaults to Merge.",
    )
    sysctls: Annotated[list[Sysctl], ListMap(("name",))] | None = Field(
        default=None, max_length=len(_SYSCTLS), description="Kernel parameters of the pod."
    )


class ContainerSecurityContext(_SecurityContext):
    """Security settings of the container. They override the security settings of the pod."""

    NOT_HERE: ClassVar[Mapping[str, str]] = {
        "privileged": f"{_FORBIDS}: devices are claimed, and RDMA needs no more than capabilities.add: [IPC_LOCK]",
        "procMount": _FORBIDS,
        "windowsOptions": _NO_WINDOWS,
        **dict.fromkeys(("fsGroup", "fsGroupChangePolicy", "supplementalGroups", "sysctls"), _OF_THE_POD),
    }

    allow_privilege_escalation: bool | None = Field(
        default=None,
        description="Whether a process can gain more privileges than its parent process. Defaults to false.",
    )
    read_only_root_filesystem: bool | None = Field(
        default=None, description="Whether the root file system is read-only. Defaults to false."
    )
    capabilities: Capabilities | None = Field(
        default=None,
        description="Linux capabilities. A pod that claims a network device always has IPC_LOCK. If unset, there are "
        "no other capabilities.",
    )


NOT_IN_A_POD: Mapping[str, str] = {
    **dict.fromkeys(("hostNetwork", "hostPID", "hostIPC"), _FORBIDS),
    "automountServiceAccountToken": "Engines have no access to the Kubernetes API",
}
"""Hints for security fields outside of securityContext."""

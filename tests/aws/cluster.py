# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A real control plane that the double of AWS serves as an EKS cluster.

    with EksControlPlane(programs, folder, aws, "modelplane-system-west-eks-03b8e") as west:
        ...  # provision the cluster of that name; its endpoint and authority are those of `west`

Its API server asks the double about bearer tokens, as that of EKS asks AWS, so a token gets in that the creator of the
cluster (or a principal with an access entry) makes. `join_nodes` brings in the nodes that the node groups have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ansible_collections.modelplane.fleet.tests.kube.control_plane import WORKLOAD, ControlPlane, Etcd
from ansible_collections.modelplane.fleet.tests.kube.processes import Process

from .double import REGION, AwsDouble

_EFFECTS = {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute", "PREFER_NO_SCHEDULE": "PreferNoSchedule"}


class EksControlPlane(ControlPlane):
    """`cluster` is the name of the EKS cluster; it need not be made yet."""

    def __init__(
        self,
        programs: Mapping[str, Path],
        folder: Path,
        aws: AwsDouble,
        cluster: str,
        *,
        region: str = REGION,
        etcd: Etcd | None = None,
        components: Sequence[str] = WORKLOAD,
    ) -> None:
        # The name of an authority has at most 64 characters, of which it takes some itself.
        super().__init__(programs, cluster[:48].rstrip("-"), folder, etcd=etcd, components=components)
        self.cluster = cluster
        self.authority = self._authority.certificate.decode()
        self._aws = aws
        self._region = region
        self._joined: set[str] = set()
        self._webhook = folder / "token-webhook.json"
        self._webhook.write_text(aws.authenticator(cluster), encoding="utf-8")
        aws.serve_cluster(cluster, self.server, self.authority)

    def _run(self, name: str, *arguments: str, environment: Mapping[str, str] | None = None) -> Process:
        if name == "kube-apiserver":
            # Answers are kept for two minutes by default, and a test may change who gets in.
            arguments = (
                *arguments,
                f"--authentication-token-webhook-config-file={self._webhook}",
                "--authentication-token-webhook-version=v1",
                "--authentication-token-webhook-cache-ttl=0s",
            )
        return super()._run(name, *arguments, environment=environment)

    def join_nodes(self) -> list[str]:
        """Make the nodes of the node groups that are ACTIVE and have not joined yet; their names."""
        eks = self._aws.client("eks", self._region)
        names = []
        for group in eks.list_nodegroups(clusterName=self.cluster)["nodegroups"]:
            seen = eks.describe_nodegroup(clusterName=self.cluster, nodegroupName=group)["nodegroup"]
            if seen["status"] != "ACTIVE" or group in self._joined:
                continue
            self._joined.add(group)
            taints = [{**taint, "effect": _EFFECTS[taint["effect"]]} for taint in seen.get("taints", [])]
            labels = {"eks.amazonaws.com/nodegroup": group, **seen.get("labels", {})}
            count = seen["scalingConfig"]["desiredSize"]
            if count:
                names += self.add_nodes(group, count, labels=labels, taints=taints)
        return names

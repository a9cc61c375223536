# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Pod identity associations of an EKS cluster: which role the pods of a service account have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.aws import tags as aws_tags
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.eks import ABSENT, IN_USE, with_role
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError, guarded, is_code
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.parts import Parts

Place = tuple[str, str]
"""Namespace and name of a service account; a cluster has one association for each."""


class PodIdentities(Parts):
    """The associations of a cluster."""

    def places(self) -> dict[Place, str]:
        """The ids of all associations of the cluster. In check mode a cluster that is still to be made has none."""
        found = self._all("pod identity associations", "list_pod_identity_associations", "associations")
        return {(entry["namespace"], entry["serviceAccount"]): entry["associationId"] for entry in found}

    def bring(self, wanted: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The associations as wanted (`namespace`, `service_account`, `role_arn`), as EKS describes them.

        Raises AwsError, also for one that is not ours and has another role."""
        there = self.places()
        found = []
        for entry in wanted:
            place, role = (entry["namespace"], entry["service_account"]), entry["role_arn"]
            live = self._describe(there[place], place) if place in there else None
            found.append(self._create(place, role) if live is None else self._updated(live, place, role))
        return found

    def remove(self, places: Iterable[Place], *, only_ours: bool = True) -> list[str]:
        """Remove associations; `namespace/service account` of those that were there.

        One that is not ours is passed over with `only_ours`, and else refused with an AwsError."""
        there = self.places()
        removed = []
        for place in sorted(set(places) & set(there)):
            live = self._describe(there[place], place)
            refused = self._refused(live, place) if live is not None else ""
            if live is None or (refused and only_ours):
                continue
            if refused:
                raise AwsError(refused)
            if self._delete(there[place], place, live):
                removed.append("/".join(place))
        return removed

    def _refused(self, live: Mapping[str, Any], place: Place) -> str:
        return aws_tags.refusal(self._named(place), live.get("tags") or {}, self._tags)

    def _named(self, place: Place) -> str:
        return f"pod identity association of {'/'.join(place)} in cluster {self._cluster}"

    def _describe(self, identity: str, place: Place) -> dict[str, Any] | None:
        try:
            with guarded(f"read the {self._named(place)}"):
                found: dict[str, Any] = self._eks.describe_pod_identity_association(
                    clusterName=self._cluster, associationId=identity
                )["association"]
        except AwsError as error:
            if not is_code(error, ABSENT):
                raise
            return None
        return found

    def _create(self, place: Place, role: str) -> dict[str, Any]:
        """The new association, or the one that another run made in the meantime."""
        namespace, account = place
        made = {"clusterName": self._cluster, "namespace": namespace, "serviceAccount": account, "roleArn": role}
        if not self._changes.check_mode:
            try:
                answer = with_role(
                    f"create the {self._named(place)}",
                    lambda: self._eks.create_pod_identity_association(**made, tags=self._tags),
                    **self._wait,
                )
            except AwsError as error:
                identity = self.places().get(place) if is_code(error, IN_USE) else None
                twin = self._describe(identity, place) if identity else None
                if twin is None:
                    raise
                return self._updated(twin, place, role)
            made = answer["association"]
        self._changes.tell("/".join(place), None, {"role_arn": role, "tags": self._tags})
        return {"associationId": "", **made}

    def _updated(self, live: dict[str, Any], place: Place, role: str) -> dict[str, Any]:
        identity, name, have = live["associationId"], "/".join(place), live.get("tags") or {}
        refused = self._refused(live, place)
        if refused:
            if live["roleArn"] != role:
                raise AwsError(refused)
            return live
        if live["roleArn"] != role:
            before = live["roleArn"]
            if not self._changes.check_mode:
                live = with_role(
                    f"give another role to the {self._named(place)}",
                    lambda: self._eks.update_pod_identity_association(
                        clusterName=self._cluster, associationId=identity, roleArn=role
                    ),
                    **self._wait,
                )["association"]
            self._changes.tell(name, {"role_arn": before}, {"role_arn": role})
        after = self._bring_tags(name, f"the {self._named(place)}", live["associationArn"], have)
        return {**live, "roleArn": role, "tags": after}

    def _delete(self, identity: str, place: Place, live: Mapping[str, Any]) -> bool:
        """Whether it was there to be deleted."""
        if not self._changes.check_mode:
            try:
                with guarded(f"delete the {self._named(place)}"):
                    self._eks.delete_pod_identity_association(clusterName=self._cluster, associationId=identity)
            except AwsError as error:
                if not is_code(error, ABSENT):
                    raise
                return False
        self._changes.tell("/".join(place), {"role_arn": live["roleArn"]}, None)
        return True

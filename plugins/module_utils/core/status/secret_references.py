# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""References of resources to Secrets, and missing Secrets with the command that creates each Secret.

Fields with names of Secrets:

- ModelCache: `spec.huggingFace.authSecret`, on the control cluster
- ModelEndpoint: `spec.credential.apiKey.secretRef`, on the control cluster
- InferenceGateway: `spec.tls.certificateRefs` and `spec.listeners[].tls.certificateRefs`, on the control cluster
- ModelDeployment and ModelReplica: `imagePullSecrets` and `env[].valueFrom.secretKeyRef` of pods, on the clusters of
  replicas
- Gateway of the serving stack: `spec.listeners[].tls.certificateRefs`, on its inference cluster
- variable `serving_stack_image_pull_secrets`, on the inference cluster, in all namespaces of the serving stack

Only `check` covers the last two fields, because other runs do not read the variables of the serving stack.

Other references are checked where they are used: the kubeconfig of an InferenceCluster when a run connects to it, and
selectors of API keys when a gateway is planned. A run is not permitted to read certificates of an InferenceGateway in
namespaces other than modelplane-system, and `identitySecretRef` is not used.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

from .. import api, names
from ..api.pod_template import PodTemplate
from ..compose.cache import DEFAULT_TOKEN_KEY
from ..observation import Observed
from ..problem import Ref
from ..secrets import without_keys
from ..text import listed

SecretType = Literal["generic", "tls", "docker-registry"]
"""Subcommand of `kubectl create secret`."""
_TLS_KEYS = frozenset({"tls.crt", "tls.key"})


@dataclass(frozen=True)
class SecretReference:
    """Reference of a resource to a Secret.

    cluster: inference cluster with the Secret, empty for the control cluster.
    keys: keys that the Secret needs. Empty if any key is enough.
    user: resource with the reference.
    field: field of the resource that names the Secret.
    """

    cluster: str
    namespace: str
    name: str
    keys: frozenset[str]
    type: SecretType
    user: Ref
    field: str


@dataclass(frozen=True)
class MissingSecret:
    """Secret that does not exist, or lacks keys.

    cluster: inference cluster with the Secret, empty for the control cluster.
    keys: missing keys.
    existing_keys: keys that the Secret has. Empty if the Secret does not exist.
    users: resources that refer to it, with their fields.
    """

    cluster: str
    namespace: str
    name: str
    keys: tuple[str, ...]
    existing_keys: tuple[str, ...]
    type: SecretType
    users: tuple[str, ...]

    @property
    def message(self) -> str:
        """Return a message with the missing Secret or keys, and the resources that need them."""
        state = f"has no key {' and '.join(self.keys)}" if self.existing_keys else "does not exist"
        return f"Secret {self.namespace}/{self.name} {state} on {self.place}, and {listed(self.users)} needs it"

    @property
    def place(self) -> str:
        """Return the cluster in words."""
        return f"cluster {self.cluster}" if self.cluster else "the control cluster"

    @property
    def command(self) -> str:
        """Return the command that creates the Secret from files, or edits an existing Secret."""
        kubectl = f"kubectl -n {shlex.quote(self.namespace)}"
        name = shlex.quote(self.name)
        if self.existing_keys:
            return f"{kubectl} edit secret {name}"
        if self.type == "tls":
            return f"{kubectl} create secret tls {name} --cert=FILE --key=FILE"
        keys = [".dockerconfigjson"] if self.type == "docker-registry" else self.keys
        files = " ".join(f"--from-file={shlex.quote(key)}=FILE" for key in keys)
        return f"{kubectl} create secret {self.type} {name} {files}"

    @property
    def hint(self) -> str:
        """Return the fix."""
        if self.existing_keys:
            return f"Add the key (`{self.command}`), or refer to an existing key: {listed(self.existing_keys)}"
        return f"Create it on {self.place}: `{self.command}`"

    def __str__(self) -> str:
        return f"{self.message}. {self.hint}"


def control_references(resource: api.Resource) -> Iterator[SecretReference]:
    """Yield the references of a resource to Secrets of the control cluster."""
    if isinstance(resource, api.ModelCache):
        secret = resource.spec.hugging_face.auth_secret if resource.spec.hugging_face else None
        if secret:
            keys = frozenset({secret.key or DEFAULT_TOKEN_KEY})
            yield _on_control(resource, resource.namespace, secret.name, keys, "spec.huggingFace.authSecret")
    elif isinstance(resource, api.ModelEndpoint):
        if resource.spec.credential:
            reference = resource.spec.credential.api_key.secret_ref
            field = "spec.credential.apiKey.secretRef"
            yield _on_control(resource, resource.namespace, reference.name, frozenset({reference.key}), field)
    elif isinstance(resource, api.InferenceGateway):
        for certificate in resource.spec.tls.certificate_refs if resource.spec.tls else ():
            field = "spec.tls.certificateRefs"
            yield _on_control(resource, names.SYSTEM_NAMESPACE, certificate.name, _TLS_KEYS, field, "tls")
        for listener in resource.spec.listeners or ():
            for listener_certificate in listener.tls.certificate_refs:
                if listener_certificate.namespace in (None, names.SYSTEM_NAMESPACE):
                    field = "spec.listeners[].tls.certificateRefs"
                    yield _on_control(
                        resource, names.SYSTEM_NAMESPACE, listener_certificate.name, _TLS_KEYS, field, "tls"
                    )


def _on_control(
    user: api.Resource, namespace: str, name: str, keys: frozenset[str], field: str, kind: SecretType = "generic"
) -> SecretReference:
    return SecretReference("", namespace, name, keys, kind, user.ref, field)


def certificate_reference(cluster: str, namespace: str, name: str, gateway: Ref) -> SecretReference:
    """Return the reference of a Gateway to a certificate on its cluster."""
    return SecretReference(cluster, namespace, name, _TLS_KEYS, "tls", gateway, "spec.listeners[].tls.certificateRefs")


def pull_secret(cluster: str, namespace: str, name: str) -> MissingSecret:
    """Return a missing image pull secret of the serving stack."""
    return MissingSecret(cluster, namespace, without_keys(name), (), (), "docker-registry", ())


class _Member(Protocol):
    @property
    def template(self) -> PodTemplate: ...


class _Engine(Protocol):
    @property
    def members(self) -> Iterable[_Member]: ...


def deployment_references(deployment: api.ModelDeployment, cluster: str) -> Iterator[SecretReference]:
    """Yield the Secret references that a ModelDeployment's pods use on a cluster with a replica from the deployment."""
    return _of_pods(deployment.spec.template.spec.engines, deployment.ref, deployment.namespace, cluster)


def replica_references(replica: api.ModelReplica) -> Iterator[SecretReference]:
    """Yield the Secret references of a ModelReplica's pods on its cluster."""
    deployment = replica.labels.get(names.DEPLOYMENT_LABEL)
    user = Ref(api.ModelDeployment.KIND, replica.namespace, deployment) if deployment else replica.ref
    return _of_pods(replica.spec.engines, user, replica.namespace, replica.spec.cluster_name)


def _of_pods(engines: Iterable[_Engine], user: Ref, namespace: str, cluster: str) -> Iterator[SecretReference]:
    location = (cluster, names.workload_namespace(namespace))
    for template in (member.template.spec for engine in engines for member in engine.members):
        for secret in template.image_pull_secrets or ():
            yield SecretReference(*location, secret.name, frozenset(), "docker-registry", user, "imagePullSecrets")
        for volume in template.volumes or ():
            if volume.secret and not volume.secret.optional:
                keys = frozenset(item.key for item in volume.secret.items or ())
                field = f"volume {volume.name}"
                yield SecretReference(*location, volume.secret.secret_name, keys, "generic", user, field)
        for variable in (variable for container in template.containers for variable in container.env or ()):
            reference = variable.value_from.secret_key_ref if variable.value_from else None
            if reference and not reference.optional:
                keys = frozenset({reference.key})
                yield SecretReference(*location, reference.name, keys, "generic", user, f"env {variable.name}")


KnownKeys = Callable[[str, str, str], frozenset[str] | None]  # pylint: disable=unsupported-binary-operation
"""Function that returns the keys with a value of a Secret (cluster, namespace, name): none if the Secret does not
exist, None if that is unknown."""


def missing_secrets(references: Iterable[SecretReference], known: KnownKeys) -> list[MissingSecret]:
    """Return the known missing Secrets, without duplicates, sorted by cluster, namespace, and name."""
    grouped: dict[tuple[str, str, str], list[SecretReference]] = {}
    for reference in references:
        grouped.setdefault((reference.cluster, reference.namespace, reference.name), []).append(reference)
    secrets = (_missing(*key, group, known(*key)) for key, group in sorted(grouped.items()))
    return [secret for secret in secrets if secret is not None]


def observed_keys(observed: Observed) -> KnownKeys:
    """Return a function that returns observed Secret keys."""

    def keys(cluster: str, namespace: str, name: str) -> frozenset[str] | None:
        if not cluster:
            return None if observed.unreachable else observed.secret_keys.get((namespace, name), frozenset())
        state = observed.clusters.get(cluster)
        return None if state is None or state.unreachable else state.secret_keys.get((namespace, name))

    return keys


def _missing(
    cluster: str, namespace: str, name: str, group: Iterable[SecretReference], keys: frozenset[str] | None
) -> MissingSecret | None:
    unmet = [reference for reference in group if keys is not None and (reference.keys - keys or not keys)]
    if not unmet:
        return None
    return MissingSecret(
        cluster,
        namespace,
        # Users might paste an API key instead of a name.
        without_keys(name),
        tuple(sorted({without_keys(key) for reference in unmet for key in reference.keys - (keys or frozenset())})),
        tuple(sorted(keys or ())),
        unmet[0].type,
        tuple(dict.fromkeys(f"{reference.user} ({reference.field})" for reference in unmet)),
    )

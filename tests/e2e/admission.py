# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Objects that the fleet's login on a workload cluster may not write, each for one field, by what is said of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import constants
from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import (
    MANAGED_BY,
    MANAGED_BY_LABEL,
)

Object = dict[str, Any]
FieldPath = str

NAMESPACE: Mapping[str, Any] = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {
        "name": "mp-tried",
        "labels": {MANAGED_BY_LABEL: MANAGED_BY, "resource.kubernetes.io/admin-access": "true"},
    },
}
"""The namespace of some of them, with all that a label of it can allow."""

_ENVOY = "gateway.envoyproxy.io/v1alpha1"
_CERTIFICATES = "cert-manager.io/v1"
_TARGET = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "inference-gateway"}
_POD = {"containers": [{"name": "main", "image": "x"}], "initContainers": [{"name": "first", "image": "x"}]}
_CLOSED = "pods of the fleet may use no namespace"
_CONFINED = "containers of the fleet may not be privileged"
_CAPABLE = "containers of the fleet may add the capabilities"
_PROFILED = "pods and containers of the fleet may not be Unconfined"
_LABELLED = "seLinuxOptions of the fleet may have no user or role"
_TUNED = "pods of the fleet may only have the sysctls"
_APP_ARMOR = "container.apparmor.security.beta.kubernetes.io"
_UNMASKED = {"containers": [{"name": "main", "image": "x", "securityContext": {"procMount": "Unmasked"}}]}


def _thing(
    api_version: str,
    kind: str,
    spec: Mapping[str, Any] | None = None,
    name: str = "tried",
    namespace: str = constants.SYSTEM_NAMESPACE,
    **content: Any,
) -> Object:
    place = {} if kind in ("ClusterIssuer", "Bundle") else {"namespace": namespace}
    metadata = {"name": name, **place, "labels": {MANAGED_BY_LABEL: MANAGED_BY}}
    more = {**content, "spec": spec} if spec else content
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **deepcopy(more)}


def _pods(**more: Any) -> Object:
    return {"metadata": {"labels": {"app": "tried"}}, "spec": {**deepcopy(_POD), **more}}


_WORKLOADS: Mapping[str, Object] = {
    "Deployment": _thing("apps/v1", "Deployment", {"selector": {"matchLabels": {"app": "tried"}}, "template": _pods()}),
    "Job": _thing("batch/v1", "Job", {"template": _pods(restartPolicy="Never")}),
    "LeaderWorkerSet": _thing(
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        {"replicas": 1, "leaderWorkerTemplate": {"size": 2, "leaderTemplate": _pods(), "workerTemplate": _pods()}},
    ),
}
_PODS: Mapping[str, tuple[FieldPath, ...]] = {
    "Deployment": ("spec.template.spec",),
    "Job": ("spec.template.spec",),
    "LeaderWorkerSet": tuple(f"spec.leaderWorkerTemplate.{each}Template.spec" for each in ("leader", "worker")),
}
_OTHERS: Mapping[str, Object] = {
    "Service": _thing("v1", "Service", {"ports": [{"port": 80}]}),
    "Gateway": _thing(
        "gateway.networking.k8s.io/v1",
        "Gateway",
        {"gatewayClassName": "envoy", "listeners": [{"name": "http", "protocol": "HTTP", "port": 80}]},
    ),
    "HTTPRoute": _thing(
        "gateway.networking.k8s.io/v1",
        "HTTPRoute",
        {"parentRefs": [{"name": "inference-gateway", "namespace": constants.SYSTEM_NAMESPACE}]},
        namespace=NAMESPACE["metadata"]["name"],
    ),
    "AIGatewayRoute": _thing(
        "aigateway.envoyproxy.io/v1beta1",
        "AIGatewayRoute",
        {"parentRefs": [{"name": "inference-gateway", "namespace": constants.SYSTEM_NAMESPACE}]},
        namespace=NAMESPACE["metadata"]["name"],
    ),
    "Backend": _thing(_ENVOY, "Backend", {"endpoints": [{"fqdn": {"hostname": "api.example.com", "port": 443}}]}),
    "SecurityPolicy": _thing(
        _ENVOY, "SecurityPolicy", {"targetRefs": [_TARGET], "authorization": {"defaultAction": "Deny"}}
    ),
    "BackendSecurityPolicy": _thing(
        "aigateway.envoyproxy.io/v1beta1",
        "BackendSecurityPolicy",
        {"type": "APIKey", "apiKey": {"secretRef": {"name": "key"}}},
    ),
    "Certificate": _thing(
        _CERTIFICATES, "Certificate", {"secretName": "tried", "commonName": "tried", "issuerRef": {"name": "own"}}
    ),
    "Issuer": _thing(_CERTIFICATES, "Issuer", {"selfSigned": {}}),
    "ClusterIssuer": _thing(
        _CERTIFICATES, "ClusterIssuer", {"ca": {"secretName": "inference-gateway-ca"}}, "inference-gateway-ca"
    ),
    "Bundle": _thing(
        "trust.cert-manager.io/v1alpha1",
        "Bundle",
        {
            "sources": [{"secret": {"name": "cluster-gateway-ca", "key": "ca.crt"}}],
            "target": {
                "configMap": {"key": "ca.crt"},
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": constants.SYSTEM_NAMESPACE}},
            },
        },
        "cluster-gateway-ca",
    ),
    "ResourceClaimTemplate": _thing(
        "resource.k8s.io/v1",
        "ResourceClaimTemplate",
        {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}},
        namespace=NAMESPACE["metadata"]["name"],
    ),
    "EndpointSlice": _thing(
        "discovery.k8s.io/v1", "EndpointSlice", addressType="IPv4", endpoints=[{"addresses": ["192.0.2.1"]}]
    ),
}

ALLOWED: Mapping[str, Object] = {**_WORKLOADS, **_OTHERS}
"""An object of each kind that is limited, which may be written."""

_FIELDS: tuple[tuple[str, FieldPath, Any, str], ...] = (
    ("ResourceClaimTemplate", "spec.spec.devices.requests.0.exactly.adminAccess", True, "may not have adminAccess"),
    ("Service", "spec.externalIPs", ["192.0.2.1"], "may not have externalIPs"),
    ("Gateway", "spec.gatewayClassName", "other", "must be of the class envoy"),
    ("Gateway", "spec.infrastructure", {"labels": {"app": "other"}}, "must be of the class envoy"),
    ("Gateway", "spec.infrastructure", {"annotations": {"inject": "true"}}, "must be of the class envoy"),
    ("Gateway", "metadata.annotations", {"cert-manager.io/cluster-issuer": "corp"}, "annotations for cert-manager"),
    ("HTTPRoute", "spec.parentRefs", [{"name": "front", "namespace": "others"}], "only attach to Gateways in"),
    ("HTTPRoute", "spec.parentRefs", [{"name": "inference-gateway"}], "only attach to Gateways in"),
    ("AIGatewayRoute", "spec.parentRefs", [{"name": "front", "namespace": "others"}], "only attach to Gateways in"),
    ("Backend", "spec.endpoints.0", {"ip": {"address": "192.0.2.1", "port": 80}}, "may only have names of hosts"),
    ("Backend", "spec.endpoints.0", {"unix": {"path": "/var/run/envoy.sock"}}, "may only have names of hosts"),
    ("Backend", "spec.endpoints.0.fqdn.port", 19000, "may only have names of hosts"),
    ("Backend", "spec.endpoints.0.fqdn.hostname", "a.localhost", "may only have names of hosts"),
    ("Backend", "spec", {"type": "DynamicResolver"}, "may only have names of hosts"),
    ("EndpointSlice", "addressType", "FQDN", "must have addresses, not names"),
    (
        "SecurityPolicy",
        "spec.oidc",
        {
            "provider": {"issuer": "https://example.com"},
            "clientID": "a",
            "clientSecret": {"name": "a"},
        },
        "only set apiKeyAuth, authorization and jwt",
    ),
    (
        "SecurityPolicy",
        "spec.extAuth",
        {"http": {"backendRefs": [{"name": "a", "port": 80}]}},
        "only set apiKeyAuth, authorization and jwt",
    ),
    ("BackendSecurityPolicy", "spec.type", "AWSCredentials", "must be of type APIKey or AnthropicAPIKey"),
    ("BackendSecurityPolicy", "spec.credentialOverride", {"fromRequestHeaders": {}}, "must be of type APIKey"),
    ("Certificate", "spec.issuerRef", {"kind": "ClusterIssuer", "name": "corp"}, "must be issued by an Issuer"),
    (
        "Certificate",
        "spec.issuerRef",
        {"group": "awspca.cert-manager.io", "kind": "Issuer", "name": "own"},
        "must be issued by an Issuer",
    ),
    ("Issuer", "spec", {"vault": {"path": "a", "server": "https://v", "auth": {}}}, "must be selfSigned, or have a ca"),
    ("ClusterIssuer", "spec.ca.secretName", "webhook-ca", "must have the ca in the Secret of its name"),
    ("ClusterIssuer", "spec", {"selfSigned": {}}, "must have the ca in the Secret of its name"),
    ("Bundle", "spec.sources.0.secret.name", "other", "must copy ca.crt of the Secret of its name"),
    ("Bundle", "spec.target.namespaceSelector", {"matchLabels": {}}, "must copy ca.crt of the Secret of its name"),
    ("Bundle", "spec.target.secret", {"key": "ca.crt"}, "must copy ca.crt of the Secret of its name"),
    # API servers take these only with other fields, or not at all, where they know the kind.
    ("Deployment", "spec.template.spec", {**_UNMASKED, "hostUsers": False}, _PROFILED),
    ("LeaderWorkerSet", "spec.leaderWorkerTemplate.leaderTemplate.spec", _UNMASKED, _PROFILED),
    *(
        (
            "LeaderWorkerSet",
            f"spec.leaderWorkerTemplate.workerTemplate.spec.{place}securityContext",
            {"windowsOptions": {"hostProcess": True}},
            _PROFILED,
        )
        for place in ("", "containers.0.", "initContainers.0.")
    ),
    *(
        (kind, f"{place}.metadata.annotations", {f"{_APP_ARMOR}/main": "unconfined"}, "unconfined by AppArmor")
        for kind, place in (("Job", "spec.template"), ("LeaderWorkerSet", "spec.leaderWorkerTemplate.leaderTemplate"))
    ),
)
_OF_PODS: tuple[tuple[FieldPath, Any, str], ...] = (
    ("hostNetwork", True, _CLOSED),
    ("hostPID", True, _CLOSED),
    ("hostIPC", True, _CLOSED),
    ("volumes", [{"name": "root", "hostPath": {"path": "/"}}], _CLOSED),
    *((f"{each}.0.securityContext", {"privileged": True}, _CONFINED) for each in ("containers", "initContainers")),
    ("containers.0.ports", [{"containerPort": 80, "hostPort": 80}], _CONFINED),
    ("initContainers.0.securityContext", {"capabilities": {"add": ["SYS_ADMIN"]}}, _CAPABLE),
    *(
        (f"{place}securityContext", context, message)
        for place in ("", "containers.0.", "initContainers.0.")
        for context, message in (
            ({"seccompProfile": {"type": "Unconfined"}}, _PROFILED),
            ({"appArmorProfile": {"type": "Unconfined"}}, _PROFILED),
            ({"seLinuxOptions": {"type": "spc_t"}}, _LABELLED),
            ({"seLinuxOptions": {"user": "system_u"}}, _LABELLED),
            ({"seLinuxOptions": {"role": "system_r"}}, _LABELLED),
        )
    ),
    ("securityContext", {"sysctls": [{"name": "net.core.somaxconn", "value": "4096"}]}, _TUNED),
)


def forbidden() -> Iterator[tuple[str, Object, str]]:
    """Yield objects that may not be written: the field, the object, and what its refusal says."""
    for kind, path, value, message in _FIELDS:
        yield f"{kind} {path}: {value}", _with(ALLOWED[kind], path, value), message
    for kind, places in _PODS.items():
        for place in places:
            for path, value, message in _OF_PODS:
                yield f"{kind} {place}.{path}: {value}", _with(ALLOWED[kind], f"{place}.{path}", value), message


def _with(value: Object, path: FieldPath, new: Any) -> Object:
    """The object with another value at a path; numbers count entries of lists."""
    changed = deepcopy(value)
    found: Any = changed
    *keys, last = path.split(".")
    for key in keys:
        found = found[int(key)] if isinstance(found, list) else found[key]
    found[int(last) if isinstance(found, list) else last] = new
    return changed

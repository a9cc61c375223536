# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The CustomResourceDefinitions: structural, in step with the models, and compatible with Modelplane v0.3.1."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api import KINDS
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.base import CHART_VERSION
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.crd import crd
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.pod_template import FIELD_PATH
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.serving_stack import StackVersions
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.shape import fields_of

ROOT = Path(__file__).resolve().parents[6]
FILES = ROOT / "roles" / "control_plane" / "files" / "crds"
UPSTREAM = json.loads((ROOT / "tests" / "data" / "upstream-fields.json").read_text())

_TERMS = {
    "minLength": "minLength",
    "maxLength": "maxLength",
    "enum": "enum",
    "minimum": "min",
    "maximum": "max",
    "minItems": "minItems",
    "maxItems": "maxItems",
    "pattern": "pattern",
    "format": "format",
    "minProperties": "minProperties",
    "maxProperties": "maxProperties",
    "default": "default",
    "x-kubernetes-list-type": "listType",
    "x-kubernetes-list-map-keys": "listMapKeys",
    "type": "type",
}

_DNS_LABEL = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_POOL_NAME = "pool names become values of node labels and names of cloud objects"
_ENGINE_NAME = "engine names become part of workload names"
_TEMPLATE = "no pod can be made of a template without spec"
_ENV = "the rules on variables need a bound to stay within the cost budget"
_ENV_NAME = "Kubernetes rejects variables without a name, and names with '='"
_ENV_FIELD = "Kubernetes rejects other fields of a pod in variables"
_FABRICS = "NVLink domains span nodes too"
_SYSTEM_POOL = "the system pool stands beside eight GPU pools"
_URL = "the rules on it need a bound to stay within the cost budget"
_REWRITE = "HTTPRoutes take at most 1,024 characters, and a path begins with '/'"
_MODES = "what is required depends on the mode"
_ORIGIN = "an endpoint may have an origin in its place"
_ENTRIES = "names are compared with each other, which needs a bound to stay within the cost budget"
_CONDITIONS = "conditions are distinguished by their type, as Kubernetes' API conventions say"

_VERSION = "versions of charts become arguments of Helm"
_VERSIONS = (
    ("InferenceGateway", "spec.traefik.version"),
    *(("ServingStack", f"spec.versions.{field.wire}") for field in fields_of(StackVersions).values()),
)

# (kind, path, term) -> (what ours says, why it is not what Modelplane says)
_PLANNED_DEVICE = "a selector for the planned device follows those of the deployment"
_REQUEST_NAME = "a DeviceRequest of a ResourceClaim has to be named by a DNS label"
DEVIATIONS: dict[tuple[str, str, str], tuple[Any, str]] = {
    **{(kind, path, "pattern"): (CHART_VERSION, _VERSION) for kind, path in _VERSIONS},
    ("InferenceCluster", "spec.nodePools[].name", "pattern"): (_DNS_LABEL, _POOL_NAME),
    ("InferenceCluster", "spec.nodePools[].name", "minLength"): (1, _POOL_NAME),
    ("InferenceCluster", "spec.nodePools[].fabric.type", "enum"): (["None", "EFA", "InfiniBand", "NVLink"], _FABRICS),
    ("InferenceCluster", "status.gpuPools[].devices", "maxItems"): (17, "the fabric of a pool is published beside 16"),
    ("ServingStack", "spec.gateway.listeners[].protocol", "enum"): (["HTTP", "HTTPS", "TCP"], "prompts are private"),
    ("EKSCluster", "spec.nodePools", "maxItems"): (9, _SYSTEM_POOL),
    ("GKECluster", "spec.nodePools", "maxItems"): (9, _SYSTEM_POOL),
    ("InferenceGateway", "spec.backend", "required"): (False, _MODES),
    ("ModelEndpoint", "spec.url", "maxLength"): (2048, _URL),
    ("ModelEndpoint", "spec.url", "required"): (False, _ORIGIN),
    ("ModelEndpoint", "spec.rewritePath", "maxLength"): (1024, _REWRITE),
    ("ModelEndpoint", "spec.rewritePath", "pattern"): ('^/[!"$->@-~]*$', _REWRITE),
    ("ModelService", "spec.endpoints", "maxItems"): (64, _ENTRIES),
    ("EKSCluster", "spec.nodePools[].name", "pattern"): (_DNS_LABEL, _POOL_NAME),
    ("GKECluster", "spec.nodePools[].name", "pattern"): (_DNS_LABEL, _POOL_NAME),
    ("ModelDeployment", "spec.replicas", "min"): (0, "a deployment can be scaled to zero"),
    ("ModelDeployment", "spec.replicas", "max"): (1000, "fleets are larger than ten clusters"),
    ("ModelDeployment", "spec.replicas", "default"): (1, "what an autoscaler sets is left out of manifests"),
    ("ModelDeployment", "spec.replicas", "required"): (False, "what an autoscaler sets is left out of manifests"),
    ("ModelDeployment", "spec.template.spec.engines[].name", "pattern"): (_DNS_LABEL, _ENGINE_NAME),
    ("ModelReplica", "spec.engines[].name", "pattern"): (_DNS_LABEL, _ENGINE_NAME),
    (
        "ModelDeployment",
        "spec.template.spec.engines[].members[].nodeSelector.devices[].name",
        "pattern",
    ): (_DNS_LABEL, _REQUEST_NAME),
    ("ModelReplica", "spec.engines[].members[].deviceRequests[].name", "pattern"): (_DNS_LABEL, _REQUEST_NAME),
    ("ModelReplica", "spec.engines[].members[].deviceRequests[].selectors", "maxItems"): (9, _PLANNED_DEVICE),
    **{
        (kind, f"{prefix}.members[].template.spec{path}", term): (value, reason)
        for kind, prefix in (("ModelDeployment", "spec.template.spec.engines[]"), ("ModelReplica", "spec.engines[]"))
        for path, term, value, reason in (
            ("", "required", True, _TEMPLATE),
            (".containers[].env", "maxItems", 256, _ENV),
            (".containers[].env[].name", "minLength", 1, _ENV_NAME),
            (".containers[].env[].name", "pattern", "^[ -<>-~]+$", _ENV_NAME),
            (".containers[].env[].valueFrom.fieldRef.fieldPath", "pattern", FIELD_PATH, _ENV_FIELD),
        )
    },
    **{
        (kind, "status.conditions", term): (value, _CONDITIONS)
        for kind in ("InferenceClass", "ModelService", "ModelEndpoint", "ModelCache")
        for term, value in (("listType", "map"), ("listMapKeys", ["type"]))
    },
}

# Patterns of paths that Modelplane's own schemas do not have -> why ours do
ADDITIONS = {
    r"ModelDeployment spec\.(spread|clusterPreferences|minAvailable|preemption)(\W.*)?": "order of clusters",
    r"ModelDeployment spec\.rollout(\..*)?": "replicas are replaced a few at a time",
    r"ModelDeployment status\.replicas\.(updated|leaving)": "both revisions of a rollout, and replicas that leave",
    r"ModelDeployment status\.selector": "autoscalers (HorizontalPodAutoscaler) refuse a scale without a selector",
    r"\w+ (apiVersion|kind|metadata|)": "the root, which the list of Modelplane's fields leaves out",
    r"\w+ spec\.crossplane": "Crossplane adds it to every kind",
    r"\w+ status\.conditions(\[\](\.\w+)?)?": "Crossplane adds them to every kind; here their fields are declared too",
    r"InferenceCluster spec\.cluster\.gke\.project": "the project may differ from that of the credentials",
    r"GKECluster spec\.project": "the project may differ from that of the credentials",
    r"EKSCluster spec\.networking\.zones(\[\])?": "GPUs are bought in a zone, and EKS takes no subnets in some",
    r"(EKSCluster spec|InferenceCluster spec\.cluster\.eks)\.(logging|encryptionConfig)(\..*)?": "audits ask for both",
    r"EKSCluster spec\.nodePools\[\]\.capacityType": "machines are bought in several ways",
    r"InferenceCluster spec\.nodePools\[\]\.eks(\..*)?": "machines are bought in several ways",
    r"InferenceCluster spec\.nodePools\[\]\.gke(\..*)?": "machines are bought, placed and connected in several ways",
    r"GKECluster spec\.nodePools\[\]\.(spot|flexStart|maxRunDuration|reservationAffinity|upgradeSettings"
    r"|shieldedInstanceConfig|placementPolicy|gvnic|gpuDriverVersion|acceleratorNetworkProfile"
    r"|additionalNodeNetworkConfigs)(\W.*)?": ("machines are bought, placed and connected in several ways"),
    r"(InferenceCluster spec\.cluster\.gke|GKECluster spec)\.(privateNodes|cloudNat|masterAuthorizedNetworks"
    r"|nodeServiceAccount|databaseEncryption|datapathProvider)(\W.*)?": "clusters are hardened",
    r"InferenceCluster status\.gateway\.internalAddress": "gateways in mode Path have another one",
    r"InferenceCluster status\.gpuPools\[\]\.observedNodes": "what is there, besides what the pool may grow to",
    r"InferenceCluster spec\.nodePools\[\]\.fabric\.name": "pools may share a fabric that is no InfiniBand network",
    r"InferenceCluster status\.gpuPools\[\]\.fabric(\.\w+)?": "the scheduler asks which pools share a fabric",
    r"Model(Deployment|Replica) (spec\.template\.)?spec\.serving\.(picker|sidecar)(\..*)?": "not only for vLLM",
    r"ModelReplica spec\.engines\[\]\.members\[\]\.nodePools(\[\](\.\w+)?)?": "a gang may span pools of one fabric",
    r"Model(Deployment|Replica) .*\.(constraints|deviceConstraints)(\[\].*)?": "claims have constraints",
    r"InferenceClass spec\.pricing(\W.*)?": "plans say what they cost",
    r"ModelDeployment spec\.cost(\..*)?": "plans say what they cost",
    r"ModelReplica spec\.engines\[\]\.members\[\]\.plannedNodes(\.\w+(\[\])?)?": "pods share nodes as planned",
    r"ModelReplica spec\.engines\[\]\.members\[\]\.deviceRequests\[\]\.device": "claims accept one kind of device",
    r"ModelReplica spec\.engines\[\]\.members\[\]\.deviceRequests\[\]\.guarded": "claims skip devices",
    r"ModelDeployment spec\.template\.spec\.model(\..*)?": "weights are compared with the memory of devices",
    r"Model(Deployment|Replica) (spec\.template\.)?spec\.modelCacheRef\.readOnly": "modules are written elsewhere",
    r"ModelReplica spec\.claimNames": "names of claims have a digest",
    r"ModelReplica spec\.modelCacheRef\.layout": "engine pods depend on it",
    r"ModelReplica spec\.modelCacheRef\.(volume|previous(\.\w+)?)": "an edit of a cache gets a volume of its own",
    r"ModelCache spec\.huggingFace\.(include|exclude)(\[\])?": "repositories hold several formats and quantisations",
    r"ModelCache spec\.huggingFace\.(env|caBundle)(\W.*)?": "clusters reach the hub by proxies and mirrors",
    r"ModelCache spec\.huggingFace\.layout": "engines may name a cached repository",
    r"ModelCache status\.clusters\[\]\.artifact": "a phase holds only for what was staged",
    r"ModelService spec\.endpoints\[\]\.(name|priority)": "failover",
    r"ModelService spec\.survive(\..*)?": "a plan knows what a loss of a cluster leaves",
    r"InferenceGateway spec\.listeners(\[\].*)?": "listeners for HTTPS",
    r"ServingStack spec\.gateway\.listeners\[\]\.(hostname|tls(\..*)?)": "listeners for HTTPS",
    r"InferenceGateway spec\.(mode|clusterName|tls|auth|failover|serviceSelector)(\W.*)?": "gateways in mode Model",
    r"InferenceGateway status\.(endpoints|clientCACertificate)(\..*)?": "gateways in mode Model",
    r"ModelService (spec\.timeouts|status\.(model|routes))(\..*)?": "gateways in mode Model",
    r"ModelEndpoint spec\.(origin|api|model)(\..*)?": "gateways in mode Model",
    r"InferenceCluster spec\.placement(\..*)?": "services select endpoints by region",
    r"InferenceCluster status\.gateway\.(hostname|caCertificate)": "gateways in mode Model",
    r"ModelRoute .*": "gateways in mode Model",
    r"CallerPolicy .*": "who may call what, and how much",
    r"InferenceCluster status\.gateway\.url": "gateways may take HTTPS alone",
    r"ModelEndpoint spec\.(credential|tls)(\..*)?": "providers ask for keys and sign with certificates",
    r"Model(Deployment|Replica) .*\.containers\[\]\.resources(\..*)?": "pods may ask for cpu, memory and disk",
    r"Model(Deployment|Replica) .*\.containers\[\]\.lifecycle(\..*)?": "streams outlast what pods may take to stop",
    r"Model(Deployment|Replica) .*\.template\.spec\.terminationGracePeriodSeconds": "the same",
    r"Model(Deployment|Replica) .*\.containers\[\]\.(liveness|readiness|startup)Probe(\..*)?": "engines differ",
    r"Model(Deployment|Replica) .*\bengines\[\]\.(startupMinutes|stall(\..*)?)": "engines hang, and load for long",
    r"Model(Deployment|Replica) .*\bengines\[\]\.(port|healthPath)": "servers listen and report health elsewhere",
    r"Model(Deployment|Replica) .*\btemplate\.spec\.(serviceAccountName|volumes)(\W.*)?": "files and cloud identities",
    r"Model(Deployment|Replica) .*\bcontainers\[\]\.volumeMounts(\W.*)?": "files and cloud identities",
    r"Model(Deployment|Replica) .*\.securityContext(\W.*)?": "images that need a user, a group or a capability",
}


def schema_of(kind: str) -> dict[str, Any]:
    (version,) = crd(KINDS[kind])["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


def nodes(schema: dict[str, Any], path: str = "", required: bool = True) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Every node of a schema: path, node, whether it is required in its parent."""
    yield path, schema, required
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}" if path else name, name in schema.get("required", ()))
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]", False)
    if "additionalProperties" in schema:
        yield from nodes(schema["additionalProperties"], f"{path}.*", False)


def test_files_hold_what_is_made(kind: str) -> None:
    model = KINDS[kind]
    written = yaml.safe_load((FILES / f"{model.PLURAL}.{model.GROUP}.yaml").read_text())
    assert written == crd(model)


def test_schemas_are_structural(kind: str) -> None:
    for path, node, _required in nodes(schema_of(kind)):
        if node.get("x-kubernetes-int-or-string"):
            assert "type" not in node
        else:
            assert node["type"] in ("string", "integer", "boolean", "array", "object"), path
        assert "$ref" not in node
        assert not {"properties", "additionalProperties"} <= node.keys(), path
        assert ("items" in node) == (node.get("type") == "array"), path
        assert set(node.get("required", ())) <= node.get("properties", {}).keys(), path
        if node.get("x-kubernetes-list-type") == "map":
            item = node["items"]
            for key in node["x-kubernetes-list-map-keys"]:
                assert key in item["required"] or "default" in item["properties"][key], path
        if node.get("x-kubernetes-preserve-unknown-fields"):
            assert path == "spec.crossplane" or path.endswith("serving.picker.config")
        # What is known of a free-form mapping is described with the mapping.
        free = path.rpartition(".")[0].endswith(".config")
        if path.startswith(("spec", "status")) and not path.endswith(("[]", ".*")) and not free:
            assert node["description"], path


def test_defaults_are_valid(kind: str) -> None:
    count = 0
    for path, node, _required in nodes(schema_of(kind)):
        if "default" not in node:
            continue
        count += 1
        default = node["default"]
        desired = {"string": str, "integer": int, "boolean": bool, "array": list}[node["type"]]
        assert type(default) is desired, path
        assert default in node.get("enum", [default]), path
        if isinstance(default, int):
            assert node.get("minimum", default) <= default <= node.get("maximum", default), path
        if isinstance(default, str):
            assert node.get("minLength", 0) <= len(default) <= node.get("maxLength", len(default)), path
            assert re.search(node.get("pattern", ""), default), path
        if isinstance(default, list):
            assert node.get("minItems", 0) <= len(default) <= node.get("maxItems", len(default)), path
    assert count > 0 or kind == "InferenceGateway"


def test_conditions_of_every_kind(kind: str) -> None:
    conditions = schema_of(kind)["properties"]["status"]["properties"]["conditions"]
    assert conditions["items"]["required"] == ["type", "status"]


def test_same_fields_as_modelplane() -> None:
    used = set()
    for kind in KINDS:
        ours = {path: (node, required) for path, node, required in nodes(schema_of(kind))}
        for row in UPSTREAM.get(kind, ()):
            path = row["path"]
            assert path in ours, f"{kind} {path} is missing"
            node, required = ours[path]
            own = {"required": required, **{term: node[key] for key, term in _TERMS.items() if key in node}}
            for term in sorted({*own, *row} - {"path"}):
                if own.get(term) == row.get(term):
                    continue
                assert (kind, path, term) in DEVIATIONS, f"{kind} {path} {term}: {own.get(term)}, not {row.get(term)}"
                assert DEVIATIONS[kind, path, term][0] == own.get(term)
                used.add((kind, path, term))
    assert used == DEVIATIONS.keys(), "deviations that are none"


def test_no_other_fields_than_modelplane() -> None:
    used = set()
    for kind in KINDS:
        theirs = {row["path"] for row in UPSTREAM.get(kind, ())}
        for path, _node, _required in nodes(schema_of(kind)):
            if path in theirs:
                continue
            matching = [pattern for pattern in ADDITIONS if re.fullmatch(pattern, f"{kind} {path}")]
            assert matching, f"{kind} {path} is no field of Modelplane"
            used.update(matching)
    assert used == ADDITIONS.keys(), "additions that are none"


@pytest.mark.parametrize(
    ("kind_name", "scope", "short", "columns"),
    [
        ("InferenceGateway", "Cluster", "ig", ["GATEWAY .spec.backend", "ADDRESS .status.address"]),
        ("InferenceClass", "Cluster", "icl", []),
        ("InferenceCluster", "Cluster", "ic", ["SOURCE .spec.cluster.source", "GATEWAY .status.gateway.address"]),
        ("ModelDeployment", "Namespaced", "md", ["REPLICAS .status.replicas.ready"]),
        ("ModelReplica", "Namespaced", "mr", ["CLUSTER .spec.clusterName"]),
        ("ModelService", "Namespaced", "ms", ["ADDRESS .status.address"]),
        ("ModelEndpoint", "Namespaced", "me", ["URL .spec.url", "ORIGIN .spec.origin"]),
        ("ModelRoute", "Namespaced", "mrt", ["GATEWAY .spec.gatewayName", "SERVICE .spec.serviceName"]),
        ("CallerPolicy", "Namespaced", "cp", []),
        ("ModelCache", "Namespaced", "mc", ["SOURCE .spec.huggingFace.repo", "READY .status.summary.ready"]),
        ("ServingStack", "Namespaced", "ss", ["GATEWAY .status.gateway.address"]),
        ("EKSCluster", "Namespaced", "eks", ["REGION .spec.region"]),
        ("GKECluster", "Namespaced", "gke", ["REGION .spec.region"]),
    ],
)
def test_names_and_columns(kind_name: str, scope: str, short: str, columns: list[str]) -> None:
    spec = crd(KINDS[kind_name])["spec"]
    assert spec["scope"] == scope
    assert spec["names"]["shortNames"] == [short]
    assert spec["names"]["categories"] == ["modelplane"]
    (version,) = spec["versions"]
    written = version["additionalPrinterColumns"]
    assert set(columns) <= {f"{column['name']} {column['jsonPath']}" for column in written}
    names = [column["name"] for column in written]
    assert len(set(names)) == len(names)
    assert {"READY", "AGE"} <= set(names)
    paths = {path for path, _node, _required in nodes(version["schema"]["openAPIV3Schema"])}
    for column in written:
        plain = column["jsonPath"].removeprefix(".").split("[?")[0]
        assert plain in paths or plain.startswith("metadata."), f"{column} leads nowhere"


def test_only_deployments_can_be_scaled() -> None:
    scale = {kind: crd(KINDS[kind])["spec"]["versions"][0]["subresources"].get("scale") for kind in KINDS}
    assert scale.pop("ModelDeployment") == {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas.total",
        "labelSelectorPath": ".status.selector",
    }
    assert set(scale.values()) == {None}


def test_rules_on_changes_name_the_field_so_that_it_is_compared_before_an_api_server_does() -> None:
    found = 0
    for kind in KINDS.values():
        spec = fields_of(kind)["spec"].shape.model
        assert spec is not None
        fixed = [rule for rule in spec.RULES if rule.fixed]
        assert all("oldSelf" in rule.cel and rule.fixed in fields_of(spec) and rule.hint for rule in fixed)
        assert len(re.findall(r'"rule": "[^"]*oldSelf', json.dumps(crd(kind)))) == len(fixed)
        found += len(fixed)
    assert found

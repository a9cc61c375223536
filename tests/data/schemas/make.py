# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Makes the schemas beside this file from the CustomResourceDefinitions that the projects publish as Go modules.

    .venv/bin/python tests/data/schemas/make.py

Needs Go and the Go module proxy. One file for each kind: where it comes from, its names, and the OpenAPI schema of one
version, as published but for descriptions. All of these projects are under the Apache License 2.0.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
GATEWAY_API = ("sigs.k8s.io/gateway-api", "v1.5.1", "config/crd/standard")
INFERENCE_EXTENSION = ("sigs.k8s.io/gateway-api-inference-extension", "v1.0.1", "config/crd/bases")
LEADER_WORKER_SET = ("sigs.k8s.io/lws", "v0.8.0", "config/crd/bases")
ENVOY_GATEWAY = ("github.com/envoyproxy/gateway", "v1.9.1", "charts/gateway-helm/charts/crds/crds/generated")
CERT_MANAGER = ("github.com/cert-manager/cert-manager", "v1.17.1", "deploy/crds")
TRUST_MANAGER = ("github.com/cert-manager/trust-manager", "v0.25.0", "deploy/crds")
METALLB = ("go.universe.tf/metallb", "v0.14.9", "config/crd/bases")
# Module, file, version of the API.
DESIRED = [
    (GATEWAY_API, "gateway.networking.k8s.io_gatewayclasses.yaml", "v1"),
    (GATEWAY_API, "gateway.networking.k8s.io_gateways.yaml", "v1"),
    (GATEWAY_API, "gateway.networking.k8s.io_httproutes.yaml", "v1"),
    (GATEWAY_API, "gateway.networking.k8s.io_referencegrants.yaml", "v1"),
    (GATEWAY_API, "gateway.networking.k8s.io_referencegrants.yaml", "v1beta1"),
    (GATEWAY_API, "gateway.networking.k8s.io_backendtlspolicies.yaml", "v1"),
    (INFERENCE_EXTENSION, "inference.networking.k8s.io_inferencepools.yaml", "v1"),
    (LEADER_WORKER_SET, "leaderworkerset.x-k8s.io_leaderworkersets.yaml", "v1"),
    (METALLB, "metallb.io_ipaddresspools.yaml", "v1beta1"),
    (ENVOY_GATEWAY, "gateway.envoyproxy.io_backends.yaml", "v1alpha1"),
    (ENVOY_GATEWAY, "gateway.envoyproxy.io_backendtrafficpolicies.yaml", "v1alpha1"),
    (ENVOY_GATEWAY, "gateway.envoyproxy.io_clienttrafficpolicies.yaml", "v1alpha1"),
    (ENVOY_GATEWAY, "gateway.envoyproxy.io_envoypatchpolicies.yaml", "v1alpha1"),
    (ENVOY_GATEWAY, "gateway.envoyproxy.io_envoyproxies.yaml", "v1alpha1"),
    (ENVOY_GATEWAY, "gateway.envoyproxy.io_httproutefilters.yaml", "v1alpha1"),
    (ENVOY_GATEWAY, "gateway.envoyproxy.io_securitypolicies.yaml", "v1alpha1"),
    (CERT_MANAGER, "crd-certificates.yaml", "v1"),
    (CERT_MANAGER, "crd-clusterissuers.yaml", "v1"),
    (CERT_MANAGER, "crd-issuers.yaml", "v1"),
    (TRUST_MANAGER, "trust.cert-manager.io_bundles.yaml", "v1alpha1"),
    (METALLB, "metallb.io_l2advertisements.yaml", "v1beta1"),
]


def folder_of(module: str, version: str) -> Path:
    """The folder with a module, downloaded if need be."""
    with tempfile.TemporaryDirectory() as empty:
        answer = subprocess.run(
            ["go", "mod", "download", "-json", f"{module}@{version}"],
            cwd=empty,
            env={**os.environ, "GOFLAGS": "-mod=mod"},
            check=True,
            capture_output=True,
        )
    return Path(json.loads(answer.stdout)["Dir"])


def without_descriptions(schema: Any, *, names: bool = False) -> Any:
    """A copy of a schema without its texts. `names`: the keys of this mapping are names of fields."""
    if isinstance(schema, list):
        return [without_descriptions(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: without_descriptions(part, names=key == "properties" and not names)
        for key, part in schema.items()
        if names or key != "description"
    }


def main() -> None:
    for (module, module_version, folder), file, version in DESIRED:
        definition = yaml.safe_load((folder_of(module, module_version) / folder / file).read_text(encoding="utf-8"))
        spec = definition["spec"]
        schema = next(each["schema"] for each in spec["versions"] if each["name"] == version)["openAPIV3Schema"]
        made = {
            "source": f"{module} {module_version}, Apache License 2.0",
            "group": spec["group"],
            "version": version,
            "kind": spec["names"]["kind"],
            "plural": spec["names"]["plural"],
            "scope": spec["scope"],
            "schema": without_descriptions(schema),
        }
        path = HERE / f"{spec['group']}_{spec['names']['plural']}_{version}.json"
        path.write_text(json.dumps(made, separators=(",", ":"), sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

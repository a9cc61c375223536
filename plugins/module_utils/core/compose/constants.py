# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Constants of composed objects that several files use: labels, ports, paths, images, gateways."""

from __future__ import annotations

from .. import names

POOL_LABEL = names.POOL_LABEL
SYSTEM_NAMESPACE = names.SYSTEM_NAMESPACE
SERVING_LABEL = "modelplane.ai/serving"
"""On pods that serve the API: Standalone pods and gang leaders, never gang workers."""
WORKLOAD_LABEL = "modelplane.ai/workload"
"""On pods of engines without gangs: the Deployment of their engine."""
LWS_ROLE_LABEL = "modelplane.ai/lws-role"
GANG_LABEL = "modelplane.ai/gang"
"""On pods of a gang that claim devices: the name of its LeaderWorkerSet."""
ENGINE_TYPE_LABEL = "llm-d.ai/engine-type"
"""On pods that serve the API: the type of the engine, for the picker."""
PICKER_LABEL = "modelplane.ai/picker"
"""On pods of pickers: their replica."""
PLANNED_NODE_LABEL = "modelplane.ai/planned-node"
"""On pods that claim devices and share nodes as planned: node pool and number of the planned node."""
LWS_GROUP_LABEL = "leaderworkerset.sigs.k8s.io/group-index"
"""On every pod of a LeaderWorkerSet, set by its controller: the index of its group."""
LWS_NAME_LABEL = "leaderworkerset.sigs.k8s.io/name"
"""On every pod of a LeaderWorkerSet, set by its controller: the name of the LeaderWorkerSet."""
HOSTNAME_LABEL = "kubernetes.io/hostname"
APP_LABEL = "app"
SPEC_HASH_ANNOTATION = "modelplane.ai/spec-hash"
"""On Deployments and LeaderWorkerSets of a replica: hash of the spec that was applied."""

ENGINE_PORT = 8000
"""Port of the engine API, and target port of the InferencePool."""
DECODE_PORT = 8001
"""Port of a Decode engine behind its sidecar, which listens on ENGINE_PORT."""
PICKER_PORT = 9002
PICKER_HEALTH_PORT = 9003
PICKER_METRICS_PORT = 9090
HEALTH_PATH = "/health"

STREAM_GRACE_SECONDS = 240
"""Time that a terminating pod of a replica keeps serving, unless the fleet or a member sets another one."""

ENGINE_CONTAINER = "engine"
CLAIM = "devices"
"""Name of the first claim of a pod that claims devices."""
MODEL_CACHE_PATH = "/mnt/models"
SERVED_NAME_VARIABLE = "MODELPLANE_SERVED_MODEL_NAME"
"""Environment variable of engines: the model name that Model gateways request."""

PICKER_IMAGE = "ghcr.io/llm-d/llm-d-router-endpoint-picker:v0.9.0"
SIDECAR_IMAGE = "ghcr.io/llm-d/llm-d-router-disagg-sidecar:v0.9.0"

HYDRATION_IMAGE = "docker.io/library/python:3.11-slim"
EGRESS_IMAGE = "docker.io/envoyproxy/envoy:distroless-v1.40.0"

CONTROL_GATEWAY = "modelplane"
GATEWAY_GROUP = "gateway.networking.k8s.io"
POOL_GROUP = "inference.networking.k8s.io"
EXPORT_ANNOTATION = "inference.networking.x-k8s.io/export"
EXPORTED_TO = "ClusterSet"
"""Value of the annotation for all clusters that trust each other (proposal 1374 of the Gateway API Inference Extension,
a draft)."""
ENVOY_GROUP = "gateway.envoyproxy.io"
AI_GROUP = "aigateway.envoyproxy.io"
WORKLOAD_GATEWAY = "inference-gateway"
WORKLOAD_GATEWAY_NAMESPACE = SYSTEM_NAMESPACE
MODEL_GATEWAY = WORKLOAD_GATEWAY
"""Gateway of a Model gateway on its cluster. This cluster has no workload gateway of the same name."""
MODEL_GATEWAY_CLASS = "envoy"
"""GatewayClass of the composed Gateways of Model gateways."""
CLUSTER_GATEWAY = "cluster-gateway"
"""Ingress gateway of an inference cluster for Model gateways. It requires their client certificate."""
MODEL_GATEWAY_CA = f"{MODEL_GATEWAY}-ca"
CLUSTER_GATEWAY_CA = f"{CLUSTER_GATEWAY}-ca"
CA_KEY = "ca.crt"
TLS_SECRET = "kubernetes.io/tls"
"""Type of Secrets with a certificate and its key."""
CALLER_HEADER = "x-modelplane-caller"
SUBJECT_HEADER = "x-modelplane-subject"
"""Header with the name of a client with a token, at gateways that accept tokens. Names of clients with API keys are in
`CALLER_HEADER`, so that no token has the name of a key."""
TOKEN_CALLER = "jwt:"
"""Value of `CALLER_HEADER` for clients with tokens. No API key has this name, because entries of Secrets cannot contain
colons."""
SERVICE_HEADER = "x-modelplane-service"
"""Header with the service of a request, behind the cluster gateway of a gateway's own cluster.

The body already contains the model name of the endpoint there."""
ENDPOINT_HEADER = "x-modelplane-endpoint"
"""Header with the endpoint of such a request: the name of its backend."""
MODEL_HEADER = "x-ai-eg-model"
"""Header that the AI gateway writes the model of a request's body into."""
KNOWN_AGAIN_HEADERS = ("x-ai-eg-original-path", "x-ai-eg-internal-req-id")
"""Headers that the AI gateway uses to recognize a request that it has already processed."""
BUDGETS_ANNOTATION = "modelplane.ai/budgets"
"""Annotation of a BackendTrafficPolicy: the budget of each of its rate limits, and the name of its counter (JSON)."""
RATE_LIMIT_SERVICE = "modelplane-rate-limit"
RATE_LIMIT_PORT = "http"
"""Service and port that the fleet uses to query the rate limit service of Envoy Gateway for the usage of budgets."""
EXPOSURE_ANNOTATION = "modelplane.ai/exposed-by"
"""Annotation of the workload gateway: the kind that exposes it, if this is not its Service."""
ENVOY_NAMESPACE = "envoy-gateway-system"
GATEWAY_POD_NAMESPACES = (ENVOY_NAMESPACE, SYSTEM_NAMESPACE)
"""Namespaces of the workload gateway's pods: Envoy Gateway runs them in its own, others in that of the Gateway."""
METRICS_NAMESPACES = ("monitoring",)
"""Namespaces from which the serving stack scrapes metrics."""

STANDALONE = "Standalone"
LEADER = "Leader"
WORKER = "Worker"
DECODE = "Decode"

KEEPALIVE_SECONDS = 60
"""Seconds after which a silent connection is probed. NAT gateways of clouds drop connections that are silent for 350
seconds, and load balancers of Azure after 240."""
KEEPALIVE_INTERVAL_SECONDS = 30
KEEPALIVE_PROBES = 3
TCP_KEEPALIVE = {
    "idleTime": f"{KEEPALIVE_SECONDS}s",
    "interval": f"{KEEPALIVE_INTERVAL_SECONDS}s",
    "probes": KEEPALIVE_PROBES,
}
"""The same in policies of Envoy Gateway. Traefik probes upstream connections every 30 seconds by itself."""
DNS = {"dnsRefreshRate": "5s"}
"""In policies of Envoy Gateway for backends: when names without an address are resolved again, and addresses without a
time to live. Other addresses have the time to live of their records."""

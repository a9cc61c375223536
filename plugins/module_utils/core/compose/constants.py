# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Fixed values of composed objects that more than one file uses: labels, ports, paths, images, gateways."""

from __future__ import annotations

SERVING_LABEL = "modelplane.ai/serving"
"""On pods that answer the API: Standalone pods and gang leaders, never gang workers."""
WORKLOAD_LABEL = "modelplane.ai/workload"
"""On pods of engines that are no gangs: the Deployment of their engine."""
LWS_ROLE_LABEL = "modelplane.ai/lws-role"
GANG_LABEL = "modelplane.ai/gang"
"""On pods of a gang that claim devices: its LeaderWorkerSet."""
ENGINE_TYPE_LABEL = "llm-d.ai/engine-type"
"""On pods that answer the API, for the picker: what engine it is."""
PICKER_LABEL = "modelplane.ai/picker"
"""On pods of pickers: the replica that they are of."""
LWS_GROUP_LABEL = "leaderworkerset.sigs.k8s.io/group-index"
"""Set on every pod of a LeaderWorkerSet by its controller."""
LWS_NAME_LABEL = "leaderworkerset.sigs.k8s.io/name"
"""The same: the name of the LeaderWorkerSet."""
HOSTNAME_LABEL = "kubernetes.io/hostname"
POOL_LABEL = "modelplane.ai/pool"
"""On nodes: the name of the node pool, selected on by every engine pod."""
APP_LABEL = "app"
SPEC_HASH_ANNOTATION = "modelplane.ai/spec-hash"
"""On Deployments and LeaderWorkerSets of a replica: which spec they were applied with."""

ENGINE_PORT = 8000
"""Where a replica answers: the port of the engine API and the target port of the InferencePool."""
DECODE_PORT = 8001
"""Where a Decode engine listens behind its sidecar, which takes over ENGINE_PORT."""
PICKER_PORT = 9002
PICKER_HEALTH_PORT = 9003
PICKER_METRICS_PORT = 9090
HEALTH_PATH = "/health"

STREAM_GRACE_SECONDS = 240
"""How long a pod of a replica that is to go serves on, unless the fleet or a member says another time."""

ENGINE_CONTAINER = "engine"
MODEL_CACHE_PATH = "/mnt/models"

PICKER_IMAGE = "ghcr.io/llm-d/llm-d-router-endpoint-picker:v0.9.0"
SIDECAR_IMAGE = "ghcr.io/llm-d/llm-d-router-disagg-sidecar:v0.9.0"

HYDRATION_IMAGE = "docker.io/library/python:3.11-slim"
EGRESS_IMAGE = "docker.io/envoyproxy/envoy:distroless-v1.40.0"

SYSTEM_NAMESPACE = "modelplane-system"
"""Of the fleet's own objects, on the control cluster and on workload clusters."""
CONTROL_GATEWAY = "modelplane"
GATEWAY_GROUP = "gateway.networking.k8s.io"
POOL_GROUP = "inference.networking.k8s.io"
WORKLOAD_GATEWAY = "inference-gateway"
WORKLOAD_GATEWAY_NAMESPACE = SYSTEM_NAMESPACE
GATEWAY_POD_NAMESPACES = ("envoy-gateway-system", SYSTEM_NAMESPACE)
"""Where the pods of the workload gateway are: Envoy Gateway keeps them in its own namespace, others beside it."""
METRICS_NAMESPACES = ("monitoring",)
"""Where the serving stack has what scrapes metrics."""

STANDALONE = "Standalone"
LEADER = "Leader"
WORKER = "Worker"
DECODE = "Decode"

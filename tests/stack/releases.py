# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The releases of the serving stack and of the control gateway: their charts, where they are, and what they run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Chart -> namespace and values, as the serving stack and the control gateway install them, in this order.
WORKLOAD: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "cert-manager": ("cert-manager", {"crds": {"enabled": True, "keep": False}}),
    "kube-prometheus-stack": (
        "monitoring",
        {
            "fullnameOverride": "prometheus",
            "grafana": {"enabled": False},
            "alertmanager": {"enabled": False},
            "prometheus": {
                "prometheusSpec": {
                    "podMonitorSelectorNilUsesHelmValues": False,
                    "podMonitorNamespaceSelector": {},
                    "additionalScrapeConfigs": [{"job_name": "envoy-gateway-proxy"}],
                }
            },
        },
    ),
    "lws": ("lws-system", {}),
    "ai-gateway-crds-helm": ("envoy-ai-gateway-system", {}),
    "gateway-helm": ("envoy-gateway-system", {"config": {"envoyGateway": {"extensionApis": {"enableBackend": True}}}}),
    "ai-gateway-helm": ("envoy-ai-gateway-system", {}),
    "node-feature-discovery": (
        "node-feature-discovery",
        {"worker": {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]}},
    ),
    "dra-driver-nvidia-gpu": (
        "dra-driver-nvidia-gpu",
        {"gpuResourcesEnabledOverride": True, "resources": {"computeDomains": {"enabled": False}}},
    ),
}
# What a gateway in mode Model needs beside them.
MODEL_GATEWAY: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "trust-manager": (
        "cert-manager",
        {
            "crds": {"enabled": True, "keep": False},
            "app": {"trust": {"namespace": "modelplane-system"}},
            "defaultPackage": {"enabled": False},
        },
    ),
    "valkey": (
        "envoy-gateway-system",
        {
            "auth": {
                "enabled": True,
                "usersExistingSecret": "modelplane-valkey",
                "aclUsers": {"default": {"permissions": "~* &* +@all"}},
            }
        },
    ),
}
CONTROL: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "keda": ("keda", {}),
    "metallb": ("metallb-system", {}),
    "traefik": (
        "traefik-system",
        {
            "providers": {
                "kubernetesGateway": {
                    "enabled": True,
                    "statusAddress": {"service": {"namespace": "traefik-system", "name": "traefik"}},
                },
                "kubernetesIngress": {"enabled": False},
            },
            "service": {"nameOverride": "traefik"},
            "gateway": {"enabled": False},
            "gatewayClass": {"enabled": False},
        },
    ),
}
# What belongs to clusters of EKS.
EKS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "cluster-autoscaler": (
        "kube-system",
        {
            "cloudProvider": "aws",
            "awsRegion": "us-west-2",
            "autoDiscovery": {"clusterName": "east"},
            "rbac": {"serviceAccount": {"name": "cluster-autoscaler"}},
            "extraArgs": {"balance-similar-node-groups": True},
        },
    ),
    "aws-dranet": (
        "kube-system",
        {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]},
    ),
}
ALL = {**WORKLOAD, **MODEL_GATEWAY, **CONTROL, **EKS}
VERSIONS = {
    "cert-manager": "v1.17.1",
    "kube-prometheus-stack": "72.6.2",
    "lws": "v0.8.0",
    "ai-gateway-crds-helm": "v0.7.0",
    "gateway-helm": "v1.8.1",
    "ai-gateway-helm": "v0.7.0",
    "node-feature-discovery": "0.18.3",
    "dra-driver-nvidia-gpu": "0.4.0",
    "trust-manager": "v0.25.0",
    "valkey": "1.0.0",
    "keda": "2.21.1",
    "metallb": "0.14.9",
    "traefik": "40.2.0",
    "cluster-autoscaler": "9.57.0",
    "aws-dranet": "1.0.0",
}
# Chart -> its workloads as release mp-CHART, hooks too.
WORKLOADS = {
    "cert-manager": {
        "Deployment mp-cert-manager",
        "Deployment mp-cert-manager-cainjector",
        "Deployment mp-cert-manager-webhook",
        "Job mp-cert-manager-startupapicheck",
    },
    "kube-prometheus-stack": {
        "DaemonSet mp-kube-prometheus-stack-prometheus-node-exporter",
        "Deployment mp-kube-prometheus-stack-kube-state-metrics",
        "Deployment prometheus-operator",
        "Job prometheus-admission-create",
        "Job prometheus-admission-patch",
    },
    "lws": {"Deployment mp-lws-controller-manager"},
    "ai-gateway-crds-helm": set(),
    "gateway-helm": {"Deployment envoy-gateway", "Job mp-gateway-helm-certgen"},
    "ai-gateway-helm": {"Deployment ai-gateway-controller"},
    "node-feature-discovery": {
        "DaemonSet mp-node-feature-discovery-worker",
        "Deployment mp-node-feature-discovery-gc",
        "Deployment mp-node-feature-discovery-master",
        "Job mp-node-feature-discovery-prune",
    },
    "dra-driver-nvidia-gpu": {"DaemonSet mp-dra-driver-nvidia-gpu-kubelet-plugin"},
    "trust-manager": {"Deployment trust-manager"},
    "valkey": {"Deployment mp-valkey"},
    "keda": {
        "Deployment keda-admission-webhooks",
        "Deployment keda-operator",
        "Deployment keda-operator-metrics-apiserver",
    },
    "metallb": {"DaemonSet mp-metallb-speaker", "Deployment mp-metallb-controller"},
    "traefik": {"Deployment mp-traefik"},
    "cluster-autoscaler": {"Deployment mp-cluster-autoscaler-aws-cluster-autoscaler"},
    "aws-dranet": {"DaemonSet mp-aws-dranet"},
}

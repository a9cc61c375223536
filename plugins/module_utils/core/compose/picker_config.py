# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""EndpointPickerConfig of a replica (llm-d.ai/v1alpha1): prefix cache first, then queue length.

Disaggregated serving requires an explicit producer plugin, `autoTune: false` with a block size, and `nonCachedTokens`
above 0. Without any one of them all requests silently stay on the decode pods.
"""

from __future__ import annotations

from typing import Any

from ..api.model_replica import ModelReplicaSpec
from ..servers import flags
from ..servers.command_line import CommandLine
from . import constants
from .disaggregation import is_disaggregated
from .member import members, serving_member
from .owner import Owner

_DECIDER = "prefix-based-pd-decider"


def picker_config(owner: Owner, spec: ModelReplicaSpec) -> dict[str, Any]:
    """Return the configuration for the spec of a ModelReplica."""
    engine = next((engine for engine in spec.engines if engine.phase == constants.DECODE), spec.engines[0])
    container = serving_member(members(owner, engine)).container
    producer = _cache_producer(flags.block_size(CommandLine.of(container)))
    if is_disaggregated(spec):
        plugins = [producer, *_disaggregated_plugins()]
        profiles = [_profile("prefill", "prefill-filter"), _profile("decode", "decode-filter")]
    else:
        plugins = [producer, *_plugins("prefix-cache-scorer", "queue-scorer", "max-score-picker")]
        profiles = [_profile("default")]
    return {
        "apiVersion": "llm-d.ai/v1alpha1",
        "kind": "EndpointPickerConfig",
        "plugins": plugins,
        "schedulingProfiles": profiles,
    }


def _cache_producer(block_size: int) -> dict[str, Any]:
    """Return the plugin that estimates the content of each pod's KV cache. `block_size`, in tokens, is the engine's."""
    return {
        "type": "approx-prefix-cache-producer",
        "parameters": {
            "autoTune": False,
            "blockSizeTokens": block_size,
            "lruCapacityPerServer": 31250,
        },
    }


def _plugins(*types: str) -> list[dict[str, Any]]:
    return [{"type": plugin_type} for plugin_type in types]


def _disaggregated_plugins() -> list[dict[str, Any]]:
    return [
        *_plugins(
            "prefix-cache-scorer",
            "queue-scorer",
            "prefill-filter",
            "decode-filter",
            "max-score-picker",
        ),
        {"type": _DECIDER, "parameters": {"nonCachedTokens": 16}},
        {"type": "disagg-profile-handler", "parameters": {"deciders": {"prefill": _DECIDER}}},
    ]


def _profile(name: str, *filters: str) -> dict[str, Any]:
    return {
        "name": name,
        "plugins": [
            *({"pluginRef": filter_name} for filter_name in filters),
            {"pluginRef": "max-score-picker"},
            {"pluginRef": "prefix-cache-scorer", "weight": 2},
            {"pluginRef": "queue-scorer", "weight": 1},
        ],
    }

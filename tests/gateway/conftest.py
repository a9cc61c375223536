# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Fixtures of tests with gateways."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.workload_gateway import (
    gateway_objects,
)
from ansible_collections.modelplane.fleet.tests.kube.binaries import UnavailableError
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane
from ansible_collections.modelplane.fleet.tests.kube.processes import wait_for

from . import network, programs
from .clients import (
    ANTHROPIC,
    CALLERS,
    CHOICES,
    DETOURS,
    FLEETS_OWN,
    KEYS,
    OPENAI,
    PROVIDER_KEYS,
    UNKNOWN,
    Clients,
    counters,
    empty_budgets,
)
from .composed import SYSTEM, TEAM, ComposedFleet, engine_service, secret
from .engines import Engine
from .equipment import COMPONENTS, GatewayCluster


@pytest.fixture(scope="module")
def gateway_cluster(
    kubernetes_programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayCluster]:
    """A cluster whose controllers run, without a Gateway. Where it cannot be, what asks for it is skipped."""
    try:
        network.require()
        programs.images()
        programs.chart()
    except UnavailableError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("gateway")
    with (
        ControlPlane(
            kubernetes_programs, "gateway", folder / "cluster", components=COMPONENTS, egress=folder / "egress"
        ) as cluster,
        GatewayCluster(cluster, folder) as running,
    ):
        running.network.proxy(folder / "egress")
        yield running


@pytest.fixture(scope="module")
def engines(gateway_cluster: GatewayCluster) -> dict[str, Engine]:
    """By name; each reports tokens of its own."""
    made = {}
    for name in ("north", "south", "paid", "claude", "own"):
        made[name] = gateway_cluster.engine(name, f"{name}.example")
    made["south"].input_tokens, made["paid"].output_tokens = 11, 3
    return made


@pytest.fixture(scope="module")
def left_out() -> frozenset[str]:
    """Kinds of manifests that tests of a file have resources of their own in place of."""
    return frozenset()


@pytest.fixture(scope="module")
def fleet(
    gateway_cluster: GatewayCluster,
    engines: Mapping[str, Engine],
    left_out: frozenset[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> ComposedFleet:
    """Applied, with the gateway of the cluster, which the fleet does not know yet."""
    made = ComposedFleet(gateway_cluster, tmp_path_factory.mktemp("fleet"))
    made.resources = [each for each in made.resources if each["kind"] not in left_out]
    for name in (SYSTEM, "ml-team", TEAM):
        gateway_cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    selected = {"modelplane.ai/keys": "eu"}
    metadata = {"name": "team-keys", "namespace": SYSTEM, "labels": selected}
    gateway_cluster.apply(secret(metadata, {name: KEYS[name] for name in CALLERS[:3]}))
    metadata = {"name": "more-keys", "namespace": SYSTEM, "labels": selected}
    gateway_cluster.apply(secret(metadata, {name: KEYS[name] for name in CALLERS[3:]}))
    gateway_cluster.apply(secret({"name": "paid-key", "namespace": "ml-team"}, {"token": PROVIDER_KEYS["paid"]}))
    gateway_cluster.apply(secret({"name": "claude-key", "namespace": "ml-team"}, {"apiKey": PROVIDER_KEYS["claude"]}))
    gateway_cluster.apply(engine_service(engines["own"].address))
    gateway_cluster.apply([*gateway_objects(CHOICES)])
    made.know_clients()
    made.install()
    return made


@pytest.fixture(scope="module")
def clients(gateway_cluster: GatewayCluster, fleet: ComposedFleet) -> Clients:
    """Callers, once the gateway routes all models."""
    made = Clients(gateway_cluster.gateway("inference-gateway", SYSTEM))
    # There is no way to the engine of the fleet yet. Until the proxies know keys, they answer 500.
    gateway_cluster.wait_for("keys are known", lambda: set(made.statuses(FLEETS_OWN[0], "alice")) <= UNKNOWN)
    assert {made.ask(model, "alice").status for model in FLEETS_OWN} <= UNKNOWN
    cluster_gateway = gateway_cluster.gateway("cluster-gateway", SYSTEM)
    fleet.know_cluster(cluster_gateway.address)
    fleet.install()
    for model in ("of-alice", "of-bob", "each", "first", "second", "third", "bought", "spill", "spill-two"):
        gateway_cluster.wait_for(f"{model} is refused", lambda m=model: made.everywhere(m, "dave", 403))
    for model in ("chat", "mixed", "spread", "patient", "open", "qwen", "sheltered", "of-alice"):
        gateway_cluster.wait_for(f"{model} answers", lambda m=model: made.everywhere(m, "alice", 200))
    for model in ("each", "together", "first", "second", "third", "bought", "all-bought", "minutely"):
        gateway_cluster.wait_for(f"{model} is limited", lambda m=model: made.everywhere(m, "alice", 200, 429))
    gateway_cluster.wait_for("nowhere is routed", lambda: made.everywhere("nowhere", "alice", 503))
    gateway_cluster.wait_for("claude answers", lambda: made.everywhere("claude", "alice", 200, path=ANTHROPIC))
    for model, policy in DETOURS.items():
        found = f"{model} is counted at the cluster gateway"
        gateway_cluster.wait_for(
            found, lambda m=model, p=policy: at_cluster_gateway(gateway_cluster, made, m, p), seconds=600
        )
    return made


def at_cluster_gateway(gateway_cluster: GatewayCluster, clients: Clients, model: str, policy: str) -> bool:
    """Return whether each proxy of the gateway sends requests to where a policy counts them."""
    path = ANTHROPIC if model == "spill-claude" else OPENAI
    for pod in clients.gateway.pods:
        empty_budgets(gateway_cluster)
        answer = clients.ask(model, "alice", path=path, over=clients.gateway.connection(pod=pod))
        if answer.status != 200:
            return False
        # Tokens are counted after the response.
        try:
            wait_for(f"{policy} has counted", lambda: counters(gateway_cluster, policy), seconds=20)
        except TimeoutError:
            return False
    empty_budgets(gateway_cluster)
    return True


@pytest.fixture
def healthy(engines: Mapping[str, Engine]) -> Iterator[None]:
    yield
    for engine in engines.values():
        engine.answer, engine.hangs, engine.pause = 200, False, 0.0
        engine.released.set()

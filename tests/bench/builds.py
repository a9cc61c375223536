# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Measure what whole runs cost: `builds.py CLUSTERS POOLS DEPLOYMENTS REPLICAS [--plan] [--policies]` writes manifests
of a fleet, and builds it. With `--policies`, its gateway is in mode Model, and each service has a CallerPolicy of
its own with a budget.

The script prints a JSON object: replicas `placed`, `files` of the build folder and its size (`folder`, MiB), and the
`cpu` seconds and peak `memory` (MiB) of each run. Each run is a new process: the `first` build into an empty folder, a
build with `nothing` to do, and a build after the `change` of a deployment. `nothing_uncached` and `change_uncached` run
without the cache of the user, as in a new container. `libyaml` is the cost of parsing the manifests and the state
(ModelReplicas and ModelEndpoints) to events. With `--plan`, the fleet is only planned, in check mode.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / ".collections"))

# Of one file of manifests.
RESOURCES = 1_000
STATE = ("modelreplica-", "modelendpoint-")
NODES = 4
KINDS = (
    ("l4", 1, "23034Mi"),
    ("l40s", 4, "46068Mi"),
    ("a100", 8, "81920Mi"),
    ("h100", 8, "81559Mi"),
    ("h200", 8, "143771Mi"),
)
CLASS = """---
apiVersion: modelplane.ai/v1alpha1
kind: InferenceClass
metadata: {name: NAME}
spec:
  devices:
  - {name: gpu, driver: gpu.nvidia.com, deviceClassName: gpu.nvidia.com, count: COUNT, capacity: {memory: MEMORY}}
"""
GATEWAY = """---
apiVersion: modelplane.ai/v1alpha1
kind: InferenceGateway
metadata: {name: default}
spec: {backend: Traefik, traefik: {version: "40.2.0"}}
"""
MODEL_GATEWAY = """---
apiVersion: modelplane.ai/v1alpha1
kind: InferenceGateway
metadata: {name: models}
spec:
  clusterName: c00000
  auth: {method: APIKey, apiKey: {secretSelector: {matchLabels: {modelplane.ai/keys: models}}}}
"""
CLUSTER = """---
apiVersion: modelplane.ai/v1alpha1
kind: InferenceCluster
metadata: {name: NAME, labels: {region: REGION}}
spec:
  cluster: {source: Existing, existing: {secretRef: {name: NAME}}}
  nodePools:
"""
KNOWN_GATEWAY = """status:
  gateway:
    address: ADDRESS
    hostname: HOSTNAME
    caCertificate: "-----BEGIN CERTIFICATE-----\\nMA5vZiB0aGUgY2x1c3Rlcg==\\n-----END CERTIFICATE-----\\n"
"""
POOL = "  - {name: NAME, className: CLASS, nodeCount: NODES}\n"
MODEL = """---
apiVersion: modelplane.ai/v1alpha1
kind: ModelDeployment
metadata: {name: NAME, namespace: TEAM}
spec:
  replicas: REPLICAS
  template:
    spec:
      engines:
      - name: main
        members:
        - nodeSelector:
            devices:
            - name: gpu
              count: COUNT
              selectors: [{cel: 'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("MEMORY")) >= 0'}]
          template: {spec: {containers: [{name: engine, image: "vllm/vllm-openai:v0.23.0"}]}}
---
apiVersion: modelplane.ai/v1alpha1
kind: ModelService
metadata: {name: NAME, namespace: TEAM, labels: {model: NAME}}
spec:
  endpoints: [{selector: {matchLabels: {modelplane.ai/deployment: NAME}}}]
"""
POLICY = """---
apiVersion: modelplane.ai/v1alpha1
kind: CallerPolicy
metadata: {name: NAME, namespace: TEAM}
spec:
  services: {matchLabels: {model: NAME}}
  callers: [{name: team-of-NAME}]
  budgets: [{name: hourly, unit: Tokens, limit: 100000, per: Hour}]
"""


def filled(template: str, **values: object) -> str:
    for name, value in values.items():
        template = template.replace(name, str(value))
    return template


def cluster(number: int, pools: int, *, policies: bool) -> str:
    from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.mtls import (
        internal_hostname,
    )

    name = f"c{number:05}"
    kinds = (KINDS[pool % len(KINDS)][0] for pool in range(pools))
    below = (filled(POOL, NAME=f"pool-{pool}", CLASS=kind, NODES=NODES) for pool, kind in enumerate(kinds))
    known = (
        filled(KNOWN_GATEWAY, HOSTNAME=internal_hostname(name), ADDRESS=f"10.{number >> 8}.{number & 255}.1")
        if policies
        else ""
    )
    return "".join((filled(CLUSTER, NAME=name, REGION=f"r{number % 20}"), *below, known))


def model(number: int, replicas: int, *, policies: bool) -> str:
    """A deployment that no other one is like, its service, and the policy of that."""
    values = {"NAME": f"m{number:05}", "TEAM": f"team-{number % 20}", "COUNT": 1 + number % 4, "REPLICAS": replicas}
    return filled(MODEL + (POLICY if policies else ""), MEMORY=f"{40_000 + number % 4_000}Mi", **values)


def write(folder: Path, clusters: int, pools: int, deployments: int, replicas: int, *, policies: bool) -> None:
    """Write the manifests of a fleet: classes, a gateway, clusters, and deployments with a service each."""
    folder.mkdir()
    classes = [filled(CLASS, NAME=name, COUNT=count, MEMORY=f"{{value: {memory}}}") for name, count, memory in KINDS]
    (folder / "fleet.yaml").write_text("".join((*classes, MODEL_GATEWAY if policies else GATEWAY)), encoding="utf-8")
    for kind, found in (
        ("clusters", [cluster(number, pools, policies=policies) for number in range(clusters)]),
        ("models", [model(number, replicas // deployments, policies=policies) for number in range(deployments)]),
    ):
        for start in range(0, len(found), RESOURCES):
            text = "".join(found[start : start + RESOURCES])
            (folder / f"{kind}-{start // RESOURCES:03}.yaml").write_text(text, encoding="utf-8")


def change(folder: Path) -> None:
    """Ask for one replica more of one deployment."""
    path = folder / "models-000.yaml"
    before, field, rest = path.read_text(encoding="utf-8").partition("  replicas: ")
    number, line_end, after = rest.partition("\n")
    path.write_text(f"{before}{field}{int(number) + 1}{line_end}{after}", encoding="utf-8")


def run(place: Path, *, check_mode: bool) -> None:
    """Build the fleet in this process, and print what came of it."""
    from ansible_collections.modelplane.fleet.plugins.module_utils.usecases.build import build
    from ansible_collections.modelplane.fleet.plugins.module_utils.usecases.fleet_inputs import Settings

    outcome = build(Settings((str(place / "manifests"),), str(place / "build"), check_mode=check_mode))
    changes = (*outcome.changes.added, *outcome.changes.changed, *outcome.changes.removed)
    print(json.dumps({"placed": len(outcome.plan.replicas), "changes": len(changes)}), flush=True)
    # Taking apart what a process has, before it ends anyway, is no part of a run.
    os._exit(0)


def parse(place: Path) -> None:
    """Parse manifests and state by libyaml."""
    import yaml

    for path in (*(place / "manifests").rglob("*.yaml"), *state(place / "build")):
        for _ in yaml.parse(path.read_bytes(), Loader=yaml.CSafeLoader):
            pass


def state(build: Path) -> Iterator[Path]:
    return (path for path in (build / "control").rglob("*.yaml") if path.name.startswith(STATE))


def measured(step: str, place: Path, cache: str = "cache") -> dict[str, float]:
    """Return the cost of a step in a new process. `cache`: name of the cache folder of the user."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(place / cache)}
    command = [sys.executable, __file__, "--step", step, str(place)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        output = process.stdout.read() if process.stdout else ""
        _, status, spent = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{step} failed")
    found = json.loads(output) if output else {}
    return {**found, "cpu": spent.ru_utime + spent.ru_stime, "memory": spent.ru_maxrss / 1024}


def main(sizes: list[int], *, plan: bool, policies: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="modelplane-bench.") as folder:
        place = Path(folder)
        write(place / "manifests", *sizes, policies=policies)
        found = {"first": measured("plan" if plan else "first", place)}
        if not plan:
            found["nothing"] = measured("nothing", place)
            found["nothing_uncached"] = measured("nothing", place, "nothing-uncached")
            if found["nothing"]["changes"] or found["nothing_uncached"]["changes"]:
                sys.exit("the second build changed something")
            start = measured("start", place)
            found["libyaml"] = measured("libyaml", place)
            found["libyaml"]["cpu"] -= start["cpu"]
            for name, cache in (("change", "cache"), ("change_uncached", "change-uncached")):
                change(place / "manifests")
                found[name] = measured("change", place, cache)
                if not found[name]["changes"]:
                    sys.exit("the build after a change changed nothing")
        files = [path.stat().st_size for path in (place / "build").rglob("*") if path.is_file()]
    print(json.dumps({"files": len(files), "folder": sum(files) / 2**20, **found}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sizes", nargs="+", help="clusters, pools, deployments, replicas; or the folder of a step")
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--policies", action="store_true")
    parser.add_argument("--step", choices=("plan", "first", "nothing", "start", "libyaml", "change"))
    chosen = parser.parse_args()
    if chosen.step == "start":
        import yaml  # noqa: F401
    elif chosen.step == "libyaml":
        parse(Path(*chosen.sizes))
    elif chosen.step:
        run(Path(*chosen.sizes), check_mode=chosen.step == "plan")
    else:
        main([int(number) for number in chosen.sizes], plan=chosen.plan, policies=chosen.policies)

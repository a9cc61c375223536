# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Measure the inventory: seconds to read it from manifests and from its cache, and for the connections of all hosts.

`manifests` and `cache` are the plugin in a process that has Ansible loaded. `variables` is what Ansible takes to give
the variables of every host, which is a part of `connections`, the filter. Run by hand.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FLEETS = (10, 100, 1_000)
COLUMNS = ("manifests", "cache", "variables", "connections")
SOURCES = (
    {"source": "EKS", "eks": {"region": "us-west-2"}},
    {"source": "GKE", "gke": {"region": "us-central1", "project": "my-project"}},
    {"source": "Existing", "existing": {"secretRef": {"name": "kubeconfig"}}},
)


def manifest(number: int) -> dict[str, Any]:
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "InferenceCluster",
        "metadata": {"name": f"cluster-{number:05}", "labels": {"modelplane.ai/region": f"region-{number % 20}"}},
        "spec": {
            "cluster": SOURCES[number % len(SOURCES)],
            "nodePools": [{"name": "gpu", "className": "h100-8x", "nodeCount": 4}],
        },
    }


def seconds(action: Any) -> tuple[float, Any]:
    begin = time.perf_counter()
    found = action()
    return time.perf_counter() - begin, found


def measure(clusters: int, folder: Path) -> dict[str, float]:
    import yaml
    from ansible.inventory.manager import InventoryManager
    from ansible.parsing.dataloader import DataLoader
    from ansible.plugins.loader import init_plugin_loader
    from ansible.vars.hostvars import HostVars
    from ansible.vars.manager import VariableManager

    (folder / "clusters.yaml").write_text(yaml.safe_dump_all(manifest(number) for number in range(clusters)))
    source = folder / "fleet.yml"
    source.write_text("plugin: modelplane.fleet.fleet\nresources: [clusters.yaml]\ncache: true\n")
    init_plugin_loader([])
    # Ansible's own importer has to be there before the first import of a collection.
    from ansible_collections.modelplane.fleet.plugins.filter.connections import connections

    def read(cache: bool) -> Any:
        return InventoryManager(DataLoader(), sources=[str(source)], cache=cache)

    first, _ = seconds(lambda: read(cache=False))
    second, inventory = seconds(lambda: read(cache=True))
    hostvars = HostVars(inventory, VariableManager(DataLoader(), inventory), DataLoader())
    hosts = list(inventory.get_groups_dict()["workload_clusters"])
    variables, _ = seconds(lambda: [hostvars[host] for host in hosts])
    filtered, found = seconds(lambda: connections(hosts, hostvars))
    if len(hosts) != clusters or not found:
        raise SystemExit(f"{len(hosts)} hosts and {len(found)} connections of {clusters} clusters")
    return dict(zip(COLUMNS, (first, second, variables, filtered), strict=True))


def main() -> int:
    print(f"{'clusters':>8}", *(f"{column:>11}" for column in COLUMNS))
    for clusters in FLEETS:
        with tempfile.TemporaryDirectory() as folder:
            environment = {
                **os.environ,
                "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".collections"),
                "ANSIBLE_CACHE_PLUGIN": "jsonfile",
                "ANSIBLE_CACHE_PLUGIN_CONNECTION": f"{folder}/cache",
            }
            command = [sys.executable, __file__, str(clusters), folder]
            run = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        found = json.loads(run.stdout)
        print(f"{clusters:>8,}", *(f"{found[column]:>11.2f}" for column in COLUMNS), flush=True)
    return 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(int(sys.argv[1]), Path(sys.argv[2]))))
    else:
        sys.exit(main())

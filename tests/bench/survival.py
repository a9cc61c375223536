# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Measure what trying losses costs: `survival.py CLUSTERS DEPLOYMENTS` plans a fleet in which every service has to
survive the loss of any cluster.

Printed is one JSON object: seconds of processor time of the `plan` (manifests read before it) and of the `survey`, the
`losses` that it planned, the number of `needs`, how many are `unmet`, and the peak `memory` (MiB).
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / ".collections"))

from ansible_collections.modelplane.fleet.tests.bench.builds import CLASS, CLUSTER, GATEWAY, MODEL, NODES, POOL, filled


def manifests(clusters: int, deployments: int) -> str:
    """A class, a gateway, clusters of 32 GPUs, and deployments of one replica with 1 to 8 GPUs and a service each."""
    pool = filled(POOL, NAME="gpu", CLASS="h100", NODES=NODES)
    fleet = (filled(CLUSTER, NAME=f"c{number:04}", REGION=f"r{number % 10}") + pool for number in range(clusters))
    asked = {"REPLICAS": 1, "MEMORY": "80000Mi"}
    models = (
        filled(MODEL, NAME=f"m{number:05}", TEAM=f"team-{number % 20}", COUNT=1 + number % 8, **asked)
        for number in range(deployments)
    )
    return "".join((filled(CLASS, NAME="h100", COUNT=8, MEMORY="{value: 81559Mi}"), GATEWAY, *fleet, *models))


def main(clusters: int, deployments: int) -> None:
    from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.model_service import Survival
    from ansible_collections.modelplane.fleet.plugins.module_utils.core.load import Source, load
    from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning import plan
    from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.survival import survey
    from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import Options

    loaded = load([Source("fleet.yaml", manifests(clusters, deployments).encode())])
    seconds = [time.process_time()]
    planned = plan(loaded.resources)
    seconds.append(time.process_time())
    found = survey(planned, Options(), Survival())
    seconds.append(time.process_time())
    values = {
        "plan": seconds[1] - seconds[0],
        "survey": seconds[2] - seconds[1],
        "losses": found.tried,
        "needs": len(found.requirements),
        "unmet": len(found.shortfalls),
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(values))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The event source `modelplane.fleet.fleet` of ansible-rulebook."""

from __future__ import annotations

DOCUMENTATION = r"""
short_description: Watch a fleet for lost clusters and pending deployments
description:
  - Reads the state of a fleet from its build directory or its control cluster, and checks whether clusters respond. It
    changes nothing.
  - Sends one event for each cluster that is lost and each deployment that is pending for some time, and one event when
    this state ends. If something cannot be read, its last state is kept.
  - Every event has the string keys C(type), C(cluster), C(namespace), C(deployment), C(reason), C(message) and
    C(since). Keys that do not apply are empty. C(type) is V(cluster_lost), V(cluster_recovered),
    V(deployment_pending) or V(deployment_placed).
options:
  build:
    description:
      - The build directory of the fleet. Its C(plan.json) contains the pending deployments, and its status files
        contain the clusters that were unreachable in the last run.
      - Mutually exclusive with O(control). At least one of O(build), O(control) and O(clusters) is required.
    type: path
  control:
    description:
      - The connection to the control cluster, with the options of O(clusters) except the name and C(secret). The source
        reads the status of InferenceClusters and ModelDeployments there. An empty mapping uses the kubeconfig of
        C(kubectl).
    type: dict
  clusters:
    description:
      - The connections to inference clusters, with the options of M(modelplane.fleet.cluster_info#module:clusters),
        each with its C(name). The source requests the version of each cluster, to detect unreachable clusters between
        two runs.
    type: list
    elements: dict
    default: []
  cluster_lost_after:
    description: Seconds that a cluster must be lost before its event is sent.
    type: float
    default: 60
  deployment_pending_after:
    description: Seconds that a deployment must be pending before its event is sent.
    type: float
    default: 600
  interval:
    description: Seconds between two checks, at least 1.
    type: float
    default: 30
  state:
    description:
      - A file that stores the sent events. If unset, existing problems are sent again when the source starts.
    type: path
  forks:
    description: The number of clusters to check in parallel.
    type: int
    default: 32
  timeout:
    description: Seconds to wait for a response.
    type: float
    default: 10
  retries:
    description: The number of retries of a failed request.
    type: int
    default: 2
  answer_limit:
    description: The maximum size of an API server response, in MiB.
    type: int
    default: 64
requirements:
  - ansible-core >= 2.19
  - pydantic >= 2.10
  - PyYAML
  - urllib3 >= 2.2.1
author:
  - The modelplane.fleet authors (@modelplane)
"""

EXAMPLES = r"""
- modelplane.fleet.fleet:
    build: /srv/fleet/build
    clusters:
      - {name: onprem, kubeconfig: /srv/fleet/keys/onprem.kubeconfig}
    state: /srv/fleet/incidents.json
    deployment_pending_after: 900

- modelplane.fleet.fleet:
    control: {kubeconfig: /srv/fleet/keys/control.kubeconfig}
"""

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any

# ansible-rulebook runs this file as it is, without the loader of Ansible that finds collections. With the package
# `ansible`, Python finds its collections, and no others beside them.
_COLLECTIONS = Path(__file__).absolute().parents[6]
sys.path.append(str(_COLLECTIONS.parent))
import ansible_collections

if str(_COLLECTIONS) not in ansible_collections.__path__:
    ansible_collections.__path__.append(str(_COLLECTIONS))

from ansible_collections.modelplane.fleet.plugins.module_utils.arguments.event_source import parse
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases.incidents import Watch

_log = logging.getLogger("modelplane.fleet.fleet")


async def main(queue: asyncio.Queue[Any], args: dict[str, Any]) -> None:
    """Put the events of a fleet into the queue until the task is cancelled."""
    settings, interval = parse(args)
    last = ""
    with Watch(settings) as watch:
        while True:
            # Requests block, and the other sources of a rulebook share this thread.
            events, problem = await asyncio.to_thread(watch.turn)
            if problem and problem != last:
                _log.warning("The statuses of the fleet stay as they were: %s", problem)
            last = problem
            for event in events:
                await queue.put(event.document())
            await asyncio.to_thread(watch.remember)
            await asyncio.sleep(interval)

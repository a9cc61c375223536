# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Bind the plans of 1,000 random fleets by a real kube-scheduler, each in an order of chance, and count pods that find
no node."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / ".collections"))

from ansible_collections.modelplane.fleet.tests.kube.binaries import UnavailableError
from ansible_collections.modelplane.fleet.tests.oracle.binding.__main__ import main

if __name__ == "__main__":
    try:
        sys.exit(main(["--seed", "2", "--plans", "1000", "--orders", "1", "--patience", "30"]))
    except UnavailableError as error:
        print(error)

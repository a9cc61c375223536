# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

from collections.abc import Iterator

import pytest
from ansible_collections.modelplane.fleet.tests.e2e.live_fleet import LiveFleet, Pool
from ansible_collections.modelplane.fleet.tests.kube.fleet import Fleet

_MORE = (
    Pool("large", 2, 4, "81559Mi", "Hopper"),
    # What a scheduler could take as well, if nothing kept pods on the pool that was chosen.
    Pool("unlabelled", 1, 8, "81559Mi", "Hopper", label=False),
)


@pytest.fixture(scope="module")
def live(fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveFleet]:
    """The clusters of `fleets.cluster`, on which nothing runs, for the tests of one file."""
    with LiveFleet(fleet, tmp_path_factory.mktemp("live") / "fleet") as started:
        started.prepare(3, more=_MORE)
        yield started
        started.clear()

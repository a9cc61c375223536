# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A control cluster and the workload clusters east and west, for as long as a folder is there: `clusters.py FOLDER`.

The folder gets a kubeconfig of each and the file `state`: `ready`, or why there are no clusters.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / ".collections"))

from ansible_collections.modelplane.fleet.tests.e2e.live_fleet import LiveFleet
from ansible_collections.modelplane.fleet.tests.kube.binaries import UnavailableError, find
from ansible_collections.modelplane.fleet.tests.kube.fleet import Fleet


def main(folder: Path) -> None:
    # So that what was started is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    # Logs and data are elsewhere, as the folder may go at any time.
    with contextlib.ExitStack() as stack:
        place = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="modelplane-molecule.", ignore_cleanup_errors=True))
        )
        planes = stack.enter_context(Fleet(find(), place / "planes"))
        fleet = stack.enter_context(LiveFleet(planes, place / "fleet"))
        fleet.prepare()
        for plane in planes.all:
            shutil.copy(plane.kubeconfig, folder / f"{plane.name}.kubeconfig")
        (folder / "state").write_text("ready")
        while folder.exists():
            time.sleep(0.5)


if __name__ == "__main__":
    where = Path(sys.argv[1])
    try:
        main(where)
    except Exception as error:
        why = str(error) if isinstance(error, UnavailableError) else f"{type(error).__name__}: {error}"
        with contextlib.suppress(OSError):
            (where / "state").write_text(why)
        raise

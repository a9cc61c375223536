# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The file that keeps what the event source has reported."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.incidents import CLUSTER_LOST, Remembered, Subject
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import StoreError
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.event_memory import read_memory, write_memory

MEMORY = {
    Subject(CLUSTER_LOST, "", "west"): Remembered("2026-11-26T12:00:00Z", True),
    Subject("deployment_pending", "ml-team", "qwen"): Remembered("2026-11-26T12:30:00Z"),
}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "incidents.json"
    assert read_memory(str(path)) == {}
    write_memory(str(path), MEMORY)
    assert read_memory(str(path)) == MEMORY
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["incidents.json"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"incidents": []}', "[" * 10_000])
def test_a_file_of_another_owner_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "incidents.json"
    path.write_text(text)
    with pytest.raises(StoreError, match="not written by the event source"):
        read_memory(str(path))
    assert path.read_text() == text


def test_a_folder_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be written"):
        write_memory(str(tmp_path / "file" / "incidents.json"), MEMORY)

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The file of observations: private, atomic, quiet."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.load import Source
from ansible_collections.modelplane.fleet.plugins.module_utils.core.yaml_documents import documents
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import StoreError
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.observations import (
    observations_text,
    write_observations,
)
from hypothesis import given
from hypothesis import strategies as st

EAST = {"unreachable": "", "objects": [{"kind": "Pod", "message": 'a "b" \u2028 \x7f 😀 ü'}]}
DOCUMENT: dict[str, Any] = {"control": {"objects": []}, "clusters": {"west": {"unreachable": "gone"}, "east": EAST}}


def test_it_is_written_once_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "seen.json"
    assert write_observations(str(path), DOCUMENT)
    assert path.stat().st_mode & 0o777 == 0o600
    assert json.loads(path.read_text(encoding="utf-8")) == DOCUMENT
    before = path.stat()
    assert not write_observations(str(path), DOCUMENT)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert write_observations(str(path), {**DOCUMENT, "clusters": {}})
    assert os.listdir(path.parent) == ["seen.json"]


def test_a_file_that_others_can_read_is_written_again(tmp_path: Path) -> None:
    path = tmp_path / "seen.json"
    write_observations(str(path), DOCUMENT)
    path.chmod(0o644)
    assert write_observations(str(path), DOCUMENT)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_of_another_user_stays(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    with pytest.raises(StoreError, match="no observation that was written here"):
        write_observations(str(path), DOCUMENT)
    assert path.read_text() == "mine"


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be written: Is a directory"):
        write_observations(str(tmp_path), DOCUMENT)


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=3),
        st.recursive(
            st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(min_size=1), inner),
            max_leaves=8,
        ),
    )
)
def test_the_reader_of_manifests_reads_it(clusters: dict[str, Any]) -> None:
    text = observations_text({"clusters": clusters})
    found = list(documents(Source("seen.json", text.encode())))
    assert [problem for document in found for problem in document.problems] == []
    assert found[0].value == {"clusters": clusters, "control": {}} == json.loads(text)

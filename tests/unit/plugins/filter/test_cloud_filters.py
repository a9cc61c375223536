# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Filters by which playbooks and roles do without the names of clouds."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.modelplane.fleet.plugins.filter.cloud_names import cloud_names


def test_names_follow_from_those_of_clouds() -> None:
    assert cloud_names("{}") == ["eks", "gke"]
    assert cloud_names("{}_cluster_state") == ["eks_cluster_state", "gke_cluster_state"]


@pytest.mark.parametrize("text", ["eks", 1, None])
def test_a_text_without_a_place_for_the_name_is_refused(text: Any) -> None:
    with pytest.raises(AnsibleFilterError, match=r"must be a text with \{\} in it"):
        cloud_names(text)

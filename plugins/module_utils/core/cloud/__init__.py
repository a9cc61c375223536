# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Clusters that are built in a cloud: what a resource of the fleet comes to there, as values."""

from __future__ import annotations

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Regions of Google Cloud."""

from __future__ import annotations

import re

REGION = re.compile(r"[a-z]+(-[a-z]+)+[0-9]{1,3}")
ZONE_FORM = "{}-{}"
"""Format of a zone: a region and a letter."""

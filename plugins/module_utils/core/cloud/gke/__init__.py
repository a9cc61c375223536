# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Clusters on Google Cloud: their plans, and what Google says of them beside these. Values in, values out."""

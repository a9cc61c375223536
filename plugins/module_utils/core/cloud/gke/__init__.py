# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Clusters on Google Cloud: their plans, and the related responses of Google. Values in, values out."""

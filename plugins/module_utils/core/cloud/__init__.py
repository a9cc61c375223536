# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Clusters in clouds: their cloud objects, and the problems of their manifests. Values in, values out."""

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What an EKSCluster or a GKECluster becomes in its cloud, and what is wrong with either. Values in, values out."""

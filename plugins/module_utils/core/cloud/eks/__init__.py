# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""EKS: an EKSCluster -> everything that it is in AWS, by name and setting, and what AWS would refuse of it.

Settings are those of the reference implementation, Modelplane v0.3.1; where it leaves names to chance, they follow from
the name of the EKSCluster.
"""

from __future__ import annotations

from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.fleet import Fleet, plans
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.plan import plan, problems

__all__ = ["Fleet", "plan", "plans", "problems"]

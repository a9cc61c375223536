# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The DRA device language: devices, quantities, versions, and CEL selectors with Kubernetes' verdict."""

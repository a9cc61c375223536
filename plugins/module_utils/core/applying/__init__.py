# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Rules for applying objects to an API server: order, ownership of fields, readiness, inventory, diffs."""

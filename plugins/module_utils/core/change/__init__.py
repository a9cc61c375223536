# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Changes of a live fleet: ordered steps from the observed to the desired state, with wait conditions."""

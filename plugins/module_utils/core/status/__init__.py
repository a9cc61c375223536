# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Status of each kind, computed from the plan and from observations; one file per kind.

Each function returns a `conditions.Status`: conditions without times, and the other fields of the status. Its method
`wire(previous, generation, now)` merges it with the previous status, so that times change only with their conditions.
"""

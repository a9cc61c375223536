# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The status of every kind, as a function of what was decided and of what was seen; one file per kind.

Each function gives a `conditions.Status`: conditions without times, and the other fields of the status. Its method
`wire(previous, generation, now)` merges it with the status of before, so that times move only when something changed.
"""

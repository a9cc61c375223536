# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The cloud engine, and what modules of all clouds share: waiting, changes, errors, the frame of a task."""

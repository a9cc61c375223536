# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The cloud engine, and code for the modules of all clouds: waiting, changes, errors, the frame of a task."""

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Inference servers: one table of the known ones, and what the command line of a container says about its server."""

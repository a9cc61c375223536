# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Pure part of the cloud engine: kinds of objects, comparison, diff, references, order, ownership and state."""

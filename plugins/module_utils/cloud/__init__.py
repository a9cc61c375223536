# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What modules of all clouds share: how they wait, what they tell of changes, how they begin and end."""

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Results of runs for people and programs: tables, documents, and the values that pipelines read."""

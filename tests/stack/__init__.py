# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Equipment for tests of the serving stack: Helm, stand-ins for its charts, and where charts come from."""

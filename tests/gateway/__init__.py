# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Equipment for tests of the fleet gateway: real controllers and proxies on a private network; see README.md."""

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Gateways in mode Model: Envoy Gateway and the AI gateway on one of the fleet's clusters.

`gateway.py` has what all services of a gateway share, `routes.py` what each service adds, with `backends.py` for its
endpoints and `callers.py` for who may call it; `mtls.py` has the side of workload clusters. `parts.py` is used by all.
"""

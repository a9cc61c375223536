# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Gateways in mode Model: Envoy Gateway and the AI gateway on one of the fleet's clusters.

`gateway.py` has what all services of a gateway share, `routes.py` what each service adds, with `backends.py` for its
endpoints, `callers.py` for who may call it, `selection.py` for the services of each policy, and `overflow.py` for
budgets beyond which requests go to the next priority; `mtls.py` has the side of workload clusters. `parts.py` is what
their objects have in common.

`needs.py` has what gateways need in the serving stack, `proxies.py` the EnvoyProxies that it applies for them,
`refusals.py` what clients read of refused requests, and `size.py` the size of a gateway's configuration.
"""

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Model gateways: Envoy Gateway and the AI gateway on one of the fleet's clusters.

`gateway.py` composes the objects that all services of a gateway share, and `routes.py` the objects of each service. The
endpoints of a service are in `backends.py`, its access control in `callers.py`, the services of each policy in
`selection.py`, and budgets with overflow in `overflow.py`. `mtls.py` composes the objects of inference clusters, and
`parts.py` the common parts.

`needs.py` contains the needs of gateways in the serving stack, and `proxies.py` the EnvoyProxies that the stack
applies for them. `refusals.py` contains the error responses to clients, and `size.py` the size of a gateway's
configuration.
"""

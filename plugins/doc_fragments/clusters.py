# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Options of modules for connections. The argument spec is in `module_utils/arguments/cluster_options.py`."""

from __future__ import annotations

from importlib import import_module

from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.registry import BY_NAME

# The options of cloud connections are in the fragments with the names of the clouds.
_FRAGMENTS = "ansible_collections.modelplane.fleet.plugins.doc_fragments"
# The suboptions of a connection, indented for a list below `suboptions:` of an option.
_CONNECTION = (
    r"""
      kubeconfig:
        description:
          - The path of a kubeconfig file. Relative paths in the file start from its directory.
          - For cloud credential plugins in the kubeconfig, the module creates the token in Python instead of running
            the plugin. It runs other credential plugins as configured.
        type: path
      kubeconfig_text:
        description:
          - The content of a kubeconfig. Paths in it must be absolute.
        type: str
      context:
        description:
          - The context of the kubeconfig. Defaults to the current context.
          - Without another connection option, a context of the kubeconfig that C(kubectl) would use.
        type: str
      secret:
        description:
          - A Secret on the control cluster that contains a kubeconfig. Requires O(control).
          - Such a kubeconfig can neither refer to local files nor run local executables. Tokens of local cloud
            credentials are sent only to server names of the cloud.
        type: dict
        suboptions:
          namespace:
            description: The namespace of the Secret.
            type: str
            required: true
          name:
            description: The name of the Secret.
            type: str
            required: true
          key:
            description: The key in the Secret that contains the kubeconfig.
            type: str
            default: kubeconfig
"""
    + "".join(import_module(f"{_FRAGMENTS}.{name}").ModuleDocFragment.CONNECTION.lstrip("\n") for name in BY_NAME)
    + r"""      server:
        description:
          - The URL of the API server.
        type: str
      token:
        description:
          - A bearer token for O(clusters[].server).
        type: str
      ca_file:
        description:
          - A file with CA certificates for the API server. It overrides the CA of the kubeconfig.
          - Without a CA, the module uses the CA certificates of the host.
        type: path
      ca_text:
        description:
          - CA certificates for the API server, as PEM text.
        type: str
      proxy:
        description:
          - The proxy URL (V(http://), V(https://), V(socks5://)). It overrides the proxy of the kubeconfig, and
            E(HTTPS_PROXY) and E(NO_PROXY), which apply otherwise.
        type: str
      tls_server_name:
        description:
          - The server name to verify in the certificate, if it differs from the host name in O(clusters[].server).
        type: str
      verify:
        description:
          - Whether to verify the certificate of the API server. With V(false), the module warns.
        type: bool
        default: true
      impersonate:
        description:
          - The user to impersonate.
        type: str
"""
)

_CONTROL = r"""
  control:
    description:
      - The connection to the control cluster, with the suboptions of a cluster except the name.
      - Without a connection method, for example if it is an empty mapping, the module connects like C(kubectl) without
        arguments. It uses E(KUBECONFIG), C(~/.kube/config), or the service account of the pod.
    type: dict
    suboptions:
""" + _CONNECTION.strip("\n").replace("clusters[].", "control.").replace(" Requires O(control).", " Unsupported here.")
_CLUSTER = """
  cluster:
    description:
      - The connection to the Kubernetes API of the cluster, with exactly one connection method.
      - The module reads the cluster before O(purge) deletes a node pool.
    type: dict
    suboptions:
""" + _CONNECTION.strip("\n").replace("clusters[].", "cluster.").replace(" Requires O(control).", " Unsupported here.")
_LIMITS = r"""
  timeout:
    description:
      - Seconds to wait for a response of an API server. An unreachable cluster causes this delay once.
    type: float
    default: 30
  retries:
    description:
      - The number of retries if the API server is busy (429), fails (5xx) or closes the connection.
    type: int
    default: 5
  answer_limit:
    description:
      - The maximum size of a response of an API server, in MiB. A list has pages of 500 objects, and can have eight
        times this size in total. A larger response is an error of its cluster.
    type: int
    default: 64
"""
_NEEDS = r"""
requirements:
  - urllib3 >= 2.2.1, and certifi
notes:
  - API discovery results are cached for one hour in C(~/.cache/modelplane-fleet) (or below E(XDG_CACHE_HOME)), in files
    that only the user can read. In check mode the cache is not written.
author:
  - The modelplane.fleet authors (@modelplane)
"""


class ModuleDocFragment:
    """Options of modules that access clusters."""

    # Annotated, because ansible-test stops at assignments of anything but a literal.
    CLUSTER: str = "options:" + _CLUSTER + _LIMITS.rstrip("\n") + _NEEDS
    CONTROL: str = "options:" + _CONTROL + _LIMITS.rstrip("\n") + _NEEDS

    PARTS = r"""
options:
  parts:
    description:
      - The clusters to work on. The control cluster is always read for Secrets if O(control) is given.
    type: list
    elements: str
    choices: [clusters, control]
    default: [clusters, control]
"""

    DOCUMENTATION: str = (
        r"""
options:
  clusters:
    description:
      - The inference clusters, each with exactly one connection method. These are O(clusters[].kubeconfig),
        O(clusters[].kubeconfig_text), O(clusters[].secret), O(clusters[].server), and the options with cloud names.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description:
          - The name of the InferenceCluster.
        type: str
        required: true
"""
        + _CONNECTION.strip("\n")
        + _CONTROL
        + r"""
  forks:
    description:
      - The number of clusters to process in parallel.
    type: int
    default: 32
"""
        + _LIMITS.strip("\n")
        + r"""
  on_error:
    description:
      - The result of the task if a cluster fails.
      - V(fail) fails the task after all other clusters are processed.
      - V(report) lets the task succeed, and C(failed_clusters) contains the failed clusters.
    type: str
    choices: [fail, report]
    default: fail
"""
        + _NEEDS
    )

# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Options of modules for connections; the argument spec is that of `module_utils/arguments/cluster_options.py`."""

from __future__ import annotations

from importlib import import_module

from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.registry import BY_NAME

# Those of a login at a cloud are in the fragment with the name of the cloud.
_FRAGMENTS = "ansible_collections.modelplane.fleet.plugins.doc_fragments"
# The suboptions of a connection, indented for a list below `suboptions:` of an option.
_CONNECTION = (
    r"""
      kubeconfig:
        description:
          - A kubeconfig file. Paths in it start from its own folder.
          - Programs by which clouds make tokens are not run; the token is made in Python. Other programs are run as the
            kubeconfig says.
        type: path
      kubeconfig_text:
        description:
          - The text of a kubeconfig. Paths in it have to be absolute.
        type: str
      context:
        description:
          - The context of the kubeconfig; its current one by default.
          - Without any other way to reach the cluster, a context of the kubeconfig that C(kubectl) would use.
        type: str
      secret:
        description:
          - A Secret on the control cluster with a kubeconfig. It needs O(control).
          - Such a kubeconfig may neither name files of this machine nor run programs on it, and is given tokens of
            this machine's cloud accounts for the clouds' own server names only.
        type: dict
        suboptions:
          namespace:
            description: Namespace of the Secret.
            type: str
            required: true
          name:
            description: Name of the Secret.
            type: str
            required: true
          key:
            description: The key that holds the kubeconfig.
            type: str
            default: kubeconfig
"""
    + "".join(import_module(f"{_FRAGMENTS}.{name}").ModuleDocFragment.CONNECTION.lstrip("\n") for name in BY_NAME)
    + r"""      server:
        description:
          - URL of the API server.
        type: str
      token:
        description:
          - A bearer token for O(clusters[].server).
        type: str
      ca_file:
        description:
          - A file with the certificates that the server's has to come from; it wins over the kubeconfig's.
          - Without any, those that this machine trusts.
        type: path
      ca_text:
        description:
          - The same as text (PEM).
        type: str
      proxy:
        description:
          - URL of a proxy on the way (V(http://), V(https://), V(socks5://)); it wins over the kubeconfig's and over
            E(HTTPS_PROXY) and E(NO_PROXY), which count otherwise.
        type: str
      tls_server_name:
        description:
          - The name that the server's certificate has to be for, where it is not that of O(clusters[].server).
        type: str
      verify:
        description:
          - Whether the server's certificate is verified. V(false) gives a warning.
        type: bool
        default: true
      impersonate:
        description:
          - A user to act as.
        type: str
"""
)

_CONTROL = r"""
  control:
    description:
      - How the control cluster is reached, with the suboptions of a cluster but for the name.
      - When it is given without any way to reach it, that is as for C(kubectl) without arguments, E(KUBECONFIG),
        C(~/.kube/config), or the service account of the pod that this runs in.
    type: dict
    suboptions:
""" + _CONNECTION.strip("\n").replace("clusters[].", "control.").replace(" It needs O(control).", " Not for this one.")
_CLUSTER = """
  cluster:
    description:
      - How the Kubernetes API of the cluster is reached, with the suboptions of a cluster of other modules but for the
        name, by exactly one way.
      - It is read before O(purge) deletes a node pool.
    type: dict
    suboptions:
""" + _CONNECTION.strip("\n").replace("clusters[].", "cluster.").replace(" It needs O(control).", " Not for this one.")
_LIMITS = r"""
  timeout:
    description:
      - Seconds that a server has for an answer. A cluster that is not there costs this once.
    type: float
    default: 30
  retries:
    description:
      - How often a request is sent again when the server is busy (429), fails (5xx) or breaks the connection.
    type: int
    default: 5
  answer_limit:
    description:
      - The largest answer that is taken of a server, in MiB; a list comes in pages of 500 objects, and may have eight
        times as much in all. What is larger is an error of its cluster.
    type: int
    default: 64
"""
_NEEDS = r"""
requirements:
  - urllib3 >= 2.2.1, and certifi
notes:
  - What a server serves is remembered for an hour in C(~/.cache/modelplane-fleet) (or below E(XDG_CACHE_HOME)), in
    files that only the user can read. In check mode nothing is written there.
"""


class ModuleDocFragment:
    """Options of modules that talk to clusters."""

    # Annotated, because ansible-test stops at assignments of anything but a literal.
    CLUSTER: str = "options:" + _CLUSTER + _LIMITS.rstrip("\n") + _NEEDS
    CONTROL: str = "options:" + _CONTROL + _LIMITS.rstrip("\n") + _NEEDS

    DOCUMENTATION: str = (
        r"""
options:
  clusters:
    description:
      - The workload clusters, and how each is reached, by exactly one of O(clusters[].kubeconfig),
        O(clusters[].kubeconfig_text), O(clusters[].secret), O(clusters[].server) and those
        that have the names of clouds.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description:
          - Name of the InferenceCluster.
        type: str
        required: true
"""
        + _CONNECTION.strip("\n")
        + _CONTROL
        + r"""
  forks:
    description:
      - How many clusters are worked on at a time.
    type: int
    default: 32
"""
        + _LIMITS.strip("\n")
        + r"""
  on_error:
    description:
      - What becomes of the task when a cluster fails.
      - V(fail) fails it, after all other clusters are done.
      - V(report) lets it succeed, and C(failed_clusters) of its result names the clusters.
    type: str
    choices: [fail, report]
    default: fail
"""
        + _NEEDS
    )

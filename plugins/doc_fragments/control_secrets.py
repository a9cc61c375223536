# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Options of modules that manage a Secret of a cluster on the control cluster."""

from __future__ import annotations

_SECRET = r"""
  secret:
    description: The Secret for the {content}. A missing namespace is created.
    type: dict
    required: true
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
        description: The key in the Secret that contains the {content}.
        type: str
        default: {key}
  labels:
    description:
      - Labels of the Secret, in addition to C(app.kubernetes.io/managed-by).
      - If this option contains C(modelplane.ai/cluster), a Secret of another cluster is rejected.
    type: dict
    default: {{}}
"""


class ModuleDocFragment:
    """Options of modules that manage a Secret of a cluster on the control cluster."""

    # Annotated, because ansible-test stops at assignments of anything but a literal.
    KUBECONFIG: str = "options:" + _SECRET.format(content="kubeconfig", key="kubeconfig")
    ACCOUNT_KEY: str = "options:" + _SECRET.format(content="service account key file (JSON)", key="private_key")

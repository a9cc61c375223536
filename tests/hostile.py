# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Texts by which an attacker would make another program do something else."""

from __future__ import annotations

ARGUMENTS = (
    "",
    " ",
    "-",
    "--post-renderer=/bin/sh",
    "40.2.0 --post-renderer=/bin/sh",
    "40.2.0\t--post-renderer=/bin/sh",
    "40.2.0\n--post-renderer=/bin/sh",
    "40.2.0\n",
    " 40.2.0",
    "40.2.0-1 --post-renderer=/bin/sh",
    "40.2.0\u00a0--kubeconfig=/etc/passwd",
    "40.2.0\u2028--debug",
    "'40.2.0'",
    '"40.2.0"',
    "40.2.0\\ --debug",
    "$HOME",
    "40.2.0-${IFS}--debug",
    "~/charts",
    "40.2.0\x00",
    "40.2.0\x1b[2J",
    "40.2.0\x7f",
)
"""As arguments of Helm, none of which is one plain word."""

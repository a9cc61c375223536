# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The pod that fills the volume of a ModelCache from Hugging Face, once."""

from __future__ import annotations

from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.cache_volume import HUB_CACHE, HUB_FOLDER
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.hydration_packages import PACKAGES

SCRIPT = """\
set -eu
umask 022
complete="$VOLUME/.modelplane-hydrated"
started="$VOLUME/.modelplane-hydrating"

holds() {
  [ -f "$1" ] && [ "$(cat "$1")" = "$ARTIFACT" ]
}

if holds "$complete"; then
  printf 'The volume holds %s already.\\n' "$ARTIFACT"
  exit 0
fi

if ! holds "$started"; then
  for mark in "$complete" "$started"; do
    # A mark is empty where a run was interrupted while it wrote it.
    if [ -s "$mark" ]; then
      printf 'The volume holds %s, which engines may read: nothing in it is touched.\\n' "$(cat "$mark")" >&2
      printf 'For %s delete the claim when no pod mounts it, or name another ModelCache.\\n' "$ARTIFACT" >&2
      exit 1
    fi
  done
  if ! (: >>"$started") 2>/dev/null; then
    printf 'User %s of this pod may not write to the volume: %s\\n' "$(id -u)" "$(ls -ld "$VOLUME")" >&2
    printf 'Give the folder of the share to this user, or let everybody write there.\\n' >&2
    exit 1
  fi
  printf '%s\\n' "$ARTIFACT" >"$started"
fi
# hf resumes whole files. Pieces of those that were interrupted have names of their own, and nobody else removes them.
# Shares have folders that nobody may read, such as lost+found and .snapshot: that find fails for them is no failure.
find "$VOLUME" -type f -name '*.incomplete' -exec rm -f {} + || :

if ! command -v hf >/dev/null 2>&1; then
  printf '%s' "$PACKAGES" >"$HOME/packages.txt"
  pip install --quiet --target "$HOME/packages" --require-hashes --only-binary=:all: -r "$HOME/packages.txt"
  PATH="$HOME/packages/bin:$PATH"
  PYTHONPATH="$HOME/packages"
  export PATH PYTHONPATH
fi

set -- -- "$REPO"
if [ -n "$REVISION" ]; then
  set -- "--revision=$REVISION" "$@"
fi
# Where nothing is yet, hf fails if it may not read the repository or cannot reach it. Where something is, it would
# then take that for the whole.
rm -rf "$HOME/probe"
HF_HUB_CACHE="$HOME/probe/hub" hf download "--local-dir=$HOME/probe/folder" '--exclude=*' "$@"
if [ "$LAYOUT" != HubCache ]; then
  set -- "--local-dir=$VOLUME" "$@"
fi
printf 'Downloading %s.\\n' "$ARTIFACT"
hf download "$@"

if [ "$LAYOUT" = HubCache ]; then
  # Lists of what belongs to a revision, for hf's own user only by default: engines run as others.
  find "$VOLUME" -type f -path '*/trees/*.json' -exec chmod a+r {} + || :
fi
if [ "$LAYOUT" = HubCache ] && [ -n "$REVISION" ]; then
  # Engines that name no revision ask for main, which offline has to be the one that is here.
  refs="$HF_HUB_CACHE/models--$(printf '%s' "$REPO" | sed 's|/|--|g')/refs"
  commit="$REVISION"
  if [ -f "$refs/$REVISION" ]; then
    commit="$(cat "$refs/$REVISION")"
  fi
  mkdir -p "$refs"
  printf '%s' "$commit" >"$refs/main"
fi

if ! holds "$started"; then
  printf 'Another download has begun in this volume.\\n' >&2
  exit 1
fi
mv "$started" "$complete"
printf 'The volume holds %s.\\n' "$ARTIFACT"
"""
"""What the pod runs (POSIX sh; `hf` is the CLI of huggingface_hub, installed with pip where the image has none).

PACKAGES are the requirements of pip, each with the hashes of the wheels that may be installed for it.
What users write reaches it by variables alone: REPO, REVISION (or empty), LAYOUT, ARTIFACT (their identity), VOLUME.
The volume holds ARTIFACT once `.modelplane-hydrated` says so. `.modelplane-hydrating` names what is being downloaded:
a repeated run downloads the files of that which are missing, and a run for anything else touches nothing and fails:
engines may be reading what is there, and a folder with the weights of two models would be loaded as one.
"""

VOLUME_PATH = "/mnt/artifact"
_HOME = "/work"


def pod_spec(claim: str, image: str, env: dict[str, str], token: dict[str, str] | None) -> dict[str, Any]:
    """The spec of the pod. `env` has the values for SCRIPT; `token` is the secretKeyRef of the Hugging Face token.

    Neither a user nor an fsGroup is set. NFS decides who may write by the user's number: an EFS access point lets
    everybody in as its own user, a Filestore share belongs to root until root gives it away, OpenShift picks a number
    where nothing lets pods choose. The user of the image (root for most) is the only one that can write to all of them,
    and an fsGroup would be ignored for shared volumes or would touch every file at each start.
    """
    # Kubernetes expands $(NAME) in values; a doubled dollar sign is a plain one.
    values = {name: value.replace("$", "$$") for name, value in env.items()} | _environment(env["LAYOUT"])
    variables: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in values.items()]
    if token:
        variables.append({"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": token}})
    return {
        "restartPolicy": "OnFailure",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "hydrate",
                "image": image,
                "command": ["/bin/sh", "-c", SCRIPT],
                "env": variables,
                "resources": {"requests": {"cpu": "500m", "memory": "1Gi", "ephemeral-storage": "1Gi"}},
                "volumeMounts": [
                    {"name": "artifact", "mountPath": VOLUME_PATH},
                    {"name": "work", "mountPath": _HOME},
                    {"name": "work", "mountPath": "/tmp", "subPath": "tmp"},
                ],
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                    "readOnlyRootFilesystem": True,
                },
            }
        ],
        "volumes": [
            {"name": "artifact", "persistentVolumeClaim": {"claimName": claim}},
            {"name": "work", "emptyDir": {"sizeLimit": "4Gi"}},
        ],
    }


def _environment(layout: str) -> dict[str, str]:
    """Settings of the tools: everything but the weights goes to the pod's own folder."""
    settings = {
        "VOLUME": VOLUME_PATH,
        "HOME": _HOME,
        "HF_HOME": f"{_HOME}/huggingface",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        # Each chunk is needed once; kept, they would fill the node's disk.
        "HF_XET_CHUNK_CACHE_SIZE_BYTES": "0",
        "PACKAGES": PACKAGES,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_CACHE_DIR": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
    }
    if layout == HUB_CACHE:
        settings["HF_HUB_CACHE"] = f"{VOLUME_PATH}/{HUB_FOLDER}"
    return settings

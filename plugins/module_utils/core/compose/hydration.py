# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Pod that downloads weights from Hugging Face into the volume of a ModelCache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..api.model_cache import CABundle
from .cache_volume import HUB_CACHE, HUB_FOLDER
from .hydration_packages import PACKAGES
from .pod import missing_variables

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
    printf 'Make this user the owner of the folder of the share, or let all users write there.\\n' >&2
    exit 1
  fi
  printf '%s\\n' "$ARTIFACT" >"$started"
fi
# hf does not resume partial files. It never removes them either, as each has a unique name.
# Shares have unreadable folders, such as lost+found and .snapshot: errors of find are ignored.
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
# With an empty folder hf fails if it cannot read or reach the repository. With a filled one it would succeed with the
# files that are already there.
rm -rf "$HOME/probe"
HF_HUB_CACHE="$HOME/probe/hub" hf download "--local-dir=$HOME/probe/folder" '--exclude=*' "$@"
if [ "$LAYOUT" != HubCache ]; then
  set -- "--local-dir=$VOLUME" "$@"
fi
printf 'Downloading %s.\\n' "$ARTIFACT"
hf download "$@"

if [ "$LAYOUT" = HubCache ]; then
  # Lists of the files of a revision are readable by hf's own user only: engines run as other users.
  find "$VOLUME" -type f -path '*/trees/*.json' -exec chmod a+r {} + || :
fi
if [ "$LAYOUT" = HubCache ] && [ -n "$REVISION" ]; then
  # Engines that name no revision ask for main, which offline has to be the downloaded revision.
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
"""Script of the pod (POSIX sh; `hf` is the CLI of huggingface_hub, installed with pip when the image lacks it).

PACKAGES are requirements of pip with hashes of the permitted wheels. Values that users write are passed as variables
only: REPO, REVISION (or empty), LAYOUT, ARTIFACT (their identity), VOLUME.
`.modelplane-hydrated` names the artifact that the volume holds, `.modelplane-hydrating` the one that is being
downloaded. Another run for the same artifact downloads the missing files. A run for another artifact fails and changes
nothing: engines may be reading the files, and would load a folder with the weights of two models as one.
"""

_REVISION_WORDS = """\
if [ -n "$REVISION" ]; then
  set -- "--revision=$REVISION" "$@"
fi
"""
PATTERN_WORDS = """\
case "$(hf version)" in
  *'version: 0.'*)
    printf 'include and exclude need huggingface_hub 1.0 or newer in the image.\\n' >&2
    exit 1
    ;;
esac
while IFS= read -r pattern; do
  [ -z "$pattern" ] || set -- "--include=$pattern" "$@"
done <<patterns
${INCLUDE:-}
patterns
while IFS= read -r pattern; do
  [ -z "$pattern" ] || set -- "--exclude=$pattern" "$@"
done <<patterns
${EXCLUDE:-}
patterns
"""
"""Part of the download script, for caches with patterns. INCLUDE and EXCLUDE contain one pattern per line. Other caches
omit this part, because the name of an unobserved Job contains a digest of its script."""

VOLUME_PATH = "/mnt/artifact"
_HOME = "/work"
_CA_PATH = "/etc/modelplane/ca"
_CA_FILE = "ca.crt"
_CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT")


@dataclass(frozen=True)
class Download:
    """Inputs of a download.

    env: values for SCRIPT by name.
    token: the secretKeyRef of a Hugging Face token.
    variables: variables that the user sets (wire form); they win over defaults.
    ca_bundle: CA certificates that replace the certificates of the image.
    """

    env: Mapping[str, str]
    token: Mapping[str, str] | None = None
    variables: Sequence[Mapping[str, Any]] = ()
    ca_bundle: CABundle | None = None


def pod_spec(claim: str, image: str, download: Download) -> dict[str, Any]:
    """Return the spec of the pod.

    Neither a user nor an fsGroup is set. NFS grants access by user ID: an EFS access point maps all users to its own, a
    Filestore share belongs to root until root changes its owner, and OpenShift assigns a user ID unless pods may choose
    theirs. The user of the image (mostly root) is the only one that can write to all of them. An fsGroup would be
    ignored for shared volumes, or change the owner of every file at each start.
    """
    # Kubernetes expands $(NAME) in values; a doubled dollar sign is a literal one.
    env = download.env
    values = {name: value.replace("$", "$$") for name, value in env.items()} | _environment(env["LAYOUT"])
    if download.ca_bundle:
        values |= dict.fromkeys(_CA_VARIABLES, f"{_CA_PATH}/{_CA_FILE}")
    variables: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in values.items()]
    if download.token:
        variables.append({"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": download.token}})
    variables = [*missing_variables(variables, download.variables), *map(dict, download.variables)]
    script = SCRIPT
    if env.keys() & {"INCLUDE", "EXCLUDE"}:
        script = SCRIPT.replace(_REVISION_WORDS, _REVISION_WORDS + PATTERN_WORDS)
    spec = _spec(claim, image, script, variables)
    if download.ca_bundle:
        source = {"name": download.ca_bundle.name, "items": [{"key": download.ca_bundle.key, "path": _CA_FILE}]}
        spec["volumes"].append({"name": "ca", "configMap": source})
        mounts = spec["containers"][0]["volumeMounts"]
        mounts.append({"name": "ca", "mountPath": _CA_PATH, "readOnly": True})
    return spec


def _spec(claim: str, image: str, script: str, variables: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "restartPolicy": "OnFailure",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "hydrate",
                "image": image,
                "command": ["/bin/sh", "-c", script],
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
    """Return the settings of the tools. Everything except the weights is written to the pod's own directory."""
    settings = {
        "VOLUME": VOLUME_PATH,
        "HOME": _HOME,
        "HF_HOME": f"{_HOME}/huggingface",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        # Each chunk is needed once; a cache of them would fill the node's disk.
        "HF_XET_CHUNK_CACHE_SIZE_BYTES": "0",
        "PACKAGES": PACKAGES,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_CACHE_DIR": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
    }
    if layout == HUB_CACHE:
        settings["HF_HUB_CACHE"] = f"{VOLUME_PATH}/{HUB_FOLDER}"
    return settings

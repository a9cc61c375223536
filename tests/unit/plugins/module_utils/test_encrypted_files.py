# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Files that are encrypted with ansible-vault are reported as such, wherever a file is read as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.load import Source, load
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes import kubeconfig
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.credentials import AccessError, TokenFile
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import fleet_inputs, prices

VAULT = "$ANSIBLE_VAULT;1.1;AES256\n62313365396662343061393464336163383764373764613633653634306231386433626436623361\n"


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    file = tmp_path / "secret.yml"
    file.write_text(VAULT)
    return file


def test_a_kubeconfig(vault: Path) -> None:
    with pytest.raises(AccessError, match=r"secret.yml: is encrypted with ansible-vault") as raised:
        kubeconfig.load([kubeconfig.read_file(vault)])
    assert "unvault" in raised.value.hint


@pytest.mark.parametrize("field", ["certificate-authority", "client-certificate"])
def test_a_file_that_a_kubeconfig_names(vault: Path, tmp_path: Path, field: str) -> None:
    content: dict[str, Any] = {
        "clusters": [{"name": "a", "cluster": {"server": "https://a.example.com"}}],
        "users": [{"name": "a", "user": {}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "current-context": "a",
    }
    entry = content["clusters"][0]["cluster"] if field == "certificate-authority" else content["users"][0]["user"]
    entry[field] = str(vault)
    (tmp_path / "config").write_text(json.dumps(content))
    with pytest.raises(AccessError, match=r"secret.yml, which is encrypted with ansible-vault"):
        kubeconfig.load([kubeconfig.read_file(tmp_path / "config")])


def test_a_token(vault: Path) -> None:
    with pytest.raises(AccessError, match="is encrypted with ansible-vault"):
        TokenFile(vault).authorization()


def test_a_manifest() -> None:
    (problem,) = load([Source("a.yaml", VAULT.encode())]).problems
    assert "decrypt it" in problem.hint


@pytest.mark.parametrize("read", [lambda path: fleet_inputs._content("fleet_prices", path), prices._text])
def test_other_files(vault: Path, read: Any) -> None:
    with pytest.raises(Exception, match=r"secret.yml, which is encrypted with ansible-vault. Decrypt it"):
        read(str(vault))

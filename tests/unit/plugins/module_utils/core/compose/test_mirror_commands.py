# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Command lines for copies of charts and images, and the meaning of what the programs answer."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.mirror_commands import (
    Chart,
    Helm,
    Image,
    ImageTool,
    MirrorError,
    Render,
    check_copy,
    check_lock,
    environment,
    helm_finding,
    is_missing,
    locked,
    no_tool_finding,
    repository_name,
)

LWS = Chart(
    chart="lws",
    version="v0.8.0",
    source="oci://registry.k8s.io/lws/charts",
    file="lws-v0.8.0.tgz",
    ref="oci://registry.k8s.io/lws/charts/lws",
    repository="",
    destination="oci://mirror.example/charts/registry.k8s.io/lws/charts",
    archive="",
    renders=(Render("mp-lws", "lws-system", {}),),
)
MANAGER = replace(LWS, chart="cert-manager", ref="cert-manager", repository="https://charts.jetstack.io")
IMAGE = Image("quay.io/a/b:1", "quay.io/a/b:1", "quay.io/a/b", "mirror.example/fleet/quay.io/a/b:1")
PULL = ["helm", "pull", "cert-manager", "--version", "v0.8.0", "--destination", "/f"]
HELM = Helm("helm")


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (
            HELM.pull(LWS, "/f", logged_in=False),
            ["helm", "pull", LWS.ref, "--version", "v0.8.0", "--destination", "/f"],
        ),
        (HELM.pull(MANAGER, "/f", logged_in=False), [*PULL, "--repo", MANAGER.repository]),
        (
            HELM.pull(MANAGER, "/f", logged_in=True),
            ["helm", "pull", f"{repository_name(MANAGER.repository)}/cert-manager", *PULL[3:]],
        ),
        (Helm("helm", sources_plain=True).pull(MANAGER, "/f", logged_in=False)[-1:], ["--plain-http"]),
        (
            Helm("helm", plain=True).pull_copy(LWS, "/f"),
            ["helm", "pull", f"{LWS.destination}/lws", *PULL[3:], "--plain-http"],
        ),
        (HELM.push(LWS, "/f/lws.tgz"), ["helm", "push", "/f/lws.tgz", LWS.destination]),
        (ImageTool("crane").inspect("a/b:1", copy=True), ["crane", "digest", "a/b:1"]),
        (ImageTool("/bin/crane", plain=True).inspect("a/b", copy=False), ["/bin/crane", "digest", "a/b"]),
        (ImageTool("/bin/crane", plain=True).inspect("a/b", copy=True), ["/bin/crane", "digest", "--insecure", "a/b"]),
        (ImageTool("skopeo").inspect("a/b:1", copy=True), ["skopeo", "inspect", "--raw", "docker://a/b:1"]),
        (
            ImageTool("crane", sources_plain=True).copy(IMAGE, "sha256:1"),
            ["crane", "copy", "--insecure", "quay.io/a/b@sha256:1", IMAGE.destination],
        ),
        (
            ImageTool("skopeo", sources_plain=True).copy(IMAGE, "sha256:1")[-3:],
            ["--src-tls-verify=false", "docker://quay.io/a/b@sha256:1", f"docker://{IMAGE.destination}"],
        ),
        (ImageTool("skopeo").version(), ["skopeo", "--version"]),
        (ImageTool("/opt/skopeo/crane").version(), ["/opt/skopeo/crane", "version"]),
    ],
)
def test_command_lines(command: list[str], expected: list[str]) -> None:
    assert command == expected


def test_a_password_is_no_argument() -> None:
    assert HELM.login("https://charts.example", "reader")[-3:] == ["--username", "reader", "--password-stdin"]


def test_programs_have_settings_and_logins_of_their_own() -> None:
    found = environment("/run", "/run/logins/config.json", "/ca.pem")
    assert {name for name, path in found.items() if not path.startswith("/run/")} == {"SSL_CERT_FILE"}
    assert found["DOCKER_CONFIG"] == "/run/logins"
    assert "SSL_CERT_FILE" not in environment("/run", "/run/logins/config.json", "")


@pytest.mark.parametrize(
    ("version", "error", "finding"),
    [
        ("v3.17.0+g301108e", "", ""),
        ("v4.0.1", "", ""),
        ("v3.16.4+g7877b45", "", "helm is Helm 3.16.4. "),
        ("a wrapper\n", "", "helm is Helm a wrapper. "),
        ("", "No such file or directory", "helm does not run (No such file or directory). "),
    ],
)
def test_an_old_helm_is_refused(version: str, error: str, finding: str) -> None:
    found = helm_finding("helm", version, error)
    assert found.startswith(finding)
    assert bool(found) == bool(finding) == ("Install Helm 3.17 or newer" in found)


def test_without_a_program_each_image_is_listed_with_its_destination() -> None:
    first, *lines = no_tool_finding("/nowhere/crane", [IMAGE]).splitlines()
    assert first.startswith("Neither crane nor skopeo runs here as /nowhere/crane. ")
    assert lines == ["quay.io/a/b:1 mirror.example/fleet/quay.io/a/b:1"]


@pytest.mark.parametrize(
    ("error", "missing"),
    [
        ("Error: mirror.example/lws:v0.8.0: not found", True),
        ("NAME_UNKNOWN: repository name not known", True),
        ("unexpected status: 404", True),
        ("denied: requested access to the resource", True),
        ("dial tcp: connection refused", False),
        ("x509: certificate signed by an authority of others", False),
    ],
)
def test_what_a_registry_says_of_a_chart_that_it_does_not_have(error: str, missing: bool) -> None:
    assert is_missing(error) is missing


def test_digests_are_those_of_manifests() -> None:
    assert ImageTool("crane").digest(b"sha256:1\n") == "sha256:1"
    expected = hashlib.sha256(b"{}\n").hexdigest()
    assert ImageTool("skopeo").digest(b"{}\n") == f"sha256:{expected}"


def test_a_lock_is_read_and_a_broken_one_is_refused() -> None:
    text = b"charts:\n- file: a.tgz\n  sha256: '12'\n  source: oci://a\n"
    assert locked(text, "charts.lock") == {"a.tgz": {"file": "a.tgz", "sha256": "12", "source": "oci://a"}}
    assert locked(b"charts: []\n", "charts.lock") == {}
    for broken in (b"charts: x", b"[]", b"charts: [{file: a.tgz}]", b"{"):
        with pytest.raises(MirrorError, match="Fix or delete it"):
            locked(broken, "charts.lock")


def test_archives_of_one_version_never_change() -> None:
    check_lock(LWS, "1", "", "charts.lock", "/kept")
    check_lock(LWS, "1", "1", "charts.lock", "/kept")
    with pytest.raises(MirrorError, match=r"from oci://registry.k8s.io/lws/charts has sha256 1, but charts.lock has 2"):
        check_lock(LWS, "1", "2", "charts.lock", "/kept")
    with pytest.raises(MirrorError, match=r"lws-v0.8.0.tgz in /kept has sha256 1"):
        check_lock(replace(LWS, archive="/kept/x"), "1", "2", "charts.lock", "/kept")
    assert not check_copy(LWS, "1", "1", replace=False)
    assert check_copy(LWS, "1", "2", replace=True)
    with pytest.raises(MirrorError, match="mirror_replace overwrites the copy"):
        check_copy(LWS, "1", "2", replace=False)

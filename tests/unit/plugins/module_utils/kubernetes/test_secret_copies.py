# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Secrets that gateways in mode Model get: certificates of their type, and the keys of all callers in one."""

from __future__ import annotations

import base64
from types import SimpleNamespace
from typing import Any, cast

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import Unreachable
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.secret_copies import Sources, copies

SYSTEM = "modelplane-system"
CALLERS = {
    "cluster": "hub",
    "from": {"namespace": SYSTEM, "matchLabels": {"keys": "eu", "a": "b"}},
    "to": {"namespace": SYSTEM, "name": "inference-gateway-callers"},
}


class Control:
    """A control cluster with these Secrets, or one that does not answer."""

    def __init__(self, *secrets: dict[str, Any], silent: bool = False) -> None:
        self.secrets, self.silent = secrets, silent
        self.asked: list[str] = []

    def list(self, api_version: str, kind: str, *, namespace: str, labels: str) -> Any:
        self.asked.append(f"{api_version} {kind} {namespace} {labels}")
        if self.silent:
            raise Unreachable("does not answer", cluster="control")
        return SimpleNamespace(items=self.secrets)

    def get(self, _api_version: str, _kind: str, name: str, _namespace: str) -> Any:
        return next((each for each in self.secrets if each["metadata"]["name"] == name), None)


def secret(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": SYSTEM}, "data": data}


def sources(control: Control) -> Sources:
    return Sources(cast(Client, control))


def test_the_keys_of_all_callers_are_in_one_secret() -> None:
    control = Control(secret("b", carol="Yw==", alice="bmV3"), secret("a", alice="YQ==", bob="Yg=="))
    found = copies([CALLERS, {**CALLERS, "cluster": "other"}], "hub", sources(control))
    assert control.asked == ["v1 Secret modelplane-system a=b,keys=eu"]
    (copied,) = found.desired
    assert copied["metadata"]["name"] == "inference-gateway-callers"
    assert copied["data"] == {"alice": "YQ==", "bob": "Yg==", "carol": "Yw=="}
    assert copied["type"] == "Opaque"


def test_a_key_of_two_callers_is_that_of_the_first_and_shown_to_no_one() -> None:
    control = Control(secret("b", carol="YQ==", erin="ZQ=="), secret("a", alice="YQ==", bob="Yg=="))
    found = copies([CALLERS], "hub", sources(control))
    assert found.desired[0]["data"] == {"alice": "YQ==", "bob": "Yg==", "erin": "ZQ=="}
    (note,) = found.notes
    assert note.startswith(
        f"carol of Secret {SYSTEM}/b is not used: it has the same value as alice of Secret {SYSTEM}/a"
    )


def test_a_key_that_no_header_can_have_keeps_no_other_from_gateways() -> None:
    control = Control(secret("a", alice="YQ==", bob="//4A", carol="YSBi", dave="", erin="YQo=", frank="?"))
    found = copies([CALLERS], "hub", sources(control))
    assert found.desired[0]["data"] == {"alice": "YQ=="}
    assert [note.partition(" ")[0] for note in found.notes] == ["bob", "carol", "dave", "erin", "frank"]
    assert all("1 to 1024 visible ASCII characters" in note for note in found.notes)


def test_keys_that_cannot_be_read_stay_as_they_are() -> None:
    found = copies([CALLERS], "hub", sources(Control(silent=True)))
    assert found.desired == ()
    assert [key.name for key in found.held] == ["inference-gateway-callers"]
    assert "does not answer" in found.notes[0]


CERTIFICATE = [
    {
        "cluster": "hub",
        "from": {"namespace": SYSTEM, "name": "eu-tls", "key": key},
        "to": {"namespace": SYSTEM, "name": "eu-tls", "key": key},
        "type": "kubernetes.io/tls",
    }
    for key in ("tls.crt", "tls.key")
]


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ([], "there is no Secret modelplane-system/eu-tls on the control cluster"),
        (
            [{"tls.crt": "Yw=="}],
            "Secret modelplane-system/eu-tls of the control cluster has no key tls.key",
        ),
    ],
)
def test_what_is_missing_of_a_certificate_is_said_once(there: list[dict[str, str]], said: str) -> None:
    found = copies(CERTIFICATE, "hub", sources(Control(*(secret("eu-tls", **values) for values in there))))
    assert found.notes == (f"Secret modelplane-system/eu-tls is left as it is: {said}",)
    assert not found.desired


def test_a_certificate_keeps_its_type() -> None:
    values = {"tls.crt": "Yw==", "tls.key": "aw=="}
    (copied,) = copies(CERTIFICATE, "hub", sources(Control(secret("eu-tls", **values)))).desired
    assert (copied["type"], copied["data"]) == ("kubernetes.io/tls", values)


PROVIDER = {
    "cluster": "hub",
    "from": {"namespace": "ml-team", "name": "together", "key": "token"},
    "to": {"namespace": "mp-ml-team", "name": "qwen-together", "key": "apiKey"},
    "labels": {"modelplane.ai/gateway": "eu"},
}


@pytest.mark.parametrize("value", ["realsecret\n", " realsecret", "real secret", "\n", "realsecr\u00e9t"])
def test_a_key_of_a_provider_that_no_provider_gives_is_copied_and_said(value: str) -> None:
    encoded = base64.b64encode(value.encode()).decode()
    found = copies([PROVIDER], "hub", sources(Control(secret("together", token=encoded))))
    (note,) = found.notes
    assert note.startswith("token of Secret ml-team/together is hardly what a provider gave")
    assert "real" not in note
    assert encoded not in note
    assert [each["data"] for each in found.desired] == [{"apiKey": encoded}]


def test_other_values_may_have_line_breaks_and_keys_of_providers_any_length() -> None:
    lines, long = (base64.b64encode(value).decode() for value in (b"a\nb\n", b"a" * 4096))
    assert not copies([PROVIDER], "hub", sources(Control(secret("together", token=long)))).notes
    cache = {name: value for name, value in PROVIDER.items() if name != "labels"}
    assert not copies([cache], "hub", sources(Control(secret("together", token=lines)))).notes


def test_a_copy_has_the_labels_of_what_it_is_for() -> None:
    labels = {"modelplane.ai/gateway": "eu", "modelplane.ai/cluster": "hub"}
    (copied,) = copies([{**CALLERS, "labels": labels}], "hub", sources(Control())).desired
    ours = {"app.kubernetes.io/managed-by": "modelplane.fleet", "modelplane.ai/namespace": SYSTEM}
    assert copied["metadata"]["labels"] == {**labels, **ours}

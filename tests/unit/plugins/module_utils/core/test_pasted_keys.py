# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Keys that were pasted into manifests: refused with a word on revoking them, and not repeated, wherever they are."""

from __future__ import annotations

import pytest
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.little_fleet import (
    CLUSTER,
    DEPLOYMENT,
    ENDPOINT,
    GATEWAY,
    POLICY,
    SERVICE,
    change,
    engine,
    fleet,
    load_text,
    only,
)

OPENAI = "sk-proj-AbCdEf0123456789AbCdEf0123456789"
LOWER = "sk-proj-abcdef0123456789abcdef0123456789"
OURS = "mpk_AbCdEf0123456789AbCdEf0123456789"
SHOWN = "0123456789"


def keyed(credential: str) -> str:
    return change(
        ENDPOINT, 'url: "https://api.example.com/"', f"origin: https://api.example.com, credential: {credential}"
    )


def endpoint(fields: str) -> str:
    return change(ENDPOINT, "spec: {", f"spec: {{{fields}, ")


API_KEY = "spec.credential.apiKey"
PLACES = [
    pytest.param(keyed("{apiKey: {KEY}}"), f"{API_KEY}.KEY", id="a set as apiKey"),
    pytest.param(keyed("{apiKey: {KEY: {name: a}}}"), f"{API_KEY}.KEY", id="a field of apiKey"),
    pytest.param(keyed("{apiKey: {secretRef: {KEY}}}"), f"{API_KEY}.secretRef.KEY", id="a set as secretRef"),
    pytest.param(keyed("{apiKey: {secretRef: KEY}}"), f"{API_KEY}.secretRef", id="secretRef"),
    pytest.param(keyed("{apiKey: {secretRef: {name: KEY}}}"), f"{API_KEY}.secretRef.name", id="the name of a Secret"),
    pytest.param(keyed("{apiKey: {secretRef: {name: a}, header: KEY}}"), f"{API_KEY}.header", id="header"),
    pytest.param(keyed("{apiKey: {secretRef: {name: a}, prefix: KEY}}"), f"{API_KEY}.prefix", id="prefix"),
    pytest.param(
        keyed("{apiKey: {secretRef: {name: a}, prefix: Bearer KEY}}"), f"{API_KEY}.prefix", id="behind a scheme"
    ),
    pytest.param(endpoint("model: KEY"), "spec.model", id="model"),
    pytest.param(endpoint("api: {prefix: /KEY}"), "spec.api.prefix", id="prefix of the API"),
    pytest.param(endpoint("rewritePath: /KEY/v1"), "spec.rewritePath", id="path"),
    pytest.param(change(ENDPOINT, "namespace: team", "namespace: KEY"), "metadata.namespace", id="namespace"),
    pytest.param(change(ENDPOINT, "provider: saas", "provider: KEY"), 'metadata.labels["provider"]', id="label"),
    pytest.param(change(ENDPOINT, "provider: saas", "KEY: saas"), 'metadata.labels["KEY"]', id="key of a label"),
    pytest.param(
        change(GATEWAY, "keys: callers", "keys: KEY"),
        'spec.auth.apiKey.secretSelector.matchLabels["keys"]',
        id="secretSelector",
    ),
    pytest.param(
        change(GATEWAY, "west,", "west, serviceSelector: {matchLabels: {a: KEY}},"),
        'spec.serviceSelector.matchLabels["a"]',
        id="serviceSelector",
    ),
    pytest.param(
        change(SERVICE, "modelplane.ai/deployment: qwen", "example.org/provider: KEY"),
        'spec.endpoints[0].selector.matchLabels["example.org/provider"]',
        id="selector of endpoints",
    ),
    pytest.param(
        change(DEPLOYMENT, "modelplane.ai/region: west}", "region: KEY}"),
        'spec.template.spec.clusterSelector.matchLabels["region"]',
        id="clusterSelector",
    ),
    pytest.param(
        change(POLICY, "}]}", "}], callerSelector: {matchLabels: {a: KEY}}}"),
        'spec.callerSelector.matchLabels["a"]',
        id="callerSelector",
    ),
]


@pytest.mark.parametrize("key", [OPENAI, LOWER, OURS])
@pytest.mark.parametrize(("text", "path"), PLACES)
def test_a_key_is_refused_wherever_it_is(key: str, text: str, path: str) -> None:
    loaded = fleet(gateway=GATEWAY, changed=text.replace("KEY", key))
    found = [each for each in loaded.errors if each.message == "is a key, or has one in it"]
    found = [each for each in found if each.file == "changed.yaml"]
    assert [each.path for each in found] == [path.replace("KEY", key)]
    assert "revoke this one" in found[0].hint
    assert found[0].line == next(number for number, line in enumerate(text.split("\n"), 1) if "KEY" in line)
    assert [each for each in loaded.problems if each.path == found[0].path] == found
    assert SHOWN not in "".join(map(str, loaded.problems))
    assert SHOWN not in str(loaded.resources) + str(loaded.unresolved) + str(loaded.invalid)


def test_what_engines_are_started_with_may_be_keys() -> None:
    fields = f"env: [{{name: A_KEY, value: {OPENAI}}}], args: [--api-key={OURS}]"
    assert not fleet(deployment=engine(fields)).errors
    noted = change(ENDPOINT, "labels: {", f"annotations: {{a: {OPENAI}}}, labels: {{")
    assert not fleet(endpoint=noted).errors


def test_names_that_begin_like_a_key_may_be_anywhere() -> None:
    for name in ("sk-learn-large-embeddings-eu1", "sk-learn-large-de06b15fe6", "nvapi-credentials", "risk-model"):
        text = endpoint(f"model: {name}, api: {{prefix: /{name}}}").replace("saas}", f"{name}}}")
        loaded = fleet(endpoint=text, cluster=change(CLUSTER, "labels: {", f"labels: {{a: {name}, "))
        assert not loaded.problems, name


@pytest.mark.parametrize(
    "text",
    [
        keyed("{apiKey: {secretRef: {name: *KEY}}}"),
        keyed("{apiKey: {secretRef: {name: !KEY a}}}"),
        keyed("{apiKey: {secretRef: {name: !!int KEY}}}"),
        keyed("{apiKey: {KEY: 1, KEY: 2}}"),
        change(ENDPOINT, "ModelEndpoint", "KEY"),
        change(ENDPOINT, "modelplane.ai/v1alpha1", "modelplane.ai/KEY"),
        f"{ENDPOINT}status: {{KEY: 1}}\n",
        change(ENDPOINT, "labels: {", "annotations: {modelplane.ai/KEY: a}, labels: {"),
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: KEY}\n",
        "apiVersion: v1\nkind: Secret\nmetadata: {namespace: KEY, name: a}\ndata: {KEY: KEY}\n",
    ],
)
# The last one is a token, of which only the beginning is shown, and which only as a whole has the form of one.
@pytest.mark.parametrize("key", [OPENAI, OURS, f"eyJ{SHOWN * 6}AbCd.e0{SHOWN * 3}.f0"])
def test_messages_about_other_things_do_not_repeat_it(text: str, key: str) -> None:
    loaded = load_text(text.replace("KEY", key))
    shown = "".join([*map(str, loaded.problems), *loaded.ignored])
    assert shown
    assert SHOWN not in shown


@pytest.mark.parametrize("values", ["stringData: {apiKey: KEY}", "data: {apiKey: c2stcHJvag==}"])
def test_a_secret_among_manifests_is_said_not_to_be_applied(values: str) -> None:
    secret = f"apiVersion: v1\nkind: Secret\nmetadata: {{name: openai, namespace: team}}\n{values}\n"
    loaded = load_text(f"{ENDPOINT}---\n{secret.replace('KEY', OPENAI)}")
    warning = only(loaded.warnings)
    assert (warning.file, warning.line, warning.document) == ("0.yaml", 6, 2)
    assert str(warning) == (
        "0.yaml:6, document 2: Is a Secret with values, and Secrets are not applied from manifests. Make it on the "
        "cluster (kubectl create secret) and remove it here. Keys do not belong into Git: revoke what got there."
    )
    assert loaded.ignored == ("0.yaml:6: v1 Secret team/openai",)
    assert not loaded.errors
    items = "\n".join(f"  {line}" for line in secret.splitlines())
    (listed,) = load_text(f"apiVersion: v1\nkind: List\nitems:\n-{items[1:]}\n").warnings
    assert (listed.message, listed.path) == (warning.message, "items[0]")


def test_a_secret_without_values_is_ignored_like_any_object() -> None:
    for values in ("", "data: {}\n", "type: Opaque\nstringData:\n", 'data: {apiKey: "ENC[abc]"}\nsops: {}\n'):
        loaded = load_text(f"apiVersion: v1\nkind: Secret\nmetadata: {{name: openai}}\n{values}")
        assert (loaded.problems, loaded.ignored) == ((), ("0.yaml:1: v1 Secret openai",))

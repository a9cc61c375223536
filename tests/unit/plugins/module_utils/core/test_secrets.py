# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Secrets do not show, and the rest does."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.manifest_text import to_yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.secrets import (
    MASK,
    holds_key,
    masked,
    secret_like,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import short_value
from ansible_collections.modelplane.fleet.tests.planted_secrets import FORMATS, PLACES

SECRET = "s3cr3t-value-0123"


def container(**fields: object) -> str:
    return to_yaml({"spec": {"containers": [{"name": "engine", "image": "vllm/vllm-openai:v0.23.0", **fields}]}})


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "OPENAI_KEY", "DB_PASS", "MY_PASSPHRASE", "AWS_SECRET_ACCESS_KEY", "hf_token", "SENTRY_DSN"]
)
@pytest.mark.parametrize("value", [SECRET, f"line\n{SECRET}\n", f"'{SECRET}'", f"  {SECRET}: x", "1234567890"])
def test_variables_by_name(name: str, value: str) -> None:
    text = container(env=[{"name": name, "value": value}, {"name": "PLAIN", "value": "shown"}])
    shown = masked(text)
    assert SECRET not in shown
    assert "1234567890" not in shown
    assert MASK in shown
    assert "shown" in shown
    assert name in shown


@pytest.mark.parametrize(
    "args",
    [
        [f"--api-key={SECRET}"],
        ["--api-key", SECRET, "--port=8000"],
        [f"--database=postgres://user:{SECRET}@db/x"],
        [f"exec vllm serve --api-key {SECRET} --port 8000"],
        ["--header=hf_" + "aB" * 10 + SECRET],
    ],
)
def test_arguments(args: list[str]) -> None:
    shown = masked(container(args=args, command=["/bin/sh", "-c", *args]))
    assert SECRET not in shown
    assert "vllm/vllm-openai:v0.23.0" in shown


PEM = f"-----BEGIN RSA PRIVATE KEY-----\nMIIE{SECRET}\n{SECRET}\n-----END RSA PRIVATE KEY-----\n"
PLANTS = {
    "bearer in a command": ["curl", "-fsS", f"http://a/ --oauth2-bearer {SECRET} 'Authorization: Bearer {SECRET}'"],
    "bearer alone": [f"Bearer {SECRET}"],
    "bearer, lower case": [f"authorization=bearer {SECRET}"],
    "basic": [f"Authorization: Basic {SECRET}"],
    "another scheme": [f"Proxy-Authorization: Negotiate {SECRET}"],
    "header flag": [f"--header=X-Api: {SECRET}"],
    "header flag, two arguments": ["--header", f"X-Api: {SECRET}", "--port=1"],
    "short header flag": ["-H", f"X-Api: {SECRET}"],
    "header flag in a shell": [f"curl -H 'X-Api: {SECRET} and more {SECRET}' http://a/"],
    "header flag in a shell, double quotes": [f'curl -H "X-Api: {SECRET}" http://a/'],
    "header flag of another name": [f"--otlp-headers=X-Api: {SECRET}"],
    "header without a flag": [f"x-goog-api-key: {SECRET}"],
    "cookie": [f"Cookie: session={SECRET}"],
    "cookie that is set": [f"Set-Cookie: id={SECRET}; Path=/"],
    "signature of Azure": [f"https://a.blob.core.windows.net/m?sv=2024&sig={SECRET}&se=2026"],
    "signature of AWS": [f"https://b.s3.amazonaws.com/m?X-Amz-Credential={SECRET}&X-Amz-Signature={SECRET}"],
    "token of AWS": [f"https://b.s3.amazonaws.com/m?X-Amz-Security-Token={SECRET}"],
    "signature of Google": [f"https://storage.googleapis.com/b/m?X-Goog-Signature={SECRET}"],
    "token in a URL": [f"https://a.example/m?a=1&token={SECRET}"],
    "key in a URL": [f"https://a.example/m?api_key={SECRET}#x"],
    "JSON": [f'{{"user": "me", "password": "{SECRET}"}}'],
    "JSON with a quote in it": [f'{{"password": "a\\"{SECRET}"}}'],
    "JSON, camel case": [f'--config={{"accessToken":"{SECRET}","n":1}}'],
    "JSON within JSON": ['{"a": "{\\"clientSecret\\": \\"' + SECRET + '\\"}"}'],
    "Python": [f"{{'api_key': '{SECRET}'}}"],
    "PEM": [PEM],
    "PEM on one line": [PEM.replace("\n", "\\n")],
    "PEM that is cut": [PEM[:60]],
    "OpenSSH": [PEM.replace("RSA", "OPENSSH")],
    "PGP": [PEM.replace("RSA PRIVATE KEY", "PGP PRIVATE KEY BLOCK")],
    "Slack": [f"https://hooks.slack.com/services/T000/B000/{SECRET}"],
    "Teams": [f"https://me.webhook.office.com/webhookb2/{SECRET}@a/IncomingWebhook/b"],
    "Discord": [f"https://discord.com/api/webhooks/1/{SECRET}"],
    "Mattermost": [f"https://chat.example:8065/hooks/{SECRET}"],
    "Telegram": [f"https://api.telegram.org/bot1:{SECRET}/sendMessage"],
    "JWT": [f"eyJhbGciOiJSUzI1NiJ9.{SECRET}.{SECRET}"],
    "Google": [f"ya29.{SECRET}"],
    "EKS": [f"k8s-aws-v1.{SECRET}"],
    "camel case flag": [f"--apiKey={SECRET}"],
    "user info": [f"https://me:{SECRET}@a.example/"],
}


@pytest.mark.parametrize("name", PLANTS)
@pytest.mark.parametrize("how", ["arguments", "plain variable", "message"])
def test_plants(name: str, how: str) -> None:
    if how == "arguments":
        text = container(args=PLANTS[name])
    elif how == "plain variable":
        text = container(env=[{"name": "OPTIONS", "value": " ".join(PLANTS[name])}])
    else:
        text = " ".join(PLANTS[name])
    shown = masked(text)
    assert SECRET not in shown
    assert MASK in shown


ORDINARY = [
    "--model=Qwen/Qwen3-8B",
    "--port=8000",
    "--tokenizer=mistralai/Mistral-7B",
    "--tokenizer-mode mistral",
    "--tokenizer-pool-size=4",
    "--max-num-batched-tokens=8192",
    "--max-num-batched-tokens 8192",
    "--num-speculative-tokens=5",
    "--allow-credentials --port 8000",
    "--enable-auto-tool-choice",
    "--api-key-file=/run/keys/api",
    "--metrics-endpoint-auth=false",
    "--ssl-keyfile=/run/tls/tls.key",
    "--reasoning-end-token=</think>",
    '--speculative-config={"method": "ngram", "num_speculative_tokens": 5}',
    '--hf-overrides={"eos_token": "</s>", "tokenizer_class": "LlamaTokenizer"}',
    '--kv-transfer-config={"kv_connector":"NixlConnector","kv_role":"kv_both"}',
    "--header=Content-Type: application/json",
    "-H 'Accept: text/event-stream'",
    "https://huggingface.co/Qwen/Qwen3-8B?revision=main&design=2",
    "curl -fsS http://localhost:8000/health",
    "the server wants a bearer token, and basic authentication is off",
    "rbac.authorization.k8s.io/v1",
    "--authorization-mode=RBAC",
    "-----BEGIN CERTIFICATE-----",
    "a monkey --passes by",
    'Post "https://lws-webhook-service.lws-system.svc:443/mutate?timeout=10s": context deadline exceeded',
    'admission webhook "vpod.kb.io" denied the request: "token" is no name',
    'spec.containers[0].env[0].name: Invalid value: "api_key": a valid name is upper case',
]


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_arguments_stay(text: str) -> None:
    assert masked(text) == text
    whole = container(args=[text, "--dtype", "auto"])
    assert masked(whole) == whole


def test_lists_of_ordinary_arguments_stay() -> None:
    flags = [part for text in ORDINARY if text.startswith("--") and " " not in text for part in text.split("=", 1)]
    whole = container(args=flags)
    assert masked(whole) == whole


def test_what_is_no_secret_stays() -> None:
    text = container(
        args=["--model=Qwen/Qwen3-8B", "--port=8000"],
        env=[{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}}],
    )
    assert masked(text) == text


# Of each provider, in its own form; none was ever valid.
KEYS = {
    "OpenAI, legacy": "sk-q7Wd2LmXzR4tVb8NcKf0T3BlbkFJyHs6GpEa1UjOiYv5",
    "OpenAI, project": "sk-proj-q7Wd2LmXzR4tVb8NcKf0_yHs6GpEa-1UjOiYv5",
    "Anthropic": "sk-ant-api03-q7Wd2LmX-zR4tVb8_NcKf0yHs6GpEa1UjOiYv5-AA",
    "LiteLLM": "sk-T9DoMbUQzl_UAKqNqRr-2g",
    "lower case": "sk-0f3a9c1d7be24856a0f3c9d17be24856",
    "OpenRouter": "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",
    "Langfuse": "sk-lf-0f3a9c1d-7be2-4856-a0f3-c9d17be24856",
    "NVIDIA": "nvapi-q7Wd2LmXzR4tVb8NcKf0",
    "GitLab": "glpat-q7Wd2LmXzR4tVb8NcKf0",
    "GitHub": "ghp_q7Wd2LmXzR4tVb8NcKf0yHs6GpEa1UjOiYv5",
    "AWS": "AKIAIOSFODNN7EXAMPLE",
    "the fleet": "mpk_q7Wd2LmXzR4tVb8NcKf0",
}
NAMES = (
    *("sk-learn", "sk-1234", "task-1", "risk-model", "my-sk-learn-models"),
    # As objects that are made of others are named.
    *("sk-learn-large-embeddings-eu1", "sk-learn-large-de06b15fe6", "sk-learn-large-6d4cf56db6-x2x9k"),
    *("sk-internationalization2-models", "sk-20260131-20260228", "nvapi-credentials", "glpat-runner-2026"),
    *(
        "fw_trainingoperatorimages",
        "r8_Llamaquantizedmodel",
        "npm_packagelockfilesversion",
        "fw_TrainingOperatorImages",
    ),
    *("hf_modelcachedirectorypathvolume", "xai-grok2mini1212checkpoint", "jina_embeddingsv3basemultilingual"),
    *("as-internationalizationmod", "pa-internationalization-models-for-europe-and-asia"),
    *("npm_publishers_emea", "ASIA-PACIFIC-TEAM-2", "sk-Learn-Large-Embeddings"),
)


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("text", ["{}", "in a sentence: {}.", "https://a.example/{}"])
def test_a_key_is_known_by_its_form(name: str, text: str) -> None:
    text = text.format(KEYS[name])
    assert holds_key(text)
    for shown in (masked(text), short_value(text)):
        assert MASK in shown
        assert KEYS[name][-8:] not in shown


@pytest.mark.parametrize("name", NAMES)
def test_names_that_begin_like_a_key_stay(name: str) -> None:
    assert not holds_key(name)
    assert masked(name) == name
    assert short_value(name) == f'"{name}"'


def test_a_password_is_hidden_where_a_value_is_cut_within_it() -> None:
    assert short_value(f"https://me:{SECRET * 9}@a.example/") == f'"https://{MASK}@a.example/"'


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "text", ["{}", "x: {}", "in a sentence {}, and more", "https://a.example/{}/x", "--flag={}", '"{}"']
)
def test_a_secret_of_a_known_format_is_masked_anywhere(name: str, text: str) -> None:
    shown = masked(text.format(FORMATS[name]))
    assert MASK in shown
    assert FORMATS[name][6:16] not in shown
    assert FORMATS[name][-10:] not in shown


@pytest.mark.parametrize("name", PLACES)
def test_a_secret_of_any_format_is_masked_where_people_write_secrets(name: str) -> None:
    text, secret = PLACES[name]
    shown = masked(text)
    assert MASK in shown
    assert secret not in shown
    # A mask changes when it is masked again in no way that shows more.
    assert secret not in masked(shown)


@pytest.mark.parametrize("name", PLACES)
def test_what_surrounds_a_secret_stays(name: str) -> None:
    text, secret = PLACES[name]
    before = text.partition(secret)[0].split("\n")[0]
    words = [
        word
        for word in before.split()
        if word.isalpha() and len(word) > 3 and word not in ("Basic", "Bearer", "Digest")
    ]
    assert [word for word in words if word not in masked(text)] == []


PLAIN = [
    "authSecret: hf-token",
    "secret: edge-kubeconfig",
    "secretRef: {name: together, key: apiKey}",
    "- topologyKey: modelplane.ai/region",
    "- {metadataKey: llm_input_token, type: InputToken}",
    "key: nvidia.com/gpu.product",
    "token: Invalid value: must not be empty",
    "credentials: Permission denied on resource",
    "error: password: Required value",
    "tokens: 8192",
    "max_output_token: 4096",
    "token: ${HF_TOKEN}",
    "password: '{{ vault_password }}'",
    "export TOKEN=$(cat token.txt)",
    "kubectl create secret generic hf --from-file=apiKey=key.txt",
    "credential: {method: APIKey}",
    "tls.key: /etc/tls/tls.key",
    "-e fleet_keys_secret=customers",
    "docker run -u 1000:1000 image",
    "docker run --user 65532:65532 image",
    "ssh login -p 2222",
    "Basic authentication is off",
    "oci://registry.example:5000/charts/a@sha256:0f3a9c1d",
    "https://registry.example:5000/a@v1",
    "image: quay.io/a/b@sha256:0f3a9c1d7be24856a0f3c9d17be248560f3a9c1d7be24856a0f3c9d17be24856",
    "revision: 0f3a9c1d7be24856a0f3c9d17be248560f3a9c1d",
    "uid: 0f3a9c1d-7be2-4856-a0f3-c9d17be24856",
    "secretName: models-example-com",
    "passes: 12",
    "authorization.k8s.io/v1: ready",
    # Expressions, files and comments where a password can be.
    *("token=$TOKEN", "token=`cat x`", "password: $HOME/x", "token = $env:TOKEN", "password=%s", "password=%(pw)s"),
    *("password: <password>", "password='<your password>'", "password: *alias", "password: # none", "token: !vault |"),
    *("token=@token.txt", "secretKey: /run/secrets/key", "password: /run/secrets/db", "password: lookup('a', 'b')"),
    *("['--model', 'a', '--port', '1']", "--token, then more", "curl -fsSu http://a", "ENV MODEL_DIR /models"),
    "kubectl create configmap a --from-literal=a=b",
    "{name: MAX_TOKENS, value: 4096}",
    "{value: 4096, name: MAX_TOKENS}",
    "- value: x\n  key: a\nmetadata:\n  name: HF_TOKEN\n",
    "kind: ConfigMap\ndata:\n  a: b\n---\nkind: Secret\nmetadata:\n  name: x\n",
    "items:\n- kind: Secret\n  metadata: {name: a}\n- kind: ConfigMap\n  data:\n    a: b\n",
]
PLAIN_VARIABLES = (
    "MAX_TOKENS TOKENIZERS_PARALLELISM TOKENIZER_DIR KEY_BLOCK_SIZE KEYCLOAK_URL HF_TOKEN_PATH CERT_MANAGER_NS "
    "PRIVATE_SUBNET NCCL_COMPASS MONKEY AUTHORS PASSENGER_COUNT"
)
SECRET_VARIABLES = (
    "DBPASS ROOTPASS OPENAIKEY TOKEN_HF HF_TOKENS CREDS DB_PWD KEY_OPENAI GITHUB_TOKEN_RO AUTH_BEARER PRIVATE_KEY "
    "AUTHTOKEN GH_PAT TLS_KEY_PEM"
)


@pytest.mark.parametrize("name", PLAIN_VARIABLES.split())
def test_variables_that_contain_the_word_of_a_secret_stay(name: str) -> None:
    text = container(env=[{"name": name, "value": "4096"}])
    assert masked(text) == text
    assert not secret_like(name)


@pytest.mark.parametrize("name", SECRET_VARIABLES.split())
def test_variables_with_the_word_of_a_secret_anywhere(name: str) -> None:
    assert secret_like(name)


@pytest.mark.parametrize("text", PLAIN)
def test_ordinary_text_stays(text: str) -> None:
    assert masked(text) == text


ROOT = Path(__file__).parents[5]
CORPUS = sorted(
    path
    for folder in ("docs", "inventories", "roles", "playbooks", "tests/data/manifests")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".yaml", ".yml", ".md")
)
SENT = ("Bearer ", "x-api-key: ", "api_key=")
"""Requests with a key in pages and comments; a mask there hides a placeholder."""


def test_manifests_and_pages_stay() -> None:
    assert len(CORPUS) > 150
    texts = [path.read_text(encoding="utf-8") for path in CORPUS]
    lines = [line for text in texts for line in text.split("\n")]
    changed = [line for line in lines if masked(line) != line and not any(each in line for each in SENT)]
    assert len(lines) > 20_000
    assert changed == []
    # Of a whole text as of its lines.
    assert [
        path for path, text in zip(CORPUS, texts, strict=True) if len(masked(text).split("\n")) != text.count("\n") + 1
    ] == []


UNITS = [
    *("a", "a-", "x-", "--a ", "-a-b ", "0", "aA0", "\\", "'", '"', '\\"', "- - ", " ", "\t"),
    *("sk-", "sk-a", "glpat-", "eyJa.", "eyJaaaaaaaaaaa.aaaa.", "SG.a", "1234567890:AA", "M" * 26 + ".", "~.", "pat"),
    *("key: ", "key=", "token:", 'token: "', 'token=\\"', "name: a,", '"a": "', "auth: |\n  ", "LS0tLS1CRUdJTi"),
    *("://a:", "://a", "?sig=", "https://hooks.a/", "Basic ", "Basic aaaa", "bearer ", "-H ", "-H a: ", "<password>"),
    *(
        '["--a", ',
        "[-a, ",
        "Cookie: a=b; ",
        "a=b; ",
        "password=a,",
        ",",
        "a&",
        "value:",
        "value: '",
        'value: "',
        "name:",
    ),
    *(
        'value\\": \\"',
        "- value: a\n",
        "- value: |\n   a\n",
        "setx A ",
        "--from-literal=a=",
        "curl -",
        "curl -u",
        " -u",
    ),
    *(
        "kind: Secret\n",
        "data:\n",
        "kind: Secret\ndata:\n a: b\n",
        '"kind": "Secret" "data": {',
        '"data":{"',
        "- ",
        "\n",
    ),
    *("kind: Secret\n---\n", " data:\n", "password=$", "password=/", "['a'] = ", "Digest a=b, "),
    *("login ", "login -p", "mysql ", "curl -u a:", "machine a login a password ", "-----BEGIN PRIVATE KEY-----"),
]


@pytest.mark.parametrize("unit", UNITS)
def test_the_time_is_linear(unit: str) -> None:
    times = []
    for length in (20_000, 80_000):
        start = time.process_time()
        masked((unit * (length // len(unit) + 1))[:length] + "!")
        times.append(time.process_time() - start)
    assert times[1] < max(0.5, 10 * times[0])

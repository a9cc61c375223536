# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Secrets in the formats of providers, and in the places where people write them. None was ever valid.

They are put together here, so that scanners of repositories do not take them for real ones.
"""

from __future__ import annotations

import base64

MIXED = "q7Wd2LmXzR4tVb8NcKf0yHs6GpEa1UjOiYv5Bw3Zx9QrTnMkLdSgHfJ"
LETTERS = "qkWdyLmXzRutVbpNcKfoyHsaGpEaxUjOiYvn"
HEX = "0f3a9c1d7be24856a0f3c9d17be248560f3a9c1d7be24856a0f3c9d17be24856"
UPPER = "Q7WD2LMXZR4TVB8N"
PEM = "\n".join(f"-----{each} EC PRIVATE KEY-----" for each in ("BEGIN", "END")).replace(
    "\n", f"\nMHc{MIXED}\n{MIXED}\n"
)


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


FORMATS: dict[str, str] = {
    "Hugging Face": f"hf_{LETTERS[:34]}",
    "Hugging Face, organization": f"api_org_{LETTERS[:34]}",
    "Anthropic": f"sk-ant-api03-{MIXED}-AA",
    "OpenAI, project": f"sk-proj-{MIXED}",
    "OpenAI, service account": f"sk-svcacct-{MIXED}",
    "OpenAI": f"sk-{MIXED[:48]}",
    "Groq": f"gsk_{MIXED[:52]}",
    "NVIDIA": f"nvapi-{MIXED}",
    "Replicate": f"r8_{MIXED[:37]}",
    "xAI": f"xai-{MIXED}",
    "Perplexity": f"pplx-{MIXED[:48]}",
    "Fireworks": f"fw_{MIXED[:24]}",
    "Together": f"tgp_v1_{MIXED[:43]}",
    "Cerebras": f"csk-{MIXED[:48].lower()}",
    "Pinecone": f"pcsk_{MIXED[:20]}_{MIXED}",
    "LangSmith": f"lsv2_pt_{HEX[:32]}_{HEX[:10]}",
    "Tavily": f"tvly-dev-{MIXED[:32]}",
    "Jina": f"jina_{MIXED}",
    "Google": f"AIzaSy{MIXED[:33]}",
    "Google, refresh token": f"1//0{MIXED}",
    "Google, client secret": f"GOCSPX-{MIXED[:28]}",
    "AWS": f"AKIA{UPPER}",
    "AWS, temporary": f"ASIA{UPPER}",
    "Azure, client secret": f"abc8Q~{MIXED[:34]}",
    "Databricks": f"dapi{HEX[:32]}",
    "DigitalOcean": f"dop_v1_{HEX}",
    "DigitalOcean, refresh": f"dor_v1_{HEX}",
    "GitHub": f"ghp_{MIXED[:36]}",
    "GitHub, app": f"ghs_{MIXED[:36]}",
    "GitHub, fine-grained": f"github_pat_{MIXED[:22]}_{MIXED}",
    "GitLab": f"glpat-{MIXED[:20]}",
    "GitLab, runner": f"glrt-{MIXED[:20]}",
    "npm": f"npm_{MIXED[:36]}",
    "Docker": f"dckr_pat_{MIXED[:27]}",
    "PyPI": f"pypi-AgEIcHlwaS5vcmc{MIXED}",
    "RubyGems": f"rubygems_{HEX[:48]}",
    "Slack": f"xoxb-1234567890123-{MIXED[:24]}",
    "Slack, app": f"xapp-1-A0{UPPER[:9]}-1234567890123-{HEX}",
    "SendGrid": f"SG.{MIXED[:22]}.{MIXED[:43]}",
    "Square": f"sq0csp-{MIXED[:43]}",
    "Square, access": f"sq0atp-{MIXED[:22]}",
    "Stripe": f"sk_live_{MIXED[:24]}",
    "Shopify": f"shpat_{HEX[:32]}",
    "Tailscale": f"tskey-auth-k{MIXED[:10]}CNTRL-{MIXED[:32]}",
    "Vault": f"hvs.CAESI{MIXED}",
    "Telegram": f"1234567890:AA{MIXED[:33]}",
    "Grafana": f"glsa_{MIXED[:32]}_0f3a9c1d",
    "Sentry": f"sntrys_{MIXED}",
    "Terraform": f"{MIXED[:14]}.atlasv1.{MIXED}",
    "Linear": f"lin_api_{MIXED[:40]}",
    "age": f"AGE-SECRET-KEY-1{(UPPER * 4)[:58]}",
    "JWT": f"eyJhbGciOiJSUzI1NiJ9.eyJ{MIXED}.{MIXED}",
    "private key in Base64": _base64(PEM),
}
PASSWORD = "hunter2-Zq"
LONG = _base64(MIXED + MIXED[:9])
PLACES: dict[str, tuple[str, str]] = {
    # place: text, and the secret in it
    "YAML": (f"spec:\n  token: {PASSWORD}\n", PASSWORD),
    "YAML, an entry": (f"- password: {PASSWORD}\n", PASSWORD),
    "YAML, letters only": ("password: correct-horse\n", "correct-horse"),
    "YAML, quoted": (f"apiKey: '{PASSWORD} {PASSWORD}'", PASSWORD),
    "YAML, a comment": (f"client_secret: {PASSWORD}  # of staging", PASSWORD),
    "YAML, a block": (f"token: |\n  {PASSWORD}\nname: a", PASSWORD),
    "YAML, a folded block": (f"auth:\n  api_token: >-\n    {PASSWORD}\n    {PASSWORD}\n", PASSWORD),
    "YAML, flow style": ("{user: me, password: " + PASSWORD + "}", PASSWORD),
    "YAML, in a sentence": (f"the server got token: {PASSWORD}, and refused", PASSWORD),
    "YAML, key alone": (f"key: {MIXED}", MIXED),
    "export": (f"export DB_PASSWORD={PASSWORD}", PASSWORD),
    "export, quoted": (f'export DB_PASSWORD="{PASSWORD} {PASSWORD}"', PASSWORD),
    "before a command": (f"PGPASSWORD={PASSWORD} psql -h db", PASSWORD),
    "Dockerfile": (f"ENV API_TOKEN={PASSWORD}", PASSWORD),
    "docker run": (f"docker run -e DB_PASSWD={PASSWORD} image", PASSWORD),
    "a file of variables": (f"AWS_SECRET_ACCESS_KEY={MIXED[:40]}", MIXED[:40]),
    "INI": (f"password = {PASSWORD}", PASSWORD),
    "properties": (f"spring.datasource.password={PASSWORD}", PASSWORD),
    "Ruby": (f":password => '{PASSWORD}'", PASSWORD),
    "Go": (f'password := "{PASSWORD}"', PASSWORD),
    "Azure Storage": (f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={LONG};EndpointSuffix=core", LONG),
    "Azure Service Bus": (f"Endpoint=sb://a/;SharedAccessKeyName=root;SharedAccessKey={LONG}", LONG),
    "SQL Server": (f"Server=db;User Id=sa;Password={PASSWORD};Encrypt=true", PASSWORD),
    "SQL Server, short": (f"Server=db;Uid=sa;Pwd={PASSWORD};", PASSWORD),
    "PostgreSQL": (f"postgresql://me:{PASSWORD}@db:5432/x", PASSWORD),
    "PostgreSQL, a slash": (f"postgresql://me:{PASSWORD}/{PASSWORD}@db:5432/x", PASSWORD),
    "PostgreSQL, words": (f"host=db user=me password={PASSWORD} sslmode=require", PASSWORD),
    "MongoDB": (f"mongodb+srv://me:{PASSWORD}@a.example/x", PASSWORD),
    "Redis": (f"redis://:{PASSWORD}@redis:6379/0", PASSWORD),
    "AMQP": (f"amqp://me:{PASSWORD}@mq/", PASSWORD),
    "Azure SAS": (f"https://a.blob.core.windows.net/m?sv=2024&sig={MIXED}%3D&se=2026", MIXED),
    "Basic": ("Authorization: Basic " + _base64(f"me:{PASSWORD}"), _base64(f"me:{PASSWORD}")),
    "Basic alone": ("sent Basic " + _base64(f"me:{PASSWORD}"), _base64(f"me:{PASSWORD}")),
    "Bearer": (f"Authorization: Bearer {MIXED}", MIXED),
    "curl": (f"curl -u me:{PASSWORD} https://a.example/", PASSWORD),
    "curl, long": (f"curl --user me:{PASSWORD} https://a.example/", PASSWORD),
    "mysql": (f"mysql -h db -u me -p{PASSWORD} x", PASSWORD),
    "docker login": (f"docker login -u me -p {PASSWORD} a.example", PASSWORD),
    "sshpass": (f"sshpass -p {PASSWORD} ssh a.example", PASSWORD),
    "redis-cli": (f"redis-cli -h redis -a {PASSWORD} ping", PASSWORD),
    "netrc": (f"machine a.example login me password {PASSWORD}", PASSWORD),
    "kubeconfig": (f"    client-key-data: {LONG}", LONG),
    "kubeconfig, token": (f"    token: {PASSWORD}", PASSWORD),
    "logins of registries": ('{"auths":{"a.example":{"auth":"' + LONG + '"}}}', LONG),
    "logins of registries, Base64": (f".dockerconfigjson: {LONG}", LONG),
    "a variable in JSON": ('[{"name":"HF_TOKEN","value":"' + PASSWORD + '"}]', PASSWORD),
    "a variable in flow style": ("{name: HF_TOKEN, value: " + PASSWORD + "}", PASSWORD),
    "XML": (f"<password>{PASSWORD}</password>", PASSWORD),
    "PEM": (PEM, MIXED),
    "a query": (f"https://a.example/?api_key={PASSWORD}", PASSWORD),
}

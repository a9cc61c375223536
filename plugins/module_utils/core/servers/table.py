# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Table of the known inference servers, with the defaults of the version that each entry names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

ALL_ADDRESSES = "0.0.0.0"
TENSOR = "--tensor-parallel-size"
PIPELINE = "--pipeline-parallel-size"
DATA = "--data-parallel-size"

_LOOPBACK = re.compile(r"127\..*|localhost|::1|\[::1\]|0:0:0:0:0:0:0:1")
# A release, and words that say what an image is built for.
_TAG = re.compile(
    r"v?([0-9]{1,4}\.[0-9]{1,4}(?:\.[0-9]{1,4}){0,2}(?:\.post[0-9]{1,3})?)"
    r"(?:-(?:cu[0-9.]+|rocm[0-9.]*|x86_64|amd64|arm64|aarch64|ubuntu[0-9.]*|runtime|mi[0-9]+x?|b200|gb200|blackwell))*",
    re.ASCII,
)


@dataclass(frozen=True)
class Server:
    """An inference server.

    `version` and `source` are those of the facts. Flags are in the spelling of the server's documentation, the long one
    first; a server has a `variable` if it reads the value from the environment too. `starts` are the words by which a
    command line starts it: a program, a program and its subcommand, or a Python module. `images`: the end of a
    repository whose entry point starts it, with the variables that the image sets. `released`: the end of the
    repository whose tags are the versions of the server.

    `address` and `port`: what it listens on by default. `tls` and `sockets`: flags with which it serves HTTPS, and only
    on a Unix socket. `health` answers 200 once the model is loaded; `metrics` is the path of Prometheus metrics.
    `model` and `names`: flags for the model and for the names that requests may use, `one_name` if it takes only one.
    `stream_usage`: flag with which all streams end with their tokens.
    `axes`: flags of parallelism by axis. `gang`: flags of each pod of a gang, with their long names by purpose.
    `alike`: flags that prefill and decode, and the members of a gang, must agree on. `running` and `progress`: metrics
    of requests in the server and of computed tokens; the first ones are 0 if it is idle.
    """

    name: str
    title: str
    version: str
    source: str
    starts: Sequence[tuple[str, ...]]
    images: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    released: str = ""
    address: str = ALL_ADDRESSES
    address_flags: Sequence[str] = ("--host",)
    address_variable: str = ""
    port: int = 8000
    port_flags: Sequence[str] = ("--port",)
    port_variable: str = ""
    tls: Sequence[str] = ()
    tls_variables: Sequence[str] = ()
    sockets: Sequence[str] = ()
    prefixes: Sequence[str] = ()
    health: str = "/health"
    metrics: str = "/metrics"
    model: Sequence[str] = ("--model",)
    model_variable: str = ""
    names: Sequence[str] = ()
    one_name: bool = True
    keys: Sequence[str] = ()
    key_variable: str = ""
    stream_usage: str = ""
    dashes: bool = False
    block_size: Sequence[str] = ()
    axes: Mapping[str, str] = field(default_factory=dict)
    memory: tuple[str, Fraction] | None = None
    context: Sequence[str] = ()
    gang: Mapping[str, Sequence[str]] = field(default_factory=dict)
    alike: Sequence[Sequence[str]] = ()
    transfer: Sequence[str] = ()
    running: Sequence[str] = ()
    cache_use: str = ""
    progress: Sequence[str] = ()


_TENSORS = dict.fromkeys((TENSOR, "--tp-size", "--tp"), TENSOR)

SERVERS: Mapping[str, Server] = {
    server.name: server
    for server in (
        Server(
            name="vllm",
            title="vLLM",
            version="0.33.0",
            source="https://docs.vllm.ai/en/stable/cli/serve/",
            starts=(("vllm", "serve"), ("vllm.entrypoints.openai.api_server",), ("vllm.entrypoints.api_server",)),
            images={"vllm-openai": {}},
            released="vllm/vllm-openai",
            tls=("--ssl-keyfile", "--ssl-certfile"),
            sockets=("--uds",),
            names=("--served-model-name",),
            one_name=False,
            keys=("--api-key",),
            key_variable="VLLM_API_KEY",
            stream_usage="--enable-force-include-usage",
            dashes=True,
            block_size=("--block-size",),
            axes={TENSOR: TENSOR, "-tp": TENSOR, PIPELINE: PIPELINE, "-pp": PIPELINE, DATA: DATA, "-dp": DATA},
            memory=("--gpu-memory-utilization", Fraction(92, 100)),
            context=("--max-model-len",),
            gang={
                "nodes": ("--nnodes", "-n"),
                "rank": ("--node-rank", "-r"),
                "leader": ("--master-addr",),
                "worker": ("--headless",),
            },
            alike=(
                *(("--dtype",), ("--quantization", "-q"), ("--kv-cache-dtype",), ("--max-model-len",)),
                *(("--revision",), ("--attention-backend",), ("--speculative-config", "-sc"), ("--load-format",)),
            ),
            transfer=("--kv-transfer-config",),
            running=("vllm:num_requests_running", "vllm:num_requests_waiting"),
            cache_use="vllm:kv_cache_usage_perc",
            progress=("vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:kv_cache_usage_perc"),
        ),
        Server(
            name="sglang",
            title="SGLang",
            version="0.5.23",
            source="https://docs.sglang.ai/advanced_features/server_arguments.html",
            starts=(("sglang.launch_server",), ("sglang", "serve")),
            released="lmsysorg/sglang",
            address="127.0.0.1",
            port=30000,
            tls=("--ssl-keyfile", "--ssl-certfile"),
            model=("--model-path", "--model"),
            names=("--served-model-name",),
            keys=("--api-key",),
            stream_usage="--stream-response-default-include-usage",
            block_size=("--page-size",),
            axes={
                **_TENSORS,
                **dict.fromkeys((PIPELINE, "--pp-size"), PIPELINE),
                **dict.fromkeys((DATA, "--dp-size", "--dp"), DATA),
            },
            # It computes the fraction from the machine, so that all of the memory is the bound.
            memory=("--mem-fraction-static", Fraction(1)),
            context=("--context-length",),
            gang={
                "nodes": ("--nnodes",),
                "rank": ("--node-rank",),
                "leader": ("--dist-init-addr", "--nccl-init-addr"),
            },
            alike=(
                *(("--dtype",), ("--quantization",), ("--kv-cache-dtype",), ("--context-length",), ("--revision",)),
                *(("--attention-backend",), ("--speculative-algorithm",), ("--load-format",)),
            ),
            transfer=("--disaggregation-transfer-backend",),
            running=("sglang:num_running_reqs", "sglang:num_queue_reqs"),
            progress=(
                *("sglang:prompt_tokens_total", "sglang:generation_tokens_total"),
                *("sglang:realtime_tokens_total", "sglang:token_usage"),
            ),
        ),
        Server(
            name="tensorrt-llm",
            title="TensorRT-LLM",
            version="1.2",
            source="https://nvidia.github.io/TensorRT-LLM/commands/trtllm-serve/trtllm-serve.html",
            starts=(("trtllm-serve",),),
            address="localhost",
            metrics="/prometheus/metrics",
            names=("--served_model_name", "--served-model-name"),
        ),
        Server(
            name="tgi",
            title="Text Generation Inference",
            version="3.3.6",
            source="https://huggingface.co/docs/text-generation-inference/reference/launcher",
            starts=(("text-generation-launcher",),),
            images={"text-generation-inference": {"PORT": "80"}},
            address_flags=("--hostname",),
            port=3000,
            port_flags=("--port", "-p"),
            port_variable="PORT",
            model=("--model-id",),
            model_variable="MODEL_ID",
            names=("--served-model-name",),
            keys=("--api-key",),
            key_variable="API_KEY",
        ),
        Server(
            name="llama.cpp",
            title="llama.cpp",
            version="b7200",
            source="https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md",
            starts=(("llama-server",),),
            images={"ggml-org/llama.cpp:server": {"LLAMA_ARG_HOST": "0.0.0.0"}},
            address="127.0.0.1",
            address_variable="LLAMA_ARG_HOST",
            port=8080,
            port_variable="LLAMA_ARG_PORT",
            tls=("--ssl-key-file", "--ssl-cert-file"),
            tls_variables=("LLAMA_ARG_SSL_KEY_FILE",),
            prefixes=("--api-prefix",),
            model=("--hf-repo", "-hf", "-hfr", "--model", "-m"),
            names=("--alias", "-a"),
            keys=("--api-key", "--api-key-file"),
            key_variable="LLAMA_API_KEY",
        ),
        Server(
            name="ollama",
            title="Ollama",
            version="0.13",
            source="https://docs.ollama.com/faq",
            starts=(("ollama", "serve"),),
            images={"ollama/ollama": {"OLLAMA_HOST": "0.0.0.0:11434"}},
            address="127.0.0.1",
            address_flags=(),
            address_variable="OLLAMA_HOST",
            port=11434,
            port_flags=(),
            health="/",
            metrics="",
            model=(),
        ),
        Server(
            name="nim",
            title="NIM",
            version="2.1",
            source="https://docs.nvidia.com/nim/large-language-models/latest/reference/environment-variables.html",
            starts=(("/opt/nim/start_server.sh",), ("nim-serve",)),
            images={"nvcr.io/nim/": {}},
            address_flags=(),
            port_flags=(),
            port_variable="NIM_SERVER_PORT",
            tls_variables=("NIM_SSL_KEY_PATH",),
            health="/v1/health/ready",
            metrics="/v1/metrics",
            model=(),
            model_variable="NIM_MODEL_PATH",
        ),
        Server(
            name="dynamo",
            title="Dynamo",
            version="1.6.0",
            source="https://docs.nvidia.com/dynamo/v1.6.0/reference/components/frontend-configuration",
            starts=(("dynamo.frontend",),),
            address_flags=("--http-host",),
            address_variable="DYN_HTTP_HOST",
            port_flags=("--http-port",),
            port_variable="DYN_HTTP_PORT",
            tls=("--tls-cert-path",),
            tls_variables=("DYN_TLS_CERT_PATH",),
            model=(),
            names=("--model-name",),
        ),
        Server(
            name="triton",
            title="Triton",
            version="2.63",
            source="https://docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/",
            starts=(("tritonserver",),),
            address_flags=("--http-address",),
            port_flags=("--http-port",),
            health="/v2/health/ready",
            # On port 8002, unless --metrics-port sets another one.
            metrics="/metrics",
            model=(),
        ),
    )
}

_STARTS: dict[str, list[tuple[Server, tuple[str, ...]]]] = {}
for _server in SERVERS.values():
    for _words in _server.starts:
        _STARTS.setdefault(_words[0], []).append((_server, _words))
_PATTERNS = {
    server.name: re.compile(
        r"(?<![\w.-])(?:" + "|".join(r"[ \t]+".join(map(re.escape, start)) for start in server.starts) + r")(?![\w.-])"
    )
    for server in SERVERS.values()
}


def starting(words: Sequence[str]) -> tuple[Server, int] | None:
    """Return the server that a command line starts, and the position of its first argument."""
    for position, word in enumerate(words):
        for first in dict.fromkeys((word, word.rpartition("/")[2])):
            for server, start in _STARTS.get(first, ()):
                end = position + len(start)
                if tuple(words[position + 1 : end]) == start[1:]:
                    return server, end
    return None


def starting_in(script: str) -> set[str]:
    """Return the names of the servers that the text of a script starts."""
    return {name for name, pattern in _PATTERNS.items() if pattern.search(script)}


def behind_start(server: Server, script: str) -> str:
    """Return the text of a script behind the first start of a server."""
    return (*_PATTERNS[server.name].split(script, maxsplit=1), "")[1]


def of_image(image: str) -> Server | None:
    """Return the server that the entry point of an image starts."""
    return next((server for server in SERVERS.values() if image_variables(server, image) is not None), None)


def image_variables(server: Server, image: str) -> Mapping[str, str] | None:
    """Return the variables that an image of a server sets; None for other images."""
    repository, tag = _image(image)
    for end, variables in server.images.items():
        path, __, variant = end.partition(":")
        is_inside = path.endswith("/") and repository.startswith(path)
        if (is_inside or f"/{repository}".endswith(f"/{path}")) and tag.startswith(variant):
            return variables
    return None


def _image(image: str) -> tuple[str, str]:
    """Return the repository of an image with its registry, and its tag."""
    repository, colon, tag = image.partition("@")[0].rpartition(":")
    return (repository, tag) if colon and "/" not in tag else (image.partition("@")[0], "")


def is_loopback(address: str) -> bool:
    """Return whether an address is reached only from within the pod."""
    return bool(_LOOPBACK.fullmatch(address))


def version(server: Server, image: str) -> str:
    """Return the version of a server according to the tag of its own image, such as 0.11.0; empty if it is unknown."""
    repository, tag = _image(image)
    found = _TAG.fullmatch(tag)
    is_own = bool(server.released) and f"/{repository}".endswith(f"/{server.released}")
    return found[1] if found and is_own else ""


def release(text: str) -> tuple[int, ...]:
    """Return a version as numbers to compare; empty for an unknown version."""
    numbers, __, post = text.partition(".post")
    return (*(int(number) for number in numbers.split(".")), *([int(post)] if post else [])) if text else ()

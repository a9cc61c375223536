# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Table of inference servers. Comments name the version and the documentation of the defaults."""

from __future__ import annotations

import functools
import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from . import released_flags

ALL_ADDRESSES = "0.0.0.0"
TENSOR = "--tensor-parallel-size"
PIPELINE = "--pipeline-parallel-size"
DATA = "--data-parallel-size"

_LOOPBACK_NAMES = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback")
# The entry point of these images starts llama-server if the first argument is --server.
_TOOLS_IMAGE = re.compile(r"(?:.*/)?(?:ggml-org|ggerganov)/llama\.cpp:full.*")
# A release, and suffixes for a platform.
_TAG = re.compile(
    r"v?([0-9]{1,4}\.[0-9]{1,4}(?:\.[0-9]{1,4}){0,2}(?:\.post[0-9]{1,3})?)"
    r"(?:-(?:cu[0-9.]+|rocm[0-9.]*|x86_64|amd64|arm64|aarch64|ubuntu[0-9.]*|runtime|mi[0-9]+x?|b200|gb200|blackwell))*",
    re.ASCII,
)


@dataclass(frozen=True)
class Setting:
    """Setting of a server: its flags (the long flag first), its environment variable, and its default."""

    flags: Sequence[str] = ()
    variable: str = ""
    default: str = ""


_NO_SETTING = Setting()


@dataclass(frozen=True)
class Server:
    """Inference server."""

    name: str
    title: str
    starts: Sequence[tuple[str, ...]]
    """Words that start the server: a program, a program and its subcommand, or a Python module."""
    images: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Variables that images with this server as entry point set, by the end of the image repository."""
    released: str = ""
    """End of the repository with the versions of the server as tags."""
    address: Setting = Setting(("--host",), default=ALL_ADDRESSES)
    """Address to listen on. If it has no flags, its variable also contains the port."""
    port: Setting = Setting(("--port",), default="8000")
    tls: Setting = _NO_SETTING
    socket: Sequence[str] = ()
    """Flags for a Unix socket instead of an address and a port."""
    prefix: Setting = _NO_SETTING
    """Prefix of the paths of all requests."""
    model: Setting = Setting(("--model",))
    key: Setting = _NO_SETTING
    """API key that requests must have."""
    health: str = "/health"
    """Path that responds with 200 when the model is loaded."""
    names: Sequence[str] = ()
    """Flags for the served model names, for a server that rejects requests for other models."""
    one_name: bool = False
    stream_usage: str = ""
    """Flag that adds token usage to the end of all streams."""
    dashes: bool = False
    """True if flags can have underscores instead of dashes."""
    block_size: Sequence[str] = ()
    axes: Mapping[str, str] = field(default_factory=dict)
    """Axes of parallelism by flag or variable. The axes have the names of vLLM's long flags."""
    one_device: bool = True
    """False if the number of devices without an axis is unknown."""
    memory: tuple[str, Fraction] | None = None
    """Flag for the fraction of device memory that the server uses, and its default."""
    context: Sequence[str] = ()
    gang: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Flags that join the pods of a gang, by purpose."""
    running: Sequence[str] = ()
    """Metrics that are 0 if the server has no requests."""
    progress: Sequence[str] = ()
    """Metrics that change while the server computes tokens."""


_SSL = Setting(("--ssl-keyfile", "--ssl-certfile"))

_SERVERS = (
    # 0.33.0: https://docs.vllm.ai/en/stable/cli/serve/
    Server(
        name="vllm",
        title="vLLM",
        starts=(("vllm", "serve"), ("vllm.entrypoints.openai.api_server",), ("vllm.entrypoints.api_server",)),
        images={"vllm-openai": {}},
        released="vllm/vllm-openai",
        tls=_SSL,
        socket=("--uds",),
        key=Setting(("--api-key",), "VLLM_API_KEY"),
        names=("--served-model-name",),
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
        running=("vllm:num_requests_running", "vllm:num_requests_waiting"),
        # Tokens of a long prompt are counted at its end. The use of the KV cache changes with each part of the prompt.
        progress=("vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:kv_cache_usage_perc"),
    ),
    # 0.5.23: https://docs.sglang.ai/advanced_features/server_arguments.html
    Server(
        name="sglang",
        title="SGLang",
        starts=(("sglang.launch_server",), ("sglang", "serve")),
        released="lmsysorg/sglang",
        address=Setting(("--host",), default="127.0.0.1"),
        port=Setting(("--port",), default="30000"),
        tls=_SSL,
        model=Setting(("--model-path", "--model")),
        key=Setting(("--api-key",)),
        names=("--served-model-name",),
        one_name=True,
        stream_usage="--stream-response-default-include-usage",
        block_size=("--page-size",),
        axes={
            **dict.fromkeys((TENSOR, "--tp-size", "--tp"), TENSOR),
            **dict.fromkeys((PIPELINE, "--pp-size"), PIPELINE),
            **dict.fromkeys((DATA, "--dp-size", "--dp"), DATA),
        },
        # The default depends on the node. The whole memory is its upper limit.
        memory=("--mem-fraction-static", Fraction(1)),
        context=("--context-length",),
        gang={"nodes": ("--nnodes",), "rank": ("--node-rank",), "leader": ("--dist-init-addr", "--nccl-init-addr")},
        running=("sglang:num_running_reqs", "sglang:num_queue_reqs"),
        progress=(
            *("sglang:prompt_tokens_total", "sglang:generation_tokens_total"),
            *("sglang:realtime_tokens_total", "sglang:token_usage"),
        ),
    ),
    # 1.4: https://nvidia.github.io/TensorRT-LLM/commands/trtllm-serve/trtllm-serve.html
    Server(
        name="tensorrt-llm",
        title="TensorRT-LLM",
        starts=(("trtllm-serve",),),
        address=Setting(("--host",), default="localhost"),
        axes={
            **dict.fromkeys(("--tp_size", "--tp-size", "--tensor_parallel_size"), TENSOR),
            **dict.fromkeys(("--pp_size", "--pp-size", "--pipeline_parallel_size"), PIPELINE),
        },
        # Prebuilt engines contain their axes.
        one_device=False,
    ),
    # 3.3.6: https://huggingface.co/docs/text-generation-inference/reference/launcher
    Server(
        name="tgi",
        title="Text Generation Inference",
        starts=(("text-generation-launcher",),),
        images={"text-generation-inference": {"PORT": "80"}},
        address=Setting(("--hostname",), "HOSTNAME", ALL_ADDRESSES),
        port=Setting(("--port", "-p"), "PORT", "3000"),
        model=Setting(("--model-id",), "MODEL_ID"),
        key=Setting(("--api-key",), "API_KEY"),
        axes=dict.fromkeys(("--num-shard", "NUM_SHARD"), TENSOR),
        # The server uses all devices of the pod.
        one_device=False,
    ),
    # Build b11223: https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md
    # The variable of images: https://github.com/ggml-org/llama.cpp/blob/master/.devops/cuda.Dockerfile
    Server(
        name="llama.cpp",
        title="llama.cpp",
        starts=(("llama-server",),),
        images={f"{owner}/llama.cpp:server": {"LLAMA_ARG_HOST": ALL_ADDRESSES} for owner in ("ggml-org", "ggerganov")},
        address=Setting(("--host",), "LLAMA_ARG_HOST", "127.0.0.1"),
        port=Setting(("--port",), "LLAMA_ARG_PORT", "8080"),
        tls=Setting(("--ssl-key-file", "--ssl-cert-file"), "LLAMA_ARG_SSL_KEY_FILE"),
        prefix=Setting(("--api-prefix",), "LLAMA_ARG_API_PREFIX"),
        model=Setting(("--hf-repo", "-hf", "-hfr", "--model", "-m")),
        key=Setting(("--api-key", "--api-key-file"), "LLAMA_API_KEY"),
    ),
    # https://docs.ollama.com/faq and https://github.com/ollama/ollama/blob/main/Dockerfile
    Server(
        name="ollama",
        title="Ollama",
        starts=(("ollama", "serve"),),
        images={"ollama/ollama": {"OLLAMA_HOST": "0.0.0.0:11434"}},
        address=Setting((), "OLLAMA_HOST", "127.0.0.1"),
        port=Setting(default="11434"),
        model=_NO_SETTING,
        health="/",
    ),
    # 2.1: https://docs.nvidia.com/nim/large-language-models/latest/reference/environment-variables.html
    Server(
        name="nim",
        title="NIM",
        starts=(("/opt/nim/start_server.sh",), ("nim-serve",)),
        images={"nvcr.io/nim/": {}},
        address=Setting(default=ALL_ADDRESSES),
        port=Setting((), "NIM_SERVER_PORT", "8000"),
        tls=Setting((), "NIM_SSL_KEY_PATH"),
        model=Setting((), "NIM_MODEL_PATH"),
        health="/v1/health/ready",
    ),
    # 1.6.0: https://docs.nvidia.com/dynamo/v1.6.0/reference/components/frontend-configuration
    Server(
        name="dynamo",
        title="Dynamo",
        starts=(("dynamo.frontend",),),
        address=Setting(("--http-host",), "DYN_HTTP_HOST", ALL_ADDRESSES),
        port=Setting(("--http-port",), "DYN_HTTP_PORT", "8000"),
        tls=Setting(("--tls-cert-path",), "DYN_TLS_CERT_PATH"),
        model=_NO_SETTING,
    ),
    # https://github.com/triton-inference-server/server/blob/main/docs/protocol/README.md
    Server(
        name="triton",
        title="Triton",
        starts=(("tritonserver",),),
        address=Setting(("--http-address",), default=ALL_ADDRESSES),
        port=Setting(("--http-port",), default="8000"),
        model=_NO_SETTING,
        health="/v2/health/ready",
    ),
)
SERVERS: Mapping[str, Server] = {server.name: server for server in _SERVERS}

_PATTERNS = {
    server.name: re.compile(
        r"(?<![\w.-])(?:" + "|".join(r"[ \t]+".join(map(re.escape, start)) for start in server.starts) + r")(?![\w.-])"
    )
    for server in _SERVERS
}
_STARTS = [(start, server) for server in _SERVERS for start in server.starts]
# Subcommands of servers that start a client or a benchmark.
_CLIENTS = re.compile(r"(?<![\w.-])(?:vllm[ \t]+(?:bench|chat|complete|run-batch)|sglang\.bench_\w+)(?![\w.-])")
_FIRST_WORDS = frozenset(start[0] for start, __ in _STARTS)


def find_start(words: Sequence[str]) -> tuple[Server, int] | None:
    """Return the server that a command line starts, and the position of its first argument. None without a server."""
    for position, element in enumerate(words):
        program = element if element in _FIRST_WORDS else element.rpartition("/")[2]
        for start, server in _STARTS if program in _FIRST_WORDS else ():
            end = position + len(start)
            if (program, *words[position + 1 : end]) == start:
                return server, end
    return None


def starts_client(words: Sequence[str]) -> bool:
    """Return True if a command line starts a client or a benchmark of a server."""
    return find_start(words) is None and _CLIENTS.search(" ".join(words)) is not None


def servers_in(script: str) -> list[Server]:
    """Return the servers that the text of a script starts."""
    return [server for server in _SERVERS if _PATTERNS[server.name].search(script)]


def text_after_start(server: Server, script: str) -> str:
    """Return the text of a script after the first start of a server."""
    return (*_PATTERNS[server.name].split(script, maxsplit=1), "")[1]


def server_of_image(image: str, words: Sequence[str] = ()) -> Server | None:
    """Return the server that the entry point of an image starts with these arguments."""
    if _TOOLS_IMAGE.fullmatch(image) and words and words[0] in ("--server", "-s"):
        return SERVERS["llama.cpp"]
    return next((server for server in _SERVERS if image_variables(server, image) is not None), None)


def image_variables(server: Server, image: str) -> Mapping[str, str] | None:
    """Return the variables that an image of a server sets, None for other images."""
    repository, tag = _repository_and_tag(image)
    for end, variables in server.images.items():
        path, __, variant = end.partition(":")
        is_below = path.endswith("/") and repository.startswith(path)
        if (is_below or f"/{repository}".endswith(f"/{path}")) and tag.startswith(variant):
            return variables
    return None


def _repository_and_tag(image: str) -> tuple[str, str]:
    name = image.partition("@")[0]
    repository, colon, tag = name.rpartition(":")
    return (repository, tag) if colon and "/" not in tag else (name, "")


def is_loopback(address: str) -> bool:
    """Return True if an address is reachable only from within the pod."""
    name = address.lower().strip("[]")
    try:
        ip = ipaddress.ip_address(name)
    except ValueError:
        return name in _LOOPBACK_NAMES or name.startswith("127.")
    return (getattr(ip, "ipv4_mapped", None) or ip).is_loopback


def version(server: Server, image: str) -> str:
    """Return the version of a server from the tag of its official image, empty for other images."""
    repository, tag = _repository_and_tag(image)
    release = _TAG.fullmatch(tag)
    is_official = bool(server.released) and f"/{repository}".endswith(f"/{server.released}")
    return release[1] if release and is_official else ""


@functools.cache
def released(name: str) -> Mapping[str, frozenset[str]]:
    """Return the flags of a server without leading dashes, by version. Empty for a server without data."""
    versions = released_flags.VERSIONS.get(name, "").split()
    flags: dict[str, set[str]] = {version: set() for version in versions}
    current: list[str] = []
    for entry in released_flags.FLAGS.get(name, "").split():
        if entry.endswith(":"):
            ranges = [text.partition("-") for text in entry[:-1].split(",")]
            current = [v for start, __, end in ranges for v in versions[int(start) : int(end) + 1 if end else None]]
            continue
        for version in current:
            flags[version].add(entry)
    return {version: frozenset(names) for version, names in flags.items()}


def full_flag(server: Server, image: str, flag: str) -> str:
    """Return the full flag that argparse recognizes for an abbreviation.

    It is the only flag of the version with the prefix `flag`, or of all versions if the version is unknown. Return
    `flag` unchanged if it exists, or if none or several flags have this prefix."""
    versions = released(server.name)
    release = version(server, image)
    names = versions[release] if release in versions else frozenset().union(*versions.values())
    name = flag.removeprefix("--")
    if name == flag or not name or name in names:
        return flag
    matches = [candidate for candidate in names if candidate.startswith(name)]
    return f"--{matches[0]}" if len(matches) == 1 else flag


def version_numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of a version for comparisons, empty for an unknown version."""
    return tuple(map(int, re.findall(r"[0-9]+", text)))

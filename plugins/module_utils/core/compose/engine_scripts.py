# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Commands that the kubelet runs in the containers of vLLM and SGLang: the drain hook and the stall probe.

They run Python because the images of both engines contain no HTTP client. They read the metrics of the engine without
an API key because neither engine requires an API key for metrics.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ..servers.table import SERVERS

VERDICT = "modelplane: the engine hangs: "
"""Start of the line that the stall probe writes when an engine hangs."""

_RUNNING = "|".join(name for server in SERVERS.values() for name in server.running)
_KV_CACHE = "vllm:kv_cache_usage_perc"
_PROGRESS = "|".join(name for server in SERVERS.values() for name in server.progress)

_ENGINE = """\
import glob, json, os, re, signal, socket, sys, time
from http.client import HTTPException
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

port = sys.argv[1]
# A proxy in the environment is for other hosts.
client = build_opener(ProxyHandler({}))


def fetch(path, body=None, headers={}, timeout=10):
    # An engine may listen only on the address of its pod.
    for host in ("127.0.0.1", socket.gethostname()):
        try:
            request = Request("http://%s:%s%s" % (host, port, path), body, headers)
            with client.open(request, timeout=timeout) as response:
                return response.read().decode()
        except URLError as error:
            if not isinstance(error.reason, (ConnectionRefusedError, socket.gaierror)):
                raise
    raise ConnectionRefusedError("nothing listens on port " + port)


def values(names, metrics):
    number = r"(-?[0-9]+(?:\\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)(?= |$)"
    return sorted(map(float, re.findall(r"^(?:%s)(?:\\{.*\\})? %s" % (names, number), metrics, re.M)))
"""

_DRAIN = f'''{_ENGINE}

def demand():
    """Return the number of requests, None if it is unknown. Raise ConnectionRefusedError if nothing listens."""
    try:
        found = values(names, fetch("/metrics", timeout=5))
        return sum(found) if found else None
    except ConnectionRefusedError:
        raise
    except Exception:
        return None


names = sys.argv[2]
least, idle, most = map(float, sys.argv[3:])
start = last_busy = time.monotonic()
try:
    while True:
        if demand() != 0:
            last_busy = time.monotonic()
        now = time.monotonic()
        if now - start >= most or (now - last_busy >= idle and now - start >= least):
            break
        time.sleep(min(1, idle / 5, start + most - now))
except ConnectionRefusedError:
    pass
'''

_STALL = f'''{_ENGINE}

def key():
    """Return the API key of the engine, from its environment or its command line."""
    if os.environ.get("VLLM_API_KEY"):
        return os.environ["VLLM_API_KEY"]
    for name in sorted(glob.glob("/proc/[0-9]*/cmdline"), key=lambda name: int(name.split("/")[2])):
        try:
            words = open(name).read().split("\\0")
        except (OSError, ValueError):
            continue
        for word, following in zip(words, words[1:]):
            flag, equals, value = word.partition("=")
            if flag in ("--api-key", "--api_key"):
                return value if equals else following
    return ""


def ask():
    """Let the engine compute one token."""
    headers = {{"Content-Type": "application/json", "Authorization": "Bearer " + key()}}
    model = json.loads(fetch("/v1/models", headers=headers, timeout=patience))["data"][0]["id"]
    body = json.dumps({{"model": model, "prompt": "a", "max_tokens": 1}}).encode()
    fetch("/v1/completions", body, headers, timeout=patience)


def give_up(*_):
    raise TimeoutError("no response within %g s" % patience)


def problem():
    """Return the reason why the engine hangs, "" for an engine that does not. Update what is remembered."""
    global progress, moved, idle
    try:
        metrics = fetch("/metrics", timeout=patience)
    except (HTTPError, HTTPException, ValueError):
        metrics = ""
    except OSError as error:
        return str(error) if now - moved >= limit else ""
    found = values("{_PROGRESS}", metrics)
    if not sum(values("{_RUNNING}", metrics)):
        idle = now
    if found != progress or not found:
        progress, moved = found, now
    if now - moved < limit:
        return ""
    try:
        ask()
    except HTTPError as error:
        if error.code >= 500 and error.code != 501:
            return str(error)
        # Another key, or a model that completes nothing.
        if now - idle >= limit:
            return "requests, but no progress for %d s" % (now - idle)
    except OSError as error:
        return str(error)
    except (HTTPException, LookupError, TypeError, ValueError):
        pass
    moved = now
    return ""


limit, patience = map(float, sys.argv[2:4])
action, memory, log, termination = sys.argv[4:]
now = time.monotonic()
progress, moved, idle = None, now, now
try:
    progress, moved, idle = json.load(open(memory))
    moved, idle = min(moved, now), min(idle, now)
except (OSError, ValueError, TypeError):
    pass
signal.signal(signal.SIGALRM, give_up)
signal.setitimer(signal.ITIMER_REAL, patience)
try:
    found = problem()
except OSError as error:
    found = str(error)
signal.setitimer(signal.ITIMER_REAL, 0)
if found and action == "Report":
    moved = now
try:
    with open(memory + ".new", "w") as file:
        json.dump([progress, moved, idle], file)
    os.replace(memory + ".new", memory)
except OSError:
    pass
line = "{VERDICT}%s\\n" % found if found else ""
try:
    # A container that terminates later for another reason must not have an old verdict.
    with open(termination, "r+") as file:
        content = file.read()
        if action == "Restart" and content != line and (line or content.startswith("{VERDICT}")):
            file.seek(0)
            file.truncate()
            file.write(line)
except (OSError, ValueError):
    pass
if found:
    try:
        with open(log, "a") as file:
            file.write(line)
    except OSError:
        pass
    sys.exit(line if action == "Restart" else 0)
'''


def drain_command(port: int, *, transfers: bool, minimum: float, idle: float, maximum: float) -> list[str]:
    """Return the command that ends when an engine has had no requests for `idle` seconds, after `minimum` seconds at
    the earliest and `maximum` at the latest.

    It ends immediately if nothing listens on the port. If the metrics cannot be read, or the image does not contain
    Python, it ends after `maximum` seconds. `transfers`: a KV cache in use counts as a request because another engine
    must still read it.
    """
    names = f"{_RUNNING}|{_KV_CACHE}" if transfers else _RUNNING
    run = 'python3 -I -c "$@" || exec sleep "$0"'
    return ["sh", "-c", run, f"{maximum:g}", _DRAIN, str(port), names, f"{minimum:g}", f"{idle:g}", f"{maximum:g}"]


def restarts_hanging_engine(probe: Mapping[str, Any]) -> bool:
    """Return True if a probe is a stall probe with the action Restart."""
    match probe:
        case {"exec": {"command": [_, _, _, "stall", _, _, _, _, "Restart", *_]}}:
            return True
    return False


def stall_command(
    port: int,
    seconds: float,
    action: Literal["Report", "Restart"],
    *,
    patience: float,
    memory: str = "/dev/shm/modelplane-stall",
    log: str = "/proc/1/fd/1",
    termination: str = "/dev/termination-log",
) -> list[str]:
    """Return the command of the stall probe. If the engine hangs, it writes a line to `log`. With `Restart`, it fails.

    An engine with changing metrics is healthy. After `seconds` without a change, the command requests one token. The
    engine hangs if it does not respond within `patience` seconds. `memory` is a file that keeps the metrics between
    runs. With `Restart`, the command also writes the line to `termination`, and the kubelet copies it to the container
    status. The command succeeds if the image does not contain Python, or if the engine exports no metrics.
    """
    run = 'command -v python3 >/dev/null || exit 0; exec python3 -I -c "$@"'
    return [
        "sh",
        "-c",
        run,
        "stall",
        _STALL,
        str(port),
        f"{seconds:g}",
        f"{patience:g}",
        action,
        memory,
        log,
        termination,
    ]

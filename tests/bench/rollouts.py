"""Reading session logs: sseismo, ccusage (npm) and a pasted script, side by side on one seeded corpus.

    python3 tests/bench/rollouts.py [GB ...]        default: 0.2 and 2

The files are read once before each measured run, so that all tools find them in the page cache. CPU time
and peak memory are the kernel's (wait4); that peak is never under this script's own, about 16 MiB, so ours
says its own as well. A tool that is not there is named as missing.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

# The newest whose native program is in every registry we met.
CCUSAGE = "ccusage@20.0.24"
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def build():
    """The importer's example in release; its path."""
    command = ["cargo", "build", "--release", "-p", "sseismo-capture", "--features", "import"]
    subprocess.run([*command, "--example", "scan_rollouts"], cwd=ROOT, check=True)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return str(target / "release" / "examples" / "scan_rollouts")


def ccusage(folder):
    """ccusage in a folder of its own; None without npm."""
    if not shutil.which("npm"):
        return None
    done = subprocess.run(["npm", "install", "--silent", "--prefix", folder, CCUSAGE], check=False)
    program = pathlib.Path(folder) / "node_modules" / ".bin" / "ccusage"
    return str(program) if done.returncode == 0 and program.exists() else None


def warm(corpus):
    """Reads every byte; returns how many there are."""
    size = 0
    for path in corpus.rglob("*.jsonl"):
        with open(path, "rb", buffering=0) as file:
            while chunk := file.read(1 << 20):
                size += len(chunk)
    return size


def run(name, command, corpus, environment):
    size = warm(corpus)
    start = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, **environment})
    said = child.stdout.read().decode(errors="replace").strip()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    wall, cpu = time.monotonic() - start, usage.ru_utime + usage.ru_stime
    print(
        f"{name:9} {size / 1e9:5.2f} GB  wall {wall:6.2f} s  CPU {cpu:6.2f} s  {size / 1e9 / cpu:5.2f} GB/s per core"
        f"  peak {usage.ru_maxrss / 1024:7.1f} MiB  exit {child.returncode}  {said.splitlines()[-1:]}",
        flush=True,
    )


def main():
    sizes = sys.argv[1:] or ["0.2", "2"]
    ours = build()
    with tempfile.TemporaryDirectory(prefix="sseismo-bench-") as folder:
        other = ccusage(folder)
        for size in sizes:
            corpus = pathlib.Path(folder) / f"codex-{size}"
            subprocess.run([ours, "generate", str(corpus), size], check=True)
            environment = {"CODEX_HOME": str(corpus)}
            for _ in range(3):
                run("sseismo", [ours, "scan", str(corpus)], corpus, environment)
            run("script", [sys.executable, str(HERE / "paste.py"), str(corpus)], corpus, environment)
            if other:
                run("ccusage", [other, "codex", "daily", "--json", "--offline"], corpus, environment)
            else:
                print("ccusage   missing: npm cannot install it here")
            shutil.rmtree(corpus)


if __name__ == "__main__":
    main()

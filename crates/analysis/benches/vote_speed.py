"""The vote's speed beside scikit-learn's, in one run:

    python3 -m venv target/vote-speed && target/vote-speed/bin/pip install -q scikit-learn
    target/vote-speed/bin/python crates/analysis/benches/vote_speed.py

Both see the same points (float32, unit length, 40 groups and 10 % strays), one thread each, CPU time, one process a
measurement. `MiB` is the peak of the whole process, points and libraries included. Labels are compared. Sizes can be named: vote_speed.py 1000 5000
"""

import json
import os
import subprocess
import sys
import tempfile

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "MATMUL_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy

EPS_COSINE = 0.30
SIZES = (1_000, 5_000, 20_000)
DIMENSIONS = (384, 1_536)
ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
BUILD = ["cargo", "build", "-q", "--profile", "quick", "-p", "sseismo-analysis", "--features", "vote",
         "--example", "vote_speed"]
OURS = os.path.join(ROOT, "target", "quick", "examples", "vote_speed")


def points(n, d):
    """Groups around random centres, and strays."""
    random = numpy.random.default_rng(n + d)
    centres = random.standard_normal((40, d))
    rows = centres[random.integers(0, 40, n)] + 0.4 * random.standard_normal((n, d))
    stray = random.random(n) < 0.1
    rows[stray] = random.standard_normal((int(stray.sum()), d))
    rows /= numpy.linalg.norm(rows, axis=1, keepdims=True)
    return rows.astype("<f4")


def child(file, n, d, eps):
    """scikit-learn, in a process of its own."""
    import time

    from sklearn.cluster import DBSCAN

    rows = numpy.fromfile(file, "<f4").reshape(n, d)
    DBSCAN(eps=eps, min_samples=2).fit(rows[:10])
    start = time.process_time()
    labels = DBSCAN(eps=eps, min_samples=2, n_jobs=1).fit(rows).labels_
    print(json.dumps({"seconds": time.process_time() - start, "labels": labels.tolist()}))


def run(command):
    """Its JSON and its peak memory in MiB."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{command} failed")
    return json.loads(out), usage.ru_maxrss / 1024


def main(sizes):
    subprocess.run(BUILD, cwd=ROOT, check=True)
    print(f"{'points':>7} {'d':>6} | {'ours s':>8} {'MiB':>7} | {'sklearn s':>9} {'MiB':>7} | {'faster':>7} labels")
    with tempfile.TemporaryDirectory() as folder:
        for d in DIMENSIONS:
            for n in sizes:
                file = os.path.join(folder, "points.f32")
                rows = points(n, d)
                rows.tofile(file)
                eps = str((2 * EPS_COSINE) ** 0.5)
                arguments = [file, str(n), str(d), eps]
                ours, peak = run([OURS, "dbscan", *arguments])
                theirs, their_peak = run([sys.executable, __file__, "child", *arguments])
                same = "equal" if ours["labels"] == theirs["labels"] else "DIFFERENT"
                print(f"{n:>7} {d:>6} | {ours['seconds']:>8.3f} {peak:>7.0f} | {theirs['seconds']:>9.3f} "
                      f"{their_peak:>7.0f} | {theirs['seconds'] / ours['seconds']:>6.1f}x {same}", flush=True)
    hashed, _ = run([OURS, "hash"])
    print(f"hash embedder: {hashed['megabytes'] / hashed['seconds']:.1f} MB/s")
    for n in (8, 64):
        vote, _ = run([OURS, "vote", str(n)])
        print(f"vote over {n} traces of 4 KB: {vote['milliseconds']:.2f} ms in all, "
              f"{vote['counting_milliseconds']:.3f} ms of it counting")


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        child(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
    else:
        main([int(n) for n in sys.argv[1:]] or SIZES)

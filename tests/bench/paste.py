"""The kind of script that people paste into threads: every line parsed, last counts tallied by model."""

import collections
import json
import pathlib
import sys

counts = collections.Counter()
for path in sorted(pathlib.Path(sys.argv[1]).rglob("rollout-*.jsonl")):
    model, total = None, None
    for line in open(path, encoding="utf-8"):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        payload = event.get("payload") or {}
        if event.get("type") == "turn_context":
            model = payload.get("model")
        elif payload.get("type") == "token_count" and payload.get("info"):
            info = payload["info"]
            if info["total_token_usage"] != total:
                total = info["total_token_usage"]
                counts[model, info["last_token_usage"]["reasoning_output_tokens"]] += 1
print(sum(counts.values()), "responses,", sum(n for (_, r), n in counts.items() if r == 516), "at 516")

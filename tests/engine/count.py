"""Streams from three APIs of one server and counts the deltas in the bytes that came: the direct count.

Nothing but the standard library, and none of the program under test. One JSON line for each stream."""

import json
import sys
import urllib.request

PROMPT = "How much is one and two?"
TOKENS = 120
# Closes the thought now and then, so that reasoning and answer both come; numbers of the model's tokens.
CLOSE_THOUGHT, END = 260, 2
BIAS = [[CLOSE_THOUGHT, 1.0], [END, -100]]


def chat(seed):
    return "/v1/chat/completions", {
        "messages": [{"role": "user", "content": PROMPT}],
        "max_tokens": TOKENS,
        "seed": seed,
        "logit_bias": BIAS,
        "stream_options": {"include_usage": True},
    }


def responses(seed):
    return "/v1/responses", {
        "input": PROMPT,
        "max_output_tokens": TOKENS,
        "seed": seed,
        "logit_bias": BIAS,
    }


def messages(seed):
    return "/v1/messages", {
        "messages": [{"role": "user", "content": PROMPT}],
        "max_tokens": TOKENS,
        "seed": seed,
        "logit_bias": BIAS,
    }


def delta(api, event):
    """Which part a delta belongs to and its text; nothing for any other event."""
    if api == "chat":
        for choice in event.get("choices", []):
            for key, part in (("reasoning_content", "reasoning"), ("content", "text")):
                if choice["delta"].get(key):
                    return part
    elif api == "responses":
        kinds = {"response.reasoning_text.delta": "reasoning", "response.output_text.delta": "text"}
        if event.get("delta"):
            return kinds.get(event["type"])
    elif event["type"] == "content_block_delta":
        kinds = {"thinking_delta": ("reasoning", "thinking"), "text_delta": ("text", "text")}
        part, key = kinds.get(event["delta"]["type"], (None, None))
        if key and event["delta"][key]:
            return part
    return None


def main(url):
    for build in (chat, responses, messages):
        for seed in (1, 2, 3):
            api = build.__name__
            path, body = build(seed)
            body = json.dumps({"model": "random", "stream": True, **body}).encode()
            request = urllib.request.Request(url + path, body, {"content-type": "application/json"})
            counts = {"reasoning": 0, "text": 0}
            with urllib.request.urlopen(request, timeout=60) as answer:
                for line in answer.read().decode("utf-8", "replace").split("\n"):
                    if line.startswith("data: {"):
                        part = delta(api, json.loads(line[6:]))
                        if part:
                            counts[part] += 1
            print(json.dumps({"api": api, **counts}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])

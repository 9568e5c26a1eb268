"""Asks each API once with the vendors' own SDKs at their defaults, and says how it ended, as JSON lines.

`ended`: `completed` (the API's own end was seen), `silent` (the stream stopped without its end and nothing was
raised: the user takes half an answer for a whole one), or `error`.
"""

import json
import sys
import time

import anthropic
import openai

base = sys.argv[1]
messages = [{"role": "user", "content": "hi"}]


def responses():
    client, done, text = openai.OpenAI(base_url=f"{base}/v1", api_key="sk-client"), False, 0
    for event in client.responses.create(model="m", input="hi", stream=True):
        if event.type == "response.output_text.delta":
            text += len(event.delta)
        elif event.type in ("error", "response.failed"):
            raise RuntimeError(event.type)
        done |= event.type == "response.completed"
    return done, text


def chat():
    client, done, text = openai.OpenAI(base_url=f"{base}/v1", api_key="sk-client"), False, 0
    for chunk in client.chat.completions.create(model="m", messages=messages, stream=True):
        for choice in chunk.choices:
            text += len(choice.delta.content or "")
            done |= choice.finish_reason is not None
    return done, text


def claude():
    client, done, text = anthropic.Anthropic(base_url=base, api_key="sk-client"), False, 0
    for event in client.messages.create(model="m", max_tokens=4096, messages=messages, stream=True):
        if event.type == "content_block_delta":
            text += len(getattr(event.delta, "text", "") or "")
        done |= event.type == "message_stop"
    return done, text


for name, call in [("openai-python responses", responses), ("openai-python chat", chat), ("anthropic-python", claude)]:
    since, error, text = time.monotonic(), None, 0
    try:
        done, text = call()
        ended = "completed" if done else "silent"
    except Exception as raised:  # whatever the SDK raises is the result
        ended, error = "error", type(raised).__name__
    told = {"client": name, "ended": ended, "text": text, "error": error, "s": round(time.monotonic() - since, 2)}
    print(json.dumps(told), flush=True)

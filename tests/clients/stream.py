"""Streams one answer from each API with the vendors' own SDKs; prints what arrived as JSON lines."""

import json
import sys

import anthropic
import openai

base = sys.argv[1]


def say(api, events, text, reasoning):
    print(json.dumps({"api": api, "events": events, "text": len(text), "reasoning": len(reasoning)}))


client = openai.OpenAI(base_url=f"{base}/v1", api_key="sk-client", max_retries=0)

events, text, reasoning = 0, "", ""
for event in client.responses.create(model="m", input="hi", stream=True, reasoning={"effort": "high"}):
    events += 1
    if event.type == "response.output_text.delta":
        text += event.delta
    elif event.type.startswith("response.reasoning") and event.type.endswith(".delta"):
        reasoning += event.delta
say("responses", events, text, reasoning)

events, text, reasoning = 0, "", ""
messages = [{"role": "user", "content": "hi"}]
for chunk in client.chat.completions.create(model="m", messages=messages, stream=True):
    events += 1
    for choice in chunk.choices:
        text += choice.delta.content or ""
        reasoning += getattr(choice.delta, "reasoning_content", None) or ""
say("chat", events, text, reasoning)

client = anthropic.Anthropic(base_url=base, api_key="sk-client", max_retries=0)
events, text, reasoning = 0, "", ""
for event in client.messages.create(model="m", max_tokens=4096, messages=messages, stream=True):
    events += 1
    if event.type == "content_block_delta":
        text += getattr(event.delta, "text", "") or ""
        reasoning += getattr(event.delta, "thinking", "") or ""
say("messages", events, text, reasoning)

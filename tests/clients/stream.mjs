// Streams one answer from each API with the vendors' own SDKs; prints what arrived as JSON lines.
// Run with the folder that holds `node_modules` as the working folder.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(pathToFileURL(`${process.cwd()}/x.js`));
const OpenAI = require("openai");
const Anthropic = require("@anthropic-ai/sdk");
const base = process.argv[2];

function say(api, events, text, reasoning) {
  console.log(JSON.stringify({ api, events, text: text.length, reasoning: reasoning.length }));
}

const openai = new (OpenAI.default ?? OpenAI)({ baseURL: `${base}/v1`, apiKey: "sk-client", maxRetries: 0 });
const messages = [{ role: "user", content: "hi" }];

let [events, text, reasoning] = [0, "", ""];
for await (const event of await openai.responses.create({ model: "m", input: "hi", stream: true })) {
  events += 1;
  if (event.type === "response.output_text.delta") text += event.delta;
  else if (event.type.startsWith("response.reasoning") && event.type.endsWith(".delta")) reasoning += event.delta;
}
say("responses", events, text, reasoning);

[events, text, reasoning] = [0, "", ""];
for await (const chunk of await openai.chat.completions.create({ model: "m", messages, stream: true })) {
  events += 1;
  for (const choice of chunk.choices) {
    text += choice.delta.content ?? "";
    reasoning += choice.delta.reasoning_content ?? "";
  }
}
say("chat", events, text, reasoning);

const anthropic = new (Anthropic.default ?? Anthropic)({ baseURL: base, apiKey: "sk-client", maxRetries: 0 });
[events, text, reasoning] = [0, "", ""];
const stream = await anthropic.messages.create({ model: "m", max_tokens: 4096, messages, stream: true });
for await (const event of stream) {
  events += 1;
  if (event.type === "content_block_delta") {
    text += event.delta.text ?? "";
    reasoning += event.delta.thinking ?? "";
  }
}
say("messages", events, text, reasoning);

// Asks each API once with the vendors' own SDKs and the AI SDK at their defaults, and says how it ended, as JSON
// lines; see ask.py for the words. Run with the folder that holds `node_modules` as the working folder.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(pathToFileURL(`${process.cwd()}/x.js`));
const base = process.argv[2];
const messages = [{ role: "user", content: "hi" }];
const OpenAI = require("openai");
const Anthropic = require("@anthropic-ai/sdk");
const openai = () => new (OpenAI.default ?? OpenAI)({ baseURL: `${base}/v1`, apiKey: "sk-client" });

async function responses() {
  let [done, text] = [false, 0];
  for await (const event of await openai().responses.create({ model: "m", input: "hi", stream: true })) {
    if (event.type === "response.output_text.delta") text += event.delta.length;
    if (event.type === "error" || event.type === "response.failed") throw new Error(event.type);
    done ||= event.type === "response.completed";
  }
  return [done, text];
}

async function chat() {
  let [done, text] = [false, 0];
  for await (const chunk of await openai().chat.completions.create({ model: "m", messages, stream: true })) {
    for (const choice of chunk.choices) {
      text += (choice.delta.content ?? "").length;
      done ||= choice.finish_reason != null;
    }
  }
  return [done, text];
}

async function claude() {
  const client = new (Anthropic.default ?? Anthropic)({ baseURL: base, apiKey: "sk-client" });
  let [done, text] = [false, 0];
  for await (const event of await client.messages.create({ model: "m", max_tokens: 4096, messages, stream: true })) {
    if (event.type === "content_block_delta") text += (event.delta.text ?? "").length;
    done ||= event.type === "message_stop";
  }
  return [done, text];
}

async function aiSdk(model) {
  const { streamText } = await import(require.resolve("ai"));
  let [done, text] = [false, 0];
  const { fullStream } = streamText({ model, prompt: "hi", onError: () => {} });
  for await (const part of fullStream) {
    if (part.type === "error") throw part.error;
    if (part.type === "text-delta") text += (part.text ?? part.delta ?? part.textDelta ?? "").length;
    if (part.type === "finish") done = part.finishReason === "stop";
  }
  return [done, text];
}

const provider = async (name, factory) => (await import(require.resolve(name)))[factory];
const calls = [
  ["openai-node responses", responses],
  ["openai-node chat", chat],
  ["anthropic-node", claude],
  ["ai-sdk responses", async () => aiSdk((await provider("@ai-sdk/openai", "createOpenAI"))({ baseURL: `${base}/v1`, apiKey: "k" }).responses("m"))],
  ["ai-sdk chat", async () => aiSdk((await provider("@ai-sdk/openai-compatible", "createOpenAICompatible"))({ name: "x", baseURL: `${base}/v1`, apiKey: "k" }).chatModel("m"))],
  ["ai-sdk messages", async () => aiSdk((await provider("@ai-sdk/anthropic", "createAnthropic"))({ baseURL: `${base}/v1`, apiKey: "k" }).messages("m"))],
];
for (const [client, call] of calls) {
  const since = performance.now();
  let [ended, error, text] = ["error", null, 0];
  try {
    const [done, length] = await call();
    [ended, text] = [done ? "completed" : "silent", length];
  } catch (raised) {
    error = raised?.name ?? String(raised);
  }
  console.log(JSON.stringify({ client, ended, text, error, s: Math.round((performance.now() - since) / 10) / 100 }));
}
process.exit(0);

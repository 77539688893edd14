// Calls with the OpenAI library under Langfuse's wrapper. Address and keys come from Langfuse's own variables.
// Arguments: names of functions to call.

import { observeOpenAI } from "@langfuse/openai";
import { LangfuseSpanProcessor } from "@langfuse/otel";
import { NodeTracerProvider } from "@opentelemetry/sdk-trace-node";
import OpenAI from "openai";

const tracing = new NodeTracerProvider({ spanProcessors: [new LangfuseSpanProcessor()] });
tracing.register();
const provider = process.env.PROVIDER_URL;
const messages = [{ role: "user", content: "What is the toll?" }];
const client = (path = "", more = {}) =>
  observeOpenAI(new OpenAI({ baseURL: `${provider}${path}/v1`, maxRetries: 0, ...more }));
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tools = [{ type: "function", function: { name: "weather", parameters } }];

const calls = {
  async chat() {
    for (const model of ["gpt-4o", "gpt-5", "gpt-4o"]) await client().chat.completions.create({ model, messages });
  },
  async stream() {
    for (const model of ["gpt-4o", "gpt-5"]) {
      const asked = { model, messages, stream: true, stream_options: { include_usage: true } };
      for await (const _ of await client().chat.completions.create(asked));
    }
  },
  async silent_stream() {
    for await (const _ of await client().chat.completions.create({ model: "gpt-4o", messages, stream: true }));
  },
  async responses() {
    await client().responses.create({ model: "gpt-5", input: "What is the toll?" });
    for await (const _ of await client().responses.create({ model: "gpt-5", input: "What is the toll?", stream: true }));
  },
  // Make two calls: the prompt, and the tool's result.
  async tools() {
    const turns = [...messages];
    for (;;) {
      const asked = { model: "gpt-4o", messages: turns, tools };
      const { message } = (await client().chat.completions.create(asked)).choices[0];
      if (!message.tool_calls?.length) return;
      turns.push(message);
      for (const { id } of message.tool_calls) turns.push({ role: "tool", tool_call_id: id, content: "rain in Bath" });
    }
  },
  async failures() {
    for (const [status, model] of [[429, "gpt-4o"], [500, "gpt-4o-mini"]]) {
      const error = await client(`/fail-${status}`).chat.completions.create({ model, messages }).catch((error) => error);
      if (error.status !== status) throw new Error(`it did not fail with ${status}: ${error}`);
    }
  },
  async retry() {
    await client("/flaky-500", { maxRetries: 2 }).chat.completions.create({ model: "gpt-4o", messages });
  },
  async embeddings() {
    for (const input of ["toll", ["toll", "installation"]])
      await client().embeddings.create({ model: "text-embedding-3-small", input, encoding_format: "float" });
  },
};

for (const name of process.argv.slice(2)) await calls[name]();
await tracing.shutdown();

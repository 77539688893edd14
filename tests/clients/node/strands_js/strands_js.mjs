// Calls with Strands Agents for TypeScript with its own tracing, exported as OTLP over HTTP. The Anthropic library writes spans
// of its own. Address and key come from the environment. Arguments: names of functions to call.

import { Agent, tool } from "@strands-agents/sdk";
import { AnthropicModel } from "@strands-agents/sdk/models/anthropic";
import { OpenAIModel } from "@strands-agents/sdk/models/openai";
import { setupTracer } from "@strands-agents/sdk/telemetry";
import { z } from "zod";

const QUESTION = "What is the toll?";
const provider = process.env.PROVIDER_URL;
const tracerProvider = setupTracer({ exporters: { otlp: true } });
const weather = tool({
  name: "weather",
  description: "The weather.",
  inputSchema: z.object({ city: z.string() }),
  callback: ({ city }) => `rain in ${city}`,
});

const claude = (path = "") =>
  new AnthropicModel({
    modelId: "claude-sonnet-4-5",
    maxTokens: 1024,
    clientConfig: { baseURL: provider + path, maxRetries: 0 },
  });
const gpt = () =>
  new OpenAIModel({ api: "chat", modelId: "gpt-4o", clientConfig: { baseURL: `${provider}/v1`, maxRetries: 0 } });
const asker = (model, tools = []) =>
  new Agent({ model, tools, systemPrompt: "Be brief.", printer: false, retryStrategy: null });

const calls = {
  async answers() {
    for (const model of [claude(), claude(), gpt()]) await asker(model).invoke(QUESTION);
  },
  async streams() {
    for await (const _ of asker(claude()).stream(QUESTION));
  },
  // Make two calls: a tool call for the weather, and the answer.
  async tools() {
    await asker(claude(), [weather]).invoke(QUESTION);
  },
  async failures() {
    for (const status of [429, 500]) {
      const error = await asker(claude(`/fail-${status}`)).invoke(QUESTION).catch((error) => error);
      if (!(error instanceof Error)) throw new Error("it did not fail");
    }
  },
  // Two agents ask the same question at the same time.
  async together() {
    await Promise.all([asker(claude()).invoke(QUESTION), asker(claude()).invoke(QUESTION)]);
  },
};

for (const name of process.argv.slice(2)) await calls[name]();
await tracerProvider.forceFlush();
await tracerProvider.shutdown();

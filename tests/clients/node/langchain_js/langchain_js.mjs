// Calls with LangChain.js under OpenInference, exported as OTLP over HTTP. The Anthropic library writes spans of its own.
// Address and key come from the environment. Arguments: names of functions to call.

import { LangChainInstrumentation } from "@arizeai/openinference-instrumentation-langchain";
import { ChatAnthropic } from "@langchain/anthropic";
import * as CallbackManagerModule from "@langchain/core/callbacks/manager";
import { ChatOpenAI } from "@langchain/openai";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-proto";
import { BatchSpanProcessor, NodeTracerProvider } from "@opentelemetry/sdk-trace-node";
import { createAgent, tool } from "langchain";
import { z } from "zod";

const QUESTION = "What is the toll?";
const provider = process.env.PROVIDER_URL;
const tracerProvider = new NodeTracerProvider({ spanProcessors: [new BatchSpanProcessor(new OTLPTraceExporter())] });
tracerProvider.register();
new LangChainInstrumentation({ tracerProvider }).manuallyInstrument(CallbackManagerModule);

const weather = tool(({ city }) => `rain in ${city}`, {
  name: "weather",
  description: "The weather.",
  schema: z.object({ city: z.string() }),
});

const claude = (path = "") =>
  new ChatAnthropic({ model: "claude-sonnet-4-5", maxTokens: 1024, maxRetries: 0, anthropicApiUrl: provider + path });
const gpt = () =>
  new ChatOpenAI({ model: "gpt-4o", maxRetries: 0, configuration: { baseURL: `${provider}/v1` } });

const calls = {
  async answers() {
    for (const model of [claude(), claude(), gpt()]) await model.invoke(QUESTION);
  },
  async streams() {
    for await (const _ of await claude().stream(QUESTION));
  },
  // Make two calls: a tool call for the weather, and the answer.
  async tools() {
    await createAgent({ model: claude(), tools: [weather] }).invoke({ messages: [{ role: "user", content: QUESTION }] });
  },
  async failures() {
    for (const status of [429, 500]) {
      const error = await claude(`/fail-${status}`).invoke(QUESTION).catch((error) => error);
      if (!(error instanceof Error)) throw new Error("it did not fail");
    }
  },
  // Two models answer the same question at the same time.
  async together() {
    await Promise.all([claude().invoke(QUESTION), claude().invoke(QUESTION)]);
  },
};

for (const name of process.argv.slice(2)) await calls[name]();
await tracerProvider.forceFlush();
await tracerProvider.shutdown();

// Calls with OpenAI's Agents SDK under OpenInference's instrumentations of the SDK and of the OpenAI library, exported as
// OTLP over HTTP. Address and key come from the environment. Arguments: names of functions to call.

import { OpenAIInstrumentation } from "@arizeai/openinference-instrumentation-openai";
import { OpenAIAgentsInstrumentation } from "@arizeai/openinference-instrumentation-openai-agents";
import * as agents from "@openai/agents";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-proto";
import { BatchSpanProcessor, NodeTracerProvider } from "@opentelemetry/sdk-trace-node";
import OpenAI from "openai";
import { z } from "zod";

const QUESTION = "What is the toll?";
const provider = process.env.PROVIDER_URL;
const tracerProvider = new NodeTracerProvider({ spanProcessors: [new BatchSpanProcessor(new OTLPTraceExporter())] });
tracerProvider.register();
const ofAgents = new OpenAIAgentsInstrumentation({ tracerProvider });
ofAgents.manuallyInstrument(agents);
agents.setTracingDisabled(false);
const ofLibrary = new OpenAIInstrumentation({ tracerProvider });
ofLibrary.manuallyInstrument(OpenAI);

const { Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, run, tool } = agents;
const weather = tool({
  name: "weather",
  description: "The weather.",
  parameters: z.object({ city: z.string() }),
  execute: async ({ city }) => `rain in ${city}`,
});

function models(path = "") {
  const client = new OpenAI({ baseURL: `${provider}${path}/v1`, maxRetries: 0 });
  return [new OpenAIResponsesModel(client, "gpt-5"), new OpenAIChatCompletionsModel(client, "gpt-4o")];
}
const asker = (model, tools = []) => new Agent({ name: "asker", instructions: "Be brief.", model, tools });

const calls = {
  async answers() {
    for (const model of models()) await run(asker(model), QUESTION);
  },
  async streams() {
    for (const model of models()) {
      const stream = await run(asker(model), QUESTION, { stream: true });
      for await (const _ of stream);
      await stream.completed;
    }
  },
  // Make two calls per run: a tool call for the weather, and the answer.
  async tools() {
    for (const model of models()) await run(asker(model, [weather]), QUESTION);
  },
  async failures() {
    for (const model of models("/fail-500")) {
      const error = await run(asker(model), QUESTION).catch((error) => error);
      if (error.status !== 500) throw new Error(`it did not fail with 500: ${error}`);
    }
  },
};

for (const name of process.argv.slice(2)) await calls[name]();
await agents.getGlobalTraceProvider().forceFlush();
await tracerProvider.shutdown();

// Calls with VoltAgent with its own tracing, exported as OTLP over HTTP. Address and key come from the environment.
// Arguments: names of functions to call.

import { createAnthropic } from "@ai-sdk/anthropic";
import { createGoogleGenerativeAI } from "@ai-sdk/google";
import { createOpenAI } from "@ai-sdk/openai";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-http";
import { BatchSpanProcessor } from "@opentelemetry/sdk-trace-base";
import { Agent, createTool, VoltAgentObservability } from "@voltagent/core";
import { z } from "zod";

const provider = process.env.PROVIDER_URL;
const question = "What is the toll?";
const observability = new VoltAgentObservability({
  serviceName: "clients",
  spanProcessors: [new BatchSpanProcessor(new OTLPTraceExporter())],
});

function models(path = "") {
  const openai = createOpenAI({ baseURL: `${provider}${path}/v1`, apiKey: "sk-fake" });
  const anthropic = createAnthropic({ baseURL: `${provider}${path}/v1`, apiKey: "sk-ant-fake" });
  const google = createGoogleGenerativeAI({ baseURL: `${provider}${path}/v1beta`, apiKey: "fake" });
  return [openai.chat("gpt-4o"), openai("gpt-5"), anthropic("claude-sonnet-4-5"), google("gemini-2.5-flash")];
}
function asker(model, more = {}) {
  return new Agent({ name: "asker", instructions: "Be brief.", model, observability, maxRetries: 0, ...more });
}
async function failing(run) {
  const error = await run.catch((error) => error);
  if (!(error instanceof Error)) throw new Error("it did not fail");
}
const weather = createTool({
  name: "weather",
  description: "The weather.",
  parameters: z.object({ city: z.string() }),
  execute: async ({ city }) => `rain in ${city}`,
});

const calls = {
  async answers() {
    for (const model of models()) await asker(model).generateText(question);
  },
  async streams() {
    for (const model of models()) {
      const response = await asker(model).streamText(question);
      for await (const _ of response.textStream);
    }
  },
  // Make two calls per run: a tool call for the weather, and the answer.
  async tools() {
    for (const model of models()) await asker(model, { tools: [weather] }).generateText(question);
  },
  // The answer is not an object, so the run fails after the call.
  async objects() {
    const schema = z.object({ toll: z.string() });
    for (const model of models()) await failing(asker(model).generateObject(question, schema));
  },
  async failures() {
    for (const model of models("/fail-400")) await failing(asker(model).generateText(question));
  },
  // The outer agent calls the inner agent as a tool: three calls per run, of which the inner agent makes one.
  async nested() {
    for (const model of models()) {
      const inner = new Agent({ name: "inner", instructions: "Be brief.", model, observability });
      const ask = inner.toTool({ name: "ask", parametersSchema: z.object({ city: z.string() }) });
      const execute = ({ city }, options) => ask.execute({ prompt: `${question} ${city}` }, options);
      await asker(model, { tools: [createTool({ ...ask, execute })] }).generateText(question);
    }
  },
};

for (const name of process.argv.slice(2)) await calls[name]();
await observability.forceFlush();
await observability.shutdown();
process.exit(0);

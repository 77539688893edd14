// Calls with Genkit with its own tracing and counters, exported as OTLP over HTTP. Address and key come from the environment.
// Arguments: names of functions to call.

import { anthropic } from "@genkit-ai/anthropic";
import { openAI } from "@genkit-ai/compat-oai/openai";
import { googleAI } from "@genkit-ai/google-genai";
import { OTLPMetricExporter } from "@opentelemetry/exporter-metrics-otlp-proto";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-proto";
import { PeriodicExportingMetricReader } from "@opentelemetry/sdk-metrics";
import { BatchSpanProcessor } from "@opentelemetry/sdk-trace-base";
import { genkit, z } from "genkit";
import { enableTelemetry, flushTracing } from "genkit/tracing";

await enableTelemetry({
  spanProcessors: [new BatchSpanProcessor(new OTLPTraceExporter())],
  metricReader: new PeriodicExportingMetricReader({ exporter: new OTLPMetricExporter() }),
});
const provider = process.env.PROVIDER_URL;
const prompt = "What is the toll?";

function made(path = "") {
  return genkit({
    plugins: [
      openAI({ apiKey: "sk-fake", baseURL: `${provider}${path}/v1`, maxRetries: 0 }),
      anthropic({ apiKey: "sk-ant-fake" }), // the library's own variable has the address
      googleAI({ apiKey: "fake", baseUrl: provider + path }),
    ],
  });
}
const models = () => [openAI.model("gpt-4o"), anthropic.model("claude-sonnet-4-5"), googleAI.model("gemini-2.5-flash")];

const calls = {
  async answers() {
    const ai = made();
    for (const model of models()) await ai.generate({ model, prompt });
  },
  async streams() {
    const ai = made();
    for (const model of models()) {
      const { stream, response } = ai.generateStream({ model, prompt });
      for await (const _ of stream);
      await response;
    }
  },
  // Make two calls per run: a tool call for the weather, and the answer.
  async tools() {
    const ai = made();
    const inputSchema = z.object({ city: z.string() });
    const shape = { name: "weather", description: "The weather.", inputSchema, outputSchema: z.string() };
    const weather = ai.defineTool(shape, async ({ city }) => `rain in ${city}`);
    for (const model of models()) await ai.generate({ model, prompt, tools: [weather] });
  },
  async failures() {
    const ai = made("/fail-400");
    for (const model of [openAI.model("gpt-4o"), googleAI.model("gemini-2.5-flash")]) {
      const error = await ai.generate({ model, prompt }).catch((error) => error);
      if (!(error instanceof Error)) throw new Error("it did not fail");
    }
  },
  async embeddings() {
    await made().embed({ embedder: openAI.embedder("text-embedding-3-small"), content: "toll" });
  },
};

for (const name of process.argv.slice(2)) await calls[name]();
await flushTracing();

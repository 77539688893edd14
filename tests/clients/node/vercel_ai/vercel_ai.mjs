// Calls with the Vercel AI SDK with its own tracing, exported as OTLP over HTTP in JSON. Address and key come from the
// environment. Arguments: the SDK's version and names of functions to call.

import { trace } from "@opentelemetry/api";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-http";
import { BatchSpanProcessor, NodeTracerProvider } from "@opentelemetry/sdk-trace-node";

const PACKAGES = {
  5: ["ai-5", "openai-for-5", "anthropic-for-5"],
  6: ["ai", "@ai-sdk/openai", "@ai-sdk/anthropic"],
};
const [version, ...names] = process.argv.slice(2);
const [ai, { createOpenAI }, { createAnthropic }] = await Promise.all(
  PACKAGES[version].map((name) => import(name)),
);

const provider = process.env.PROVIDER_URL;
const openai = createOpenAI({ baseURL: `${provider}/v1` });
const anthropic = createAnthropic({ baseURL: `${provider}/v1` });
const asked = {
  prompt: "What is the toll?",
  maxRetries: 0,
  experimental_telemetry: { isEnabled: true, metadata: { userId: "ada", tier: "gold" } },
};
const models = () => [openai.chat("gpt-4o"), openai.responses("gpt-5"), anthropic("claude-sonnet-4-5")];
const tools = {
  weather: ai.tool({
    description: "the weather",
    inputSchema: ai.jsonSchema({ type: "object", properties: { city: { type: "string" } }, required: ["city"] }),
    execute: async ({ city }) => `rain in ${city}`,
  }),
};

const calls = {
  async generate() {
    for (const model of models()) await ai.generateText({ ...asked, model });
  },
  async stream() {
    for (const model of models()) await ai.streamText({ ...asked, model }).consumeStream();
  },
  // Make two calls per run: a tool call for the weather, and the answer.
  async loop() {
    for (const model of models())
      await ai.generateText({ ...asked, model, tools, stopWhen: ai.stepCountIs(3) });
  },
  async failures() {
    for (const status of [429, 500]) {
      const failing = createOpenAI({ baseURL: `${provider}/fail-${status}/v1` });
      const error = await ai.generateText({ ...asked, model: failing.chat("gpt-4o") }).catch((error) => error);
      if (error.statusCode !== status) throw new Error(`it did not fail with ${status}: ${error}`);
    }
  },
  async embeddings() {
    const model = openai.textEmbeddingModel("text-embedding-3-small");
    const { experimental_telemetry } = asked;
    await ai.embed({ model, value: "toll", experimental_telemetry });
    await ai.embedMany({ model, values: ["toll", "house"], experimental_telemetry });
  },
};

const tracing = new NodeTracerProvider({ spanProcessors: [new BatchSpanProcessor(new OTLPTraceExporter())] });
trace.setGlobalTracerProvider(tracing);
for (const name of names) await calls[name]();
await tracing.shutdown();

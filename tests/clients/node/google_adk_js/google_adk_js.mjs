// Calls with Google's Agent Development Kit with its own tracing, exported as OTLP over HTTP. Address and key come from the
// environment. Arguments: names of functions to call.

import { FunctionTool, InMemoryRunner, LlmAgent, maybeSetOtelProviders, StreamingMode } from "@google/adk";
import { trace } from "@opentelemetry/api";
import { z } from "zod";

const provider = process.env.PROVIDER_URL;
const newMessage = { role: "user", parts: [{ text: "What is the toll?" }] };
maybeSetOtelProviders();

process.env.GOOGLE_API_KEY = "fake";

async function asked({ path = "", tools = [], streamingMode = StreamingMode.NONE } = {}) {
  process.env.GOOGLE_GEMINI_BASE_URL = provider + path;
  const agent = new LlmAgent({ name: "asker", model: "gemini-2.5-flash", instruction: "Be brief.", tools });
  const runner = new InMemoryRunner({ agent, appName: "toll" });
  const session = await runner.sessionService.createSession({ appName: "toll", userId: "ada" });
  const events = [];
  const run = runner.runAsync({ userId: "ada", sessionId: session.id, newMessage, runConfig: { streamingMode } });
  for await (const event of run) events.push(event);
  return events;
}
const weather = new FunctionTool({
  name: "weather",
  description: "The weather.",
  parameters: z.object({ city: z.string() }),
  execute: async ({ city }) => `rain in ${city}`,
});

const calls = {
  async answers() {
    await asked();
    await asked();
  },
  async streams() {
    await asked({ streamingMode: StreamingMode.SSE });
  },
  // Make two calls: a tool call for the weather, and the answer.
  async tools() {
    await asked({ tools: [weather] });
  },
  async failures() {
    const [event] = await asked({ path: "/fail-400" });
    if (event.errorCode !== "400") throw new Error("it did not fail with 400");
  },
};

for (const name of process.argv.slice(2)) await calls[name]();
await trace.getTracerProvider().getDelegate().shutdown();

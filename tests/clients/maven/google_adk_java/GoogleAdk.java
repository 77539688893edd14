// Calls with Google's Agent Development Kit with its own tracing, exported as OTLP. Arguments: names of calls.

package client;

import com.google.adk.agents.LlmAgent;
import com.google.adk.agents.RunConfig;
import com.google.adk.agents.RunConfig.StreamingMode;
import com.google.adk.models.Gemini;
import com.google.adk.runner.InMemoryRunner;
import com.google.adk.sessions.Session;
import com.google.adk.tools.Annotations.Schema;
import com.google.adk.tools.FunctionTool;
import com.google.genai.Client;
import com.google.genai.types.Content;
import com.google.genai.types.HttpOptions;
import com.google.genai.types.Part;
import io.opentelemetry.sdk.autoconfigure.AutoConfiguredOpenTelemetrySdk;
import java.util.Map;
import java.util.concurrent.TimeUnit;

public class GoogleAdk {
    private static final String PROVIDER = System.getenv("PROVIDER_URL");

    public static Map<String, Object> weather(@Schema(name = "city") String city) {
        return Map.of("weather", "rain in " + city);
    }

    private static void asked(String path, StreamingMode mode, Object... tools) {
        HttpOptions options = HttpOptions.builder().baseUrl(PROVIDER + path).build();
        Client client = Client.builder().apiKey("fake").httpOptions(options).build();
        LlmAgent agent = LlmAgent.builder()
            .name("asker").model(new Gemini("gemini-2.5-flash", client)).instruction("Be brief.").tools(tools).build();
        InMemoryRunner runner = new InMemoryRunner(agent, "toll");
        Session session = runner.sessionService().createSession("toll", "ada").blockingGet();
        RunConfig config = RunConfig.builder().setStreamingMode(mode).build();
        Content question = Content.fromParts(Part.fromText("What is the toll?"));
        runner.runAsync("ada", session.id(), question, config).blockingSubscribe();
    }

    public static void main(String[] names) {
        var sdk = AutoConfiguredOpenTelemetrySdk.initialize().getOpenTelemetrySdk();
        for (String name : names) {
            switch (name) {
                case "answers" -> asked("", StreamingMode.NONE);
                case "streams" -> asked("", StreamingMode.SSE);
                // two calls: a tool call for the weather, and the answer
                case "tools" -> asked("", StreamingMode.NONE, FunctionTool.create(GoogleAdk.class, "weather"));
                case "failures" -> {
                    try {
                        asked("/fail-400", StreamingMode.NONE);
                    } catch (RuntimeException expected) {
                        break;
                    }
                    throw new IllegalStateException("it did not fail");
                }
                default -> throw new IllegalArgumentException(name);
            }
        }
        sdk.shutdown().join(10, TimeUnit.SECONDS);
        System.exit(0);
    }
}

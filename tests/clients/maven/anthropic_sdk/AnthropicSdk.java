// Calls with Anthropic's SDK, which writes spans by itself. Arguments: names of calls.

package client;

import com.anthropic.client.AnthropicClient;
import com.anthropic.client.okhttp.AnthropicOkHttpClient;
import com.anthropic.core.JsonValue;
import com.anthropic.core.http.StreamResponse;
import com.anthropic.errors.AnthropicServiceException;
import com.anthropic.models.messages.ContentBlockParam;
import com.anthropic.models.messages.Message;
import com.anthropic.models.messages.MessageCreateParams;
import com.anthropic.models.messages.RawMessageStreamEvent;
import com.anthropic.models.messages.Tool;
import com.anthropic.models.messages.ToolResultBlockParam;
import io.opentelemetry.sdk.OpenTelemetrySdk;
import io.opentelemetry.sdk.autoconfigure.AutoConfiguredOpenTelemetrySdk;
import java.util.List;
import java.util.Map;

public class AnthropicSdk {
    private static final String URL = System.getenv("PROVIDER_URL");

    public static void main(String[] names) {
        // Closing the SDK of OpenTelemetry exports the remaining spans.
        try (OpenTelemetrySdk telemetry = AutoConfiguredOpenTelemetrySdk.initialize().getOpenTelemetrySdk()) {
            for (String name : names) {
                call(name);
            }
        }
    }

    private static void call(String name) {
        AnthropicClient client = client("", 0);
        switch (name) {
            case "messages" -> client.messages().create(asked().build());
            case "stream" -> read(client);
            case "asynchronous" -> client.async().messages().create(asked().build()).join();
            case "tools" -> useTool(client);
            case "failures" -> List.of(429, 500).forEach(AnthropicSdk::fail);
            case "retries" -> client("/flaky-500", 2).messages().create(asked().build());
            default -> throw new IllegalArgumentException(name);
        }
    }

    private static AnthropicClient client(String path, int retries) {
        return AnthropicOkHttpClient.builder().apiKey("sk-ant-fake").baseUrl(URL + path).maxRetries(retries).build();
    }

    private static MessageCreateParams.Builder asked() {
        return MessageCreateParams.builder().model("claude-sonnet-4-5").maxTokens(1024).addUserMessage("What is the toll?");
    }

    private static void read(AnthropicClient client) {
        try (StreamResponse<RawMessageStreamEvent> events = client.messages().createStreaming(asked().build())) {
            events.stream().forEach(event -> { });
        }
    }

    /** Makes two calls: the prompt, and the tool's result. */
    private static void useTool(AnthropicClient client) {
        Tool.InputSchema.Properties properties = Tool.InputSchema.Properties.builder()
            .putAdditionalProperty("city", JsonValue.from(Map.of("type", "string"))).build();
        Tool.InputSchema schema = Tool.InputSchema.builder().properties(properties).build();
        MessageCreateParams.Builder asked = asked().addTool(Tool.builder().name("weather").inputSchema(schema).build());
        Message message = client.messages().create(asked.build());
        List<ContentBlockParam> results = message.content().stream()
            .flatMap(block -> block.toolUse().stream())
            .map(used -> ToolResultBlockParam.builder().toolUseId(used.id()).content("rain in Bath").build())
            .map(ContentBlockParam::ofToolResult)
            .toList();
        client.messages().create(asked.addMessage(message).addUserMessageOfContentBlockParams(results).build());
    }

    private static void fail(int status) {
        try {
            client("/fail-" + status, 0).messages().create(asked().build());
        } catch (AnthropicServiceException expected) {
            return;
        }
        throw new IllegalStateException("it did not fail");
    }
}

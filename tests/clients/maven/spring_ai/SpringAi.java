// Calls with Spring AI with its own tracing and counters through Micrometer, exported as OTLP. Arguments: names of calls.

package client;

import java.util.Map;
import org.springframework.ai.chat.client.ChatClient;
import org.springframework.ai.anthropic.AnthropicChatModel;
import org.springframework.ai.openai.OpenAiChatModel;
import org.springframework.ai.openai.OpenAiEmbeddingModel;
import org.springframework.ai.tool.annotation.Tool;
import org.springframework.ai.tool.annotation.ToolParam;
import org.springframework.boot.CommandLineRunner;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.annotation.Bean;

@SpringBootApplication
public class SpringAi {
    private static final String QUESTION = "What is the toll?";

    public static void main(String[] names) {
        // Closing the context exports the remaining telemetry.
        SpringApplication.run(SpringAi.class, names).close();
    }

    static class Weather {
        @Tool(description = "the weather")
        String weather(@ToolParam String city) {
            return "rain in " + city;
        }
    }

    @Bean
    CommandLineRunner calls(OpenAiChatModel openai, AnthropicChatModel anthropic, OpenAiEmbeddingModel embeddings) {
        return names -> {
            for (String name : names) {
                switch (name) {
                    case "chat" -> {
                        openai.call(QUESTION);
                        anthropic.call(QUESTION);
                    }
                    case "stream" -> {
                        ChatClient.create(openai).prompt(QUESTION).stream().content().blockLast();
                        ChatClient.create(anthropic).prompt(QUESTION).stream().content().blockLast();
                    }
                    case "tools" -> {
                        ChatClient.create(openai).prompt(QUESTION).tools(new Weather()).call().content();
                        ChatClient.create(anthropic).prompt(QUESTION).tools(new Weather()).call().content();
                    }
                    case "failures" -> {
                        try {
                            openai.call(QUESTION);
                        } catch (RuntimeException expected) {
                            break;
                        }
                        throw new IllegalStateException("it did not fail");
                    }
                    case "embeddings" -> embeddings.embed(QUESTION);
                    default -> { }
                }
            }
        };
    }
}

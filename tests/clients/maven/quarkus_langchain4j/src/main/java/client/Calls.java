package client;

import dev.langchain4j.service.UserMessage;
import io.quarkiverse.langchain4j.RegisterAiService;
import io.quarkus.runtime.QuarkusApplication;
import io.quarkus.runtime.annotations.QuarkusMain;
import io.smallrye.mutiny.Multi;
import jakarta.enterprise.context.control.ActivateRequestContext;
import jakarta.inject.Inject;

/** An answer, a stream and a failure, as AI services. */
@QuarkusMain
public class Calls implements QuarkusApplication {
    private static final String QUESTION = "What is the toll?";

    @Inject
    Answering answering;

    @Inject
    Failing failing;

    @Override
    @ActivateRequestContext
    public int run(String... words) {
        answering.answer(QUESTION);
        answering.stream(QUESTION).collect().asList().await().indefinitely();
        try {
            failing.answer(QUESTION);
        } catch (RuntimeException refused) {
            return 0;
        }
        return 1;
    }

    /** Calls that the provider answers. */
    @RegisterAiService
    public interface Answering {
        String answer(@UserMessage String text);

        Multi<String> stream(@UserMessage String text);
    }

    /** Calls that the provider refuses. */
    @RegisterAiService(modelName = "failing")
    public interface Failing {
        String answer(@UserMessage String text);
    }
}

import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.UnsupportedCallbackException;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerExtensionsValidatorCallback;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallback;

/** Accepts tokens like Amazon MSK: an address signed by one known key. It recomputes the signature. */
public class SignedTokens implements AuthenticateCallbackHandler {
    private static final String KEY = "AKIDEXAMPLE", SECRET = "secret/of+a+key", HOST = "kafka.eu-west-1.amazonaws.com";

    @Override
    public void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) {
    }

    @Override
    public void close() {
    }

    @Override
    public void handle(Callback[] callbacks) throws UnsupportedCallbackException {
        for (Callback each : callbacks) {
            if (each instanceof OAuthBearerValidatorCallback asked) {
                validate(asked);
            } else if (!(each instanceof OAuthBearerExtensionsValidatorCallback)) {
                throw new UnsupportedCallbackException(each);
            }
        }
    }

    private static void validate(OAuthBearerValidatorCallback asked) {
        try {
            Instant end = endOf(asked.tokenValue());
            if (end.isAfter(Instant.now())) {
                asked.token(new Token(asked.tokenValue(), end.toEpochMilli()));
                return;
            }
        } catch (Exception error) {
            System.err.println("a token is refused: " + error);
        }
        asked.error("invalid_token", null, null);
    }

    /** Returns when a token expires, if its signature is valid. */
    private static Instant endOf(String token) throws Exception {
        URI address = new URI(new String(Base64.getUrlDecoder().decode(token), StandardCharsets.UTF_8));
        Map<String, String> asked = new TreeMap<>();
        for (String part : address.getRawQuery().split("&")) {
            asked.put(part.substring(0, part.indexOf('=')), part.substring(part.indexOf('=') + 1));
        }
        String signature = asked.remove("X-Amz-Signature");
        asked.remove("User-Agent");
        List<String> parts = new ArrayList<>();
        asked.forEach((name, value) -> parts.add(name + "=" + value));
        String at = asked.get("X-Amz-Date"), scope = at.substring(0, 8) + "/eu-west-1/kafka-cluster/aws4_request";
        String request = "GET\n/\n" + String.join("&", parts) + "\nhost:" + HOST + "\n\nhost\n" + digest("");
        String text = "AWS4-HMAC-SHA256\n" + at + "\n" + scope + "\n" + digest(request);
        byte[] key = ("AWS4" + SECRET).getBytes(StandardCharsets.UTF_8);
        for (String word : scope.split("/")) {
            key = signed(key, word);
        }
        boolean isRight = HOST.equals(address.getHost())
            && asked.get("X-Amz-Credential").equals(KEY + "%2F" + scope.replace("/", "%2F"))
            && asked.get("Action").equals("kafka-cluster%3AConnect")
            && HexFormat.of().formatHex(signed(key, text)).equals(signature);
        if (!isRight) {
            throw new SecurityException("the signature is wrong");
        }
        Instant began = DateTimeFormatter.ofPattern("yyyyMMdd'T'HHmmss'Z'").withZone(ZoneOffset.UTC).parse(at, Instant::from);
        return began.plusSeconds(Long.parseLong(asked.get("X-Amz-Expires")));
    }

    private static String digest(String text) throws Exception {
        byte[] found = MessageDigest.getInstance("SHA-256").digest(text.getBytes(StandardCharsets.UTF_8));
        return HexFormat.of().formatHex(found);
    }

    private static byte[] signed(byte[] key, String words) throws Exception {
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(key, "HmacSHA256"));
        return mac.doFinal(words.getBytes(StandardCharsets.UTF_8));
    }

    private record Token(String value, long lifetimeMs) implements OAuthBearerToken {
        @Override
        public Set<String> scope() {
            return Set.of();
        }

        @Override
        public String principalName() {
            return KEY;
        }

        @Override
        public Long startTimeMs() {
            return null;
        }
    }
}

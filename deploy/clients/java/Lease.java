import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.regex.Pattern;

/**
 * Holds a lock through a gateway with Java's own client: acquires, calls, renews, loses, is refused, releases.
 * FENCEGATE_URL, FENCEGATE_TOKEN, and KEY: account/7, where the policy fences POST /pay/7 by it.
 */
public final class Lease {
    private static final HttpClient GATEWAY = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    private static final String URL = System.getenv("FENCEGATE_URL");
    private static final String KEY = System.getenv("KEY");

    private final String id;
    private final String path;
    /** In nanoseconds of nanoTime, which stands still while the machine is suspended. There read /proc/uptime. */
    private long until;

    private Lease(int ttlMs, int waitMs) throws Exception {
        String body = "{\"keys\": [\"" + KEY + "\"], \"ttl_ms\": " + ttlMs + ", \"wait_ms\": " + waitMs + "}";
        String document = ask(to("/.fencegate/v1/leases")
                .header("Authorization", "Bearer " + System.getenv("FENCEGATE_TOKEN"))
                .POST(BodyPublishers.ofString(body)));
        id = member(document, "lease");
        path = "/.fencegate/v1/leases/" + member(document, "reference");
        System.out.println("held " + member(document, "token"));
    }

    private String ask(HttpRequest.Builder question) throws Exception {
        long sent = System.nanoTime();
        HttpResponse<String> answer = GATEWAY.send(question.build(), BodyHandlers.ofString());
        if (answer.statusCode() >= 300) {
            throw new IllegalStateException(answer.statusCode() + " " + answer.body());
        }
        // The promised time counts from the moment in which the question was sent.
        until = sent + Long.parseLong(member(answer.body(), "held_for_ms")) * 1_000_000;
        return answer.body();
    }

    private void renew() throws Exception {
        ask(to(path + "/renew").header("Fencing-Lease", id).POST(BodyPublishers.noBody()));
        System.out.println("renewed");
    }

    /** Work that does not go through the gateway: no step begins when the promised time is over. */
    private void outside() throws InterruptedException {
        int steps = 0;
        for (; steps < 3 && System.nanoTime() - until < 0; steps++) {
            Thread.sleep(10);
        }
        System.out.println("outside " + steps);
    }

    /** Work that goes through the gateway: the gateway stamps the next token on it, or refuses it. */
    private void call() throws Exception {
        HttpRequest.Builder call = to("/pay/" + KEY.substring(KEY.indexOf('/') + 1)).header("Fencing-Lease", id);
        HttpResponse<String> answer = GATEWAY.send(call.POST(BodyPublishers.noBody()).build(), BodyHandlers.ofString());
        String word = answer.headers().firstValue("Fencing-Token").orElseGet(() -> member(answer.body(), "reason"));
        System.out.println("call " + answer.statusCode() + " " + word);
    }

    private void release() throws Exception {
        HttpRequest question = to(path).header("Fencing-Lease", id).DELETE().build();
        if (GATEWAY.send(question, BodyHandlers.ofString()).statusCode() == 204) {
            System.out.println("released");
        }
    }

    private static HttpRequest.Builder to(String path) {
        return HttpRequest.newBuilder(URI.create(URL + path)).header("Content-Type", "application/json");
    }

    /** Reads one member. Java has no JSON parser, and these members are plain words and numbers. */
    private static String member(String document, String name) {
        var found = Pattern.compile("\"" + name + "\":\"?([^\",}]*)").matcher(document);
        return found.find() ? found.group(1) : "";
    }

    public static void main(String[] arguments) throws Exception {
        Lease first = new Lease(2000, 0);
        first.outside();
        first.call();
        first.call();
        first.renew();

        // Nothing renews the lease from here, as if this process slept. Another client gets the lock when the ttl is over.
        Lease second = new Lease(10_000, 8000);
        first.outside();
        first.call();

        // The second lease has waited, so its promised time may be over. The answer to a renewal decides.
        second.renew();
        second.call();
        second.release();
    }
}

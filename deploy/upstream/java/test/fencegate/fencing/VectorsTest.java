package fencegate.fencing;

import jakarta.servlet.http.HttpServletRequest;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.logging.Handler;
import java.util.logging.Level;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import java.util.logging.SimpleFormatter;

/** The contract's requests and handlers, in a real container. */
public final class VectorsTest {
    private VectorsTest() {}

    public static void main(String[] arguments) throws Exception {
        Logger.getLogger("org.apache").setLevel(Level.OFF);
        try (Site site = new Site()) {
            requestsAreReadAsTheContractSays(site);
            answersAreHeldBackAsTheContractSays(site);
            AnswersTest.run(site);
            DeadlineTest.run(site);
        }
        System.out.println("VectorsTest: ok");
    }

    private static void requestsAreReadAsTheContractSays(Site site) throws Exception {
        for (Map<String, Object> vector : Check.vectors("requests")) {
            String which = (String) vector.get("name");
            List<Map<String, Object>> read = new ArrayList<>();
            WatermarkStore all = (transaction, key, stamp, compare) -> true;
            site.runs(Settings.of(all).comparing(Check.compare(vector)), (request, response) -> {
                Fence fence = Fence.of(request);
                read.add(told(fence.stamp()));
                fence.claim(Scripted.connection(false));
            });
            List<List<String>> fields = Check.list(vector.get("fields")).stream().map(Check::texts).toList();
            Site.Answer answer = site.exchange("POST", fields);
            Object refused = vector.get("refused");
            if (refused == null) {
                Check.equal(200, answer.status(), which);
                Check.equal(List.of(vector.get("accepted")), read, which);
            } else {
                Site.assertAnswer(answer, (String) refused, which);
                Check.equal(List.of(), read, which);
            }
        }
    }

    private static Map<String, Object> told(Stamp stamp) {
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("token", stamp.token());
        told.put("number", Long.toString(stamp.number()));
        told.put("keys", stamp.keys());
        told.put("mode", stamp.mode().name().toLowerCase());
        return told;
    }

    private static void answersAreHeldBackAsTheContractSays(Site site) throws Exception {
        for (Map<String, Object> vector : Check.vectors("handlers")) {
            String which = (String) vector.get("name");
            int status = ((Double) vector.get("status")).intValue();
            List<String> claims = Check.texts(vector.get("claims"));
            site.runs(Settings.of(new Scripted(claims)), (request, response) -> {
                Exception failed = claimed(request, claims);
                if (status == 0) {
                    throw failed;
                }
                response.setHeader("X-Own", "1");
                response.setStatus(status);
                if (status != 204) {
                    response.getWriter().print("the handler's");
                }
            });
            List<String> log = new ArrayList<>();
            Site.Answer answer = logged(log, () -> site.exchange("POST", Site.STAMPED));
            Object sent = vector.get("sent");
            if (sent instanceof Double own) {
                Check.equal(own.intValue(), answer.status(), which);
                Check.equal("1", answer.fields().get("x-own"), which);
            } else {
                Site.assertAnswer(answer, (String) sent, which);
                Check.equal(null, answer.fields().get("x-own"), which);
            }
            String words = "POST /pay " + Site.STAMPED.get(0).get(1) + ": answered " + status
                    + " without a claim: it may have taken effect";
            Check.equal("unclaimed".equals(sent), log.stream().anyMatch(line -> line.contains(words)), which + log);
        }
    }

    /** The failure of the last failed claim. */
    private static Exception claimed(HttpServletRequest request, List<String> claims) {
        Exception failed = new IllegalStateException("without a reason");
        for (int claim = 0; claim < claims.size(); claim++) {
            try {
                Fence.of(request).claim(Scripted.connection(false));
            } catch (Exception failure) {
                failed = failure;
            }
        }
        return failed;
    }

    interface Exchange {
        Site.Answer made() throws Exception;
    }

    static Site.Answer logged(List<String> lines, Exchange exchange) throws Exception {
        Logger logger = Logger.getLogger(FenceFilter.class.getName());
        Handler keeps = new Handler() {
            @Override
            public void publish(LogRecord told) {
                Check.equal(Level.SEVERE, told.getLevel(), told.getMessage());
                lines.add(new SimpleFormatter().formatMessage(told));
            }

            @Override
            public void flush() {}

            @Override
            public void close() {}
        };
        logger.setUseParentHandlers(false);
        logger.addHandler(keeps);
        try {
            return exchange.made();
        } finally {
            logger.removeHandler(keeps);
        }
    }
}

package fencegate.fencing;

import jakarta.servlet.ServletException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** Every way in which a servlet begins an answer, and the settings. */
final class AnswersTest {
    private static final String LONG = "x".repeat(20_000);

    private AnswersTest() {}

    static void run(Site site) throws Exception {
        noWayToBeginAnAnswerGoesAroundTheFence(site);
        theStatusMayComeAfterTheFirstBytes(site);
        aStaleClaimIsToldHoweverItIsWrapped(site);
        aHandlersOwnRefusalPasses(site);
        aClaimOutsideOfATransactionIsRefused(site);
        anUnfencedMethodPassesWithoutAnyField(site);
        fieldsHaveOtherNamesWhereThePolicySaysSo(site);
        theFormerNamesStillWork(site);
    }

    private static Settings meets(String... meets) {
        return Settings.of(new Scripted(List.of(meets)));
    }

    private static Site.Answer quietly(Site site, String method, List<List<String>> fields) throws Exception {
        return VectorsTest.logged(new ArrayList<>(), () -> site.exchange(method, fields));
    }

    private static void noWayToBeginAnAnswerGoesAroundTheFence(Site site) throws Exception {
        Map<String, Site.Handler> ways = Map.of(
                "nothing", (request, response) -> {},
                "a writer", (request, response) -> response.getWriter().print("done"),
                "a stream", (request, response) -> response.getOutputStream().print("done"),
                "a long one", (request, response) -> response.getWriter().print(LONG),
                "a flush", (request, response) -> response.flushBuffer(),
                "a flushed writer", (request, response) -> {
                    response.getWriter().print("done");
                    response.getWriter().flush();
                    response.setStatus(409);
                },
                "a closed stream", (request, response) -> {
                    response.getOutputStream().print("done");
                    response.getOutputStream().close();
                },
                "a redirect", (request, response) -> response.sendRedirect("/elsewhere"),
                "one of Servlet 6.1", (request, response) ->
                        ((HeldAnswer) response).sendRedirect("/elsewhere", 303, true));
        for (Map.Entry<String, Site.Handler> way : ways.entrySet()) {
            site.runs(meets(), way.getValue());
            Site.assertAnswer(quietly(site, "POST", Site.STAMPED), "unclaimed", way.getKey());
            site.runs(meets("passes"), (request, response) -> {
                Fence.of(request).claim(Scripted.connection(false));
                way.getValue().serve(request, response);
            });
            Site.Answer given = site.exchange("POST", Site.STAMPED);
            Check.that(List.of(200, 302, 303).contains(given.status()), way.getKey() + given);
            Check.equal(way.getKey().equals("a long one"), given.body().contains(LONG.substring(0, 8000)), way.getKey());
        }
    }

    private static void theStatusMayComeAfterTheFirstBytes(Site site) throws Exception {
        site.runs(meets(), (request, response) -> {
            response.getWriter().print("not enough is there");
            response.setStatus(422);
        });
        Site.Answer answer = site.exchange("POST", Site.STAMPED);
        Check.equal(422, answer.status(), answer.toString());
        Check.that(answer.body().contains("not enough"), answer.toString());
    }

    private static void aStaleClaimIsToldHoweverItIsWrapped(Site site) throws Exception {
        for (String how : List.of("bare", "wrapped", "another failure", "an error of its own")) {
            site.runs(meets("stale"), (request, response) -> {
                try {
                    Fence.of(request).claim(Scripted.connection(false));
                } catch (StaleTokenException stale) {
                    switch (how) {
                        case "bare" -> throw stale;
                        case "wrapped" -> throw new ServletException("in a framework", stale);
                        case "another failure" -> throw new IllegalStateException("rollback");
                        default -> response.sendError(503, "later");
                    }
                }
            });
            List<String> log = new ArrayList<>();
            Site.Answer answer = VectorsTest.logged(log, () -> site.exchange("POST", Site.STAMPED));
            Site.assertAnswer(answer, "stale", how);
            Check.equal(how.equals("another failure"), !log.isEmpty(), how + log);
        }
    }

    private static void aHandlersOwnRefusalPasses(Site site) throws Exception {
        site.runs(meets("stale"), (request, response) -> {
            try {
                Fence.of(request).claim(Scripted.connection(false));
            } catch (StaleTokenException stale) {
                response.setStatus(412);
                response.setHeader("Fencing-Refusal", "stale");
                response.getWriter().print("its own words");
            }
        });
        Site.Answer answer = site.exchange("POST", Site.STAMPED);
        Check.equal(412, answer.status(), answer.toString());
        Check.that(answer.body().contains("its own words"), answer.toString());
    }

    private static void aClaimOutsideOfATransactionIsRefused(Site site) throws Exception {
        site.runs(meets("passes"), (request, response) -> {
            try {
                Fence.of(request).claim(Scripted.connection(true));
            } catch (IllegalStateException wrong) {
                response.setStatus(503);
            }
        });
        Check.equal(503, site.exchange("POST", Site.STAMPED).status(), "autocommit");
        site.runs(meets(), (request, response) -> {
            Check.that(!request.isAsyncSupported(), "asynchronous");
            request.startAsync();
        });
        Check.equal(500, site.exchange("POST", Site.STAMPED).status(), "asynchronous");
    }

    private static void anUnfencedMethodPassesWithoutAnyField(Site site) throws Exception {
        site.runs(meets().unfenced("GET", "HEAD"), (request, response) ->
                response.setStatus(Fence.of(request) == null ? 418 : 200));
        Check.equal(418, site.exchange("GET", List.of()).status(), "GET");
        Check.equal(418, site.exchange("HEAD", List.of()).status(), "HEAD");
        Site.assertAnswer(site.exchange("POST", List.of()), "token-missing", "POST");
        Site.assertAnswer(site.exchange("GET", List.of(List.of("Fencing_Key", "a"))), "token-missing", "a look-alike");
        Site.assertAnswer(quietly(site, "GET", Site.STAMPED), "unclaimed", "a fenced one");
        Site.Answer head = quietly(site, "HEAD", Site.STAMPED);
        Check.equal(500, head.status(), "HEAD");
        Check.equal("", head.body(), "HEAD");
    }

    private static void fieldsHaveOtherNamesWhereThePolicySaysSo(Site site) throws Exception {
        List<List<String>> sent = new ArrayList<>(Site.STAMPED.subList(1, 3));
        sent.add(List.of("x-token", Site.STAMPED.get(0).get(1)));
        sent.add(List.of("x-number", "171"));
        site.runs(meets("passes").fields("X-Token", "X-Number"), (request, response) ->
                Fence.of(request).claim(Scripted.connection(false)));
        Check.equal(200, site.exchange("POST", sent).status(), "renamed");
        Site.assertAnswer(site.exchange("POST", Site.STAMPED), "token-missing", "the usual name");
        sent.add(List.of("x_token", "1"));
        Site.assertAnswer(site.exchange("POST", sent), "token-malformed", "a look-alike");
        try {
            meets().fields("Fencing-Key", "X-Number");
        } catch (IllegalArgumentException refused) {
            return;
        }
        throw new AssertionError("one name for two fields");
    }

    /** The names before the renames work for one version. */
    @SuppressWarnings("removal")
    private static void theFormerNamesStillWork(Site site) throws Exception {
        Marks marks = (transaction, key, stamp, compare) -> false;
        Settings settings = Settings.of(marks);
        Check.that(settings.marks() == marks && settings.watermarks() == marks, "the watermarks");
        site.runs(settings, (request, response) -> {
            try {
                Fence.of(request).claim(Scripted.connection(false));
            } catch (Stale stale) {
                response.setStatus(409);
            }
        });
        Site.assertAnswer(site.exchange("POST", Site.STAMPED), "stale", "a claim of marks");
        Marks postgres = new PostgresMarks();
        Check.that(postgres instanceof PostgresWatermarkStore, "the marks of PostgreSQL");
    }
}

package fencegate.fencing;

import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.nio.charset.StandardCharsets;

/** The answers of the filter (RFC 9457). */
enum Problem {
    TOKEN_MISSING(403, "token-missing", "there is no token: the way in is the gateway"),
    TOKEN_MALFORMED(400, "token-malformed", "the token cannot be read"),
    STALE(412, "stale", "a newer request was let in; nothing was done"),
    UNCLAIMED(500, "unclaimed", "the service did not compare the token; the outcome of the request is unknown"),
    CLAIMED_TWICE(500, "claimed-twice", "the service claimed twice; the outcome of the first claim is unknown"),
    EXPIRED(412, "expired", "the request came too late to be begun"),
    NOT_AFTER_MISSING(403, "not-after-missing", "there is no Fencing-Not-After: the way in is the gateway"),
    NOT_AFTER_MALFORMED(400, "not-after-malformed", "Fencing-Not-After cannot be read");

    /** Tells the gateway that a 412 is about the fence, and not about a client's {@code If-Match}. */
    static final String REFUSAL = "Fencing-Refusal";

    private final int status;
    private final String reason;
    private final String title;

    Problem(int status, String reason, String title) {
        this.status = status;
        this.reason = reason;
        this.title = title;
    }

    Refused refused() {
        return new Refused(this);
    }

    void writeTo(HttpServletResponse response) throws IOException {
        // The fields of the replaced answer are removed as well.
        response.reset();
        send(response);
    }

    /** Refuses a request that no handler has seen, and shows the clock by which it was refused. */
    void writeTo(HttpServletResponse response, Timing timing) throws IOException {
        response.reset();
        timing.tell(response);
        send(response);
    }

    private void send(HttpServletResponse response) throws IOException {
        response.setStatus(status);
        if (this == STALE || this == EXPIRED) {
            response.setHeader(REFUSAL, reason);
        }
        String json = "{\"title\":\"" + title + "\",\"status\":" + status + ",\"reason\":\"" + reason + "\"}";
        byte[] body = json.getBytes(StandardCharsets.US_ASCII);
        response.setContentType("application/problem+json");
        response.setContentLength(body.length);
        response.getOutputStream().write(body);
        // Sent at once, so that nothing can replace the status.
        response.flushBuffer();
    }

    /** Thrown before the handler gets the request. */
    static final class Refused extends RuntimeException {
        private static final long serialVersionUID = 1;
        final Problem problem;

        private Refused(Problem problem) {
            super(problem.title);
            this.problem = problem;
        }
    }
}

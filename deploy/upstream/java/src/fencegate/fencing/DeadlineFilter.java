package fencegate.fencing;

import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpFilter;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.time.Duration;
import java.util.Collections;
import java.util.Set;
import java.util.function.Supplier;

/**
 * Refuses requests that come too late to be begun. It needs no database and compares no token. It is the last filter before
 * the handler.
 */
public final class DeadlineFilter extends HttpFilter {
    private static final long serialVersionUID = 1;
    private final transient Timing timing;
    private final transient Set<String> unfenced;

    private DeadlineFilter(Timing timing, Set<String> unfenced) {
        this.timing = timing;
        this.unfenced = unfenced;
    }

    /** With the default clock error, 500 ms, for all methods. */
    public static DeadlineFilter create() {
        return new DeadlineFilter(new Timing(new MachineClock(), Timing.CLOCK_ERROR), Set.of());
    }

    /** Lets requests of these methods pass if they have neither Fencing-Not-After nor Fencing-Key. */
    public DeadlineFilter unfenced(String... methods) {
        return new DeadlineFilter(timing, Set.of(methods));
    }

    /**
     * The most by which the wall clocks of sender and service differ. It is subtracted from the deadline, except on the
     * machine of the sender.
     */
    public DeadlineFilter clockError(Duration most) {
        return new DeadlineFilter(new Timing(timing.clock(), most), unfenced);
    }

    /** For tests. */
    DeadlineFilter clock(Supplier<Moment> clock) {
        return new DeadlineFilter(new Timing(clock, timing.clockError()), unfenced);
    }

    @Override
    protected void doFilter(HttpServletRequest request, HttpServletResponse response, FilterChain chain)
            throws IOException, ServletException {
        if (unfenced.contains(request.getMethod()) && !isFenced(request)) {
            chain.doFilter(request, response);
            return;
        }
        Deadline deadline;
        try {
            deadline = timing.read(request);
            if (deadline == null) {
                throw Problem.NOT_AFTER_MISSING.refused();
            }
        } catch (Problem.Refused refused) {
            refused.problem.writeTo(response, timing);
            return;
        }
        timing.tell(response);
        request.setAttribute(Deadline.class.getName(), deadline);
        chain.doFilter(request, response);
    }

    private static boolean isFenced(HttpServletRequest request) {
        return Collections.list(request.getHeaderNames()).stream().map(Spelling::plain)
                .anyMatch(name -> name.equals("fencing-not-after") || name.equals("fencing-key"));
    }
}

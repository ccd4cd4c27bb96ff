package fencegate.fencing;

import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpFilter;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.lang.System.Logger.Level;

/**
 * Lets a service refuse requests that were overtaken. It is put before the routes that the policy fences; their handlers
 * have to claim before they say that something is done.
 *
 * <p>Registered without {@code asyncSupported}: the thread that claims is the one that answers.
 */
public final class FenceFilter extends HttpFilter {
    private static final long serialVersionUID = 1;
    private static final System.Logger LOG = System.getLogger(FenceFilter.class.getName());
    private final transient Settings settings;
    private final transient Timing timing;

    public FenceFilter(Settings settings) {
        this.settings = settings;
        this.timing = settings.clockError() == null ? null : new Timing(new MachineClock(), settings.clockError());
    }

    @Override
    protected void doFilter(HttpServletRequest request, HttpServletResponse response, FilterChain chain)
            throws IOException, ServletException {
        try {
            // A request that came too late is refused before its token is read. The field may be missing here.
            if (timing != null) {
                timing.read(request);
            }
        } catch (Problem.Refused refused) {
            refused.problem.writeTo(response, timing);
            return;
        }
        Presented presented = Presented.by(request, settings);
        if (settings.unfenced().contains(request.getMethod()) && presented.isEmpty()) {
            chain.doFilter(request, response);
            return;
        }
        Fence fence;
        try {
            fence = new Fence(Stamp.read(presented), settings);
        } catch (Problem.Refused refused) {
            refused.problem.writeTo(response);
            return;
        }
        request.setAttribute(Fence.class.getName(), fence);
        HeldAnswer answer = new HeldAnswer(request, response, fence);
        try {
            chain.doFilter(new Synchronous(request), answer);
        } catch (IOException | ServletException | RuntimeException failure) {
            // The filter answers a stale request itself. The container answers all other failures, as it does without the filter.
            if (answer.isGiven(HttpServletResponse.SC_INTERNAL_SERVER_ERROR)) {
                throw failure;
            }
            if (!isStale(failure)) {
                LOG.log(Level.ERROR, "a handler failed whose answer was replaced", failure);
            }
            return;
        }
        answer.finish();
    }

    /** Looks through the causes, because frameworks wrap what a handler throws. */
    private static boolean isStale(Throwable failure) {
        for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
            if (cause instanceof StaleTokenException) {
                return true;
            }
        }
        return false;
    }
}

package fencegate.fencing;

import jakarta.servlet.ServletOutputStream;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import jakarta.servlet.http.HttpServletResponseWrapper;
import java.io.IOException;
import java.io.OutputStreamWriter;
import java.io.PrintWriter;
import java.lang.System.Logger.Level;

/** Holds the handler's answer back until its head is known, and then decides whether it may be sent. */
final class HeldAnswer extends HttpServletResponseWrapper {
    private enum State { HELD, GIVEN, REPLACED }

    private static final System.Logger LOG = System.getLogger(FenceFilter.class.getName());

    private final HttpServletRequest request;
    private final Fence fence;
    private final HeldBody body = new HeldBody(this);
    private State state = State.HELD;
    private PrintWriter writer;

    HeldAnswer(HttpServletRequest request, HttpServletResponse response, Fence fence) {
        super(response);
        this.request = request;
        this.fence = fence;
    }

    /** The handler has returned. */
    void finish() throws IOException {
        if (writer != null) {
            writer.flush();
        }
        body.release();
    }

    /** Decides once, when the answer begins. True if the handler's bytes are sent. */
    boolean isGiven(int status) throws IOException {
        if (state == State.HELD) {
            Problem problem = fence.objection(status, "stale".equals(getHeader(Problem.REFUSAL)));
            state = problem == null ? State.GIVEN : State.REPLACED;
            if (problem == Problem.UNCLAIMED) {
                LOG.log(Level.ERROR, "{0} {1} {2}: answered {3} without a claim: it may have taken effect, and a stale "
                        + "request would have as well; call claim() in the transaction of the effect",
                        request.getMethod(), request.getRequestURI(), fence.stamp().name(), Integer.toString(status));
            }
            if (problem != null) {
                problem.writeTo((HttpServletResponse) getResponse());
            }
        }
        return state == State.GIVEN;
    }

    /** The stream for the bytes of the handler's answer. */
    ServletOutputStream outlet() throws IOException {
        return super.getOutputStream();
    }

    @Override
    public ServletOutputStream getOutputStream() {
        return body;
    }

    @Override
    public PrintWriter getWriter() throws IOException {
        if (writer == null) {
            // Adds the charset to Content-Type, as the container's own writer does.
            setCharacterEncoding(getCharacterEncoding());
            writer = new PrintWriter(new OutputStreamWriter(body, getCharacterEncoding()));
        }
        return writer;
    }

    @Override
    public void flushBuffer() throws IOException {
        finish();
        if (isGiven(getStatus())) {
            super.flushBuffer();
        }
    }

    @Override
    public void sendError(int status, String message) throws IOException {
        body.forget();
        if (isGiven(status)) {
            super.sendError(status, message);
        }
    }

    @Override
    public void sendError(int status) throws IOException {
        body.forget();
        if (isGiven(status)) {
            super.sendError(status);
        }
    }

    @Override
    public void sendRedirect(String location) throws IOException {
        body.forget();
        if (isGiven(SC_FOUND)) {
            super.sendRedirect(location);
        }
    }

    /** The method of Servlet 6.1, made of its parts, because this may be compiled with an older version. */
    public void sendRedirect(String location, int status, boolean clearBuffer) throws IOException {
        if (clearBuffer) {
            resetBuffer();
        }
        setStatus(status);
        setHeader("Location", location);
        flushBuffer();
    }

    @Override
    public void resetBuffer() {
        super.resetBuffer();
        body.forget();
    }

    @Override
    public void reset() {
        super.reset();
        body.forget();
        writer = null;
    }

    @Override
    public boolean isCommitted() {
        return state != State.HELD || super.isCommitted();
    }
}

package fencegate.fencing;

import jakarta.servlet.ServletRequest;

/** The moment after which a request must not be begun any more, for a handler that waits once more before it begins. */
public final class Deadline {
    private final Moment notAfter;
    private final Timing timing;

    Deadline(Moment notAfter, Timing timing) {
        this.notAfter = notAfter;
        this.timing = timing;
    }

    /** The deadline of a request behind {@link DeadlineFilter}; null where it has none, because its method is unfenced. */
    public static Deadline of(ServletRequest request) {
        return (Deadline) request.getAttribute(Deadline.class.getName());
    }

    public Moment notAfter() {
        return notAfter;
    }

    /** Whether the work must not be begun any more. Check it again after a wait of your own, as for a connection. */
    public boolean isOver() {
        return !NotAfter.isInTime(notAfter, timing.clock().get(), timing.clockError());
    }
}

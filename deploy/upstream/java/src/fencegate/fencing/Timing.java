package fencegate.fencing;

import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.Supplier;

/**
 * The clock of this machine, and how far the one of the sender may be from it.
 *
 * @param clock the clock
 * @param clockError the most by which the two wall clocks differ
 */
record Timing(Supplier<Moment> clock, Duration clockError) {
    static final Duration CLOCK_ERROR = Duration.ofMillis(500);

    Timing {
        if (clockError.isNegative()) {
            throw new IllegalArgumentException("a clock error is not negative");
        }
    }

    /**
     * The deadline of a request that is in time; null if the field is in no spelling there.
     *
     * @throws Problem.Refused if it is late, or the field cannot be read
     */
    Deadline read(HttpServletRequest request) {
        // A container may list a name once per spelling, each time with all values.
        Set<String> names = new TreeSet<>(String.CASE_INSENSITIVE_ORDER);
        names.addAll(Collections.list(request.getHeaderNames()));
        List<String> values = new ArrayList<>();
        boolean hasLookAlike = false;
        for (String name : names) {
            if (Spelling.isSame(name, NotAfter.FIELD)) {
                values.addAll(Collections.list(request.getHeaders(name)));
            } else if (Spelling.plain(name).equals(Spelling.plain(NotAfter.FIELD))) {
                hasLookAlike = true;
            }
        }
        if (values.isEmpty() && !hasLookAlike) {
            return null;
        }
        Moment notAfter = values.size() == 1 && !hasLookAlike ? NotAfter.parse(values.get(0)) : null;
        if (notAfter == null) {
            throw Problem.NOT_AFTER_MALFORMED.refused();
        }
        Deadline deadline = new Deadline(notAfter, this);
        if (deadline.isOver()) {
            throw Problem.EXPIRED.refused();
        }
        return deadline;
    }

    /** Says on an answer what this clock shows: the sender measures by it how far the two clocks differ. */
    void tell(HttpServletResponse response) {
        response.setHeader("Fencing-Clock", clock.get().wallMillis() + ";error=" + clockError.toMillis());
    }
}

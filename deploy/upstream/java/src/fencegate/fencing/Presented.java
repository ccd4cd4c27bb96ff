package fencegate.fencing;

import jakarta.servlet.http.HttpServletRequest;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;

/** The values of the four fields as they were sent, and look-alikes of them. */
record Presented(
        List<String> tokens,
        List<String> numbers,
        List<String> keys,
        List<String> modes,
        boolean hasCompared,
        boolean hasLookAlike) {

    static Presented by(HttpServletRequest request, Settings settings) {
        // A container may list a name once per spelling, each time with all values.
        Set<String> names = new TreeSet<>(String.CASE_INSENSITIVE_ORDER);
        names.addAll(Collections.list(request.getHeaderNames()));
        List<List<String>> values = List.of(new ArrayList<>(), new ArrayList<>(), new ArrayList<>(), new ArrayList<>());
        boolean hasCompared = false;
        boolean hasLookAlike = false;
        for (String name : names) {
            for (int at = 0; at < values.size(); at++) {
                String wanted = settings.fieldNames().get(at);
                if (!Spelling.plain(name).equals(Spelling.plain(wanted))) {
                    continue;
                }
                hasCompared |= wanted.equals(settings.comparedField());
                if (Spelling.isSame(name, wanted)) {
                    values.get(at).addAll(Collections.list(request.getHeaders(name)));
                } else {
                    hasLookAlike = true;
                }
            }
        }
        return new Presented(
                values.get(0), values.get(1), values.get(2), values.get(3), hasCompared, hasLookAlike);
    }

    boolean isEmpty() {
        return !hasLookAlike && tokens.isEmpty() && numbers.isEmpty() && keys.isEmpty() && modes.isEmpty();
    }
}

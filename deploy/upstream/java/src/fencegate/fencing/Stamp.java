package fencegate.fencing;

import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The gateway's stamp on a request.
 *
 * @param token null if only the number was sent, which is allowed if numbers are compared
 * @param number equal within a tenure
 * @param keys ascending, none twice
 * @param mode a write or a read
 */
public record Stamp(String token, long number, List<String> keys, Mode mode) {
    /** Of fixed width and in lower case: two spellings would order differently. The epoch is below 2^63. */
    private static final Pattern TOKEN = Pattern.compile("v1-([0-7][0-9a-f]{15})-[0-9a-f]{8}-[0-9a-f]{8}");
    /** The form is checked before a number is read: parseLong takes +5, and digits of all alphabets. */
    private static final Pattern NUMBER = Pattern.compile("0|[1-9][0-9]{0,18}");
    private static final Pattern KEY = Pattern.compile("[!-~]{1,512}");
    /** Bounds that no gateway exceeds. */
    private static final int MOST_KEYS = 64;
    private static final int MOST_BYTES = 8192;

    /** Nothing is trimmed, and no part of it is guessed. */
    static Stamp read(Presented presented) {
        if (!presented.hasCompared()) {
            throw Problem.TOKEN_MISSING.refused();
        }
        if (presented.hasLookAlike()) {
            throw malformed();
        }
        String token = atMostOne(presented.tokens());
        String written = atMostOne(presented.numbers());
        String keys = atMostOne(presented.keys());
        String mode = atMostOne(presented.modes());
        if (keys == null || mode == null) {
            throw malformed();
        }
        // The compared field is present, so at least one of the two is.
        long number = written == null ? epoch(token) : number(written);
        if (token != null && epoch(token) != number) {
            throw malformed();
        }
        return new Stamp(token, number, keys(keys), Mode.parse(mode));
    }

    /** Identifies the stamp in a log. */
    String name() {
        return token == null ? Long.toString(number) : token;
    }

    private static Problem.Refused malformed() {
        return Problem.TOKEN_MALFORMED.refused();
    }

    private static String atMostOne(List<String> values) {
        if (values.size() > 1) {
            throw malformed();
        }
        return values.isEmpty() ? null : values.get(0);
    }

    private static long epoch(String token) {
        Matcher parts = TOKEN.matcher(token);
        if (!parts.matches()) {
            throw malformed();
        }
        return Long.parseLong(parts.group(1), 16);
    }

    private static long number(String text) {
        if (!NUMBER.matcher(text).matches()) {
            throw malformed();
        }
        try {
            return Long.parseLong(text);
        } catch (NumberFormatException beyond) {
            throw malformed();
        }
    }

    private static List<String> keys(String text) {
        List<String> keys = List.of(text.split(", ", -1));
        String before = "";
        for (String key : keys) {
            // Of ASCII, the order of characters is that of bytes.
            if (!KEY.matcher(key).matches() || key.compareTo(before) <= 0) {
                throw malformed();
            }
            before = key;
        }
        if (keys.size() > MOST_KEYS || keys.stream().mapToInt(String::length).sum() > MOST_BYTES) {
            throw malformed();
        }
        return keys;
    }
}

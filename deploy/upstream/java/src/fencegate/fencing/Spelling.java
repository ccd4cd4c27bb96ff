package fencegate.fencing;

/** Tells which field names some server takes for the same. */
final class Spelling {
    private Spelling() {}

    /** One spelling for all names that some server takes for the same: CGI and its heirs make one variable of - and _. */
    static String plain(String name) {
        return lower(name).replaceAll("[^a-z0-9]", "-");
    }

    static boolean isSame(String name, String other) {
        return lower(name).equals(lower(other));
    }

    /** ASCII only, because some letters of other alphabets become ASCII in lower case. */
    private static String lower(String name) {
        StringBuilder lower = new StringBuilder(name);
        for (int at = 0; at < name.length(); at++) {
            char letter = name.charAt(at);
            if (letter >= 'A' && letter <= 'Z') {
                lower.setCharAt(at, (char) (letter - 'A' + 'a'));
            }
        }
        return lower.toString();
    }
}

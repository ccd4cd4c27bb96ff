package fencegate.fencing;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Reads {@code Fencing-Not-After}: the moment after which a request must not be begun any more. */
final class NotAfter {
    static final String FIELD = "Fencing-Not-After";
    /** In bytes. */
    private static final int LONGEST = 128;

    /** The values of RFC 9651 that a parameter may have; the longer form of a number comes first. */
    private static final String ITEM = "\"(?:[ !#-\\[\\]-~]|\\\\[\"\\\\])*\"|-?[0-9]{1,12}\\.[0-9]{1,3}|-?[0-9]{1,15}"
            + "|[A-Za-z*][!#$%&'*+.^_`|~:/0-9A-Za-z-]*|:[A-Za-z0-9+/=]*:|\\?[01]|@-?[0-9]{1,15}"
            + "|%\"(?:[ !#$&-~]|%[0-9a-f]{2})*\"";
    private static final Pattern FORM =
            Pattern.compile("(0|[1-9][0-9]{0,14})((?:; *[a-z*][a-z0-9_.*-]*(?:=(?:" + ITEM + "))?)*)");
    private static final Pattern PARAMETER = Pattern.compile("; *([a-z*][a-z0-9_.*-]*)(?:=(" + ITEM + "))?");
    private static final Pattern MILLIS = Pattern.compile("0|[1-9][0-9]{0,14}");

    private NotAfter() {}

    /**
     * The moment of a value such as {@code 1795727217123;boot="<id>";uptime=<ms>}; null if it is not of this form.
     * Parameters with other names are ignored.
     */
    static Moment parse(String value) {
        Matcher form = FORM.matcher(value);
        if (value.length() > LONGEST || !form.matches()) {
            return null;
        }
        List<String> boots = new ArrayList<>();
        List<String> uptimes = new ArrayList<>();
        Matcher parameter = PARAMETER.matcher(form.group(2));
        while (parameter.find()) {
            String item = parameter.group(2) == null ? "" : parameter.group(2);
            switch (parameter.group(1)) {
                case "boot" -> boots.add(item);
                case "uptime" -> uptimes.add(item);
                default -> { }
            }
        }
        long wall = Long.parseLong(form.group(1));
        if (boots.isEmpty() && uptimes.isEmpty()) {
            return Moment.ofWall(wall);
        }
        if (boots.size() != 1 || uptimes.size() != 1
                || !boots.get(0).startsWith("\"") || !MILLIS.matcher(uptimes.get(0)).matches()) {
            return null;
        }
        String boot = boots.get(0).substring(1, boots.get(0).length() - 1);
        return new Moment(wall, boot, Long.parseLong(uptimes.get(0)));
    }

    /**
     * Whether a request may be begun now: only if it is certainly still in time. On the machine of the sender the kernel's
     * clock decides, without an error; elsewhere the wall clock does.
     */
    static boolean isInTime(Moment notAfter, Moment now, Duration clockError) {
        if (notAfter.boot() != null && !notAfter.boot().isEmpty() && notAfter.boot().equals(now.boot())) {
            return now.uptimeMillis() < notAfter.uptimeMillis();
        }
        return now.wallMillis() + clockError.toMillis() < notAfter.wallMillis();
    }
}

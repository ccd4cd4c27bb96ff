package fencegate.fencing;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.function.Supplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Reads the clocks of this machine: the wall clock, and the clock of its kernel since the boot. The boot id is read once:
 * it does not change while a process runs.
 */
final class MachineClock implements Supplier<Moment> {
    private static final Pattern UPTIME = Pattern.compile("([0-9]{1,12})\\.([0-9]{2}) .*", Pattern.DOTALL);
    /** {@code /proc/uptime} has hundredths of a second and rounds down: the true time is less than this above it. */
    private static final long RESOLUTION_MILLIS = 10;

    private final String boot = bootId(Path.of("/proc"));

    @Override
    public Moment get() {
        long wall = System.currentTimeMillis();
        try {
            long uptime = boot == null ? -1 : parseUptime(Files.readString(Path.of("/proc/uptime")));
            return uptime < 0 ? Moment.ofWall(wall) : new Moment(wall, boot, uptime);
        } catch (IOException unreadable) {
            return Moment.ofWall(wall);
        }
    }

    /**
     * The boot id, if {@code uptime} beside it shows the clock of this boot; null in a time namespace with an offset, and
     * where something is mounted over the file, as LXCFS does.
     *
     * @param proc where procfs is mounted
     */
    static String bootId(Path proc) {
        try {
            String id = Files.readString(proc.resolve("sys/kernel/random/boot_id")).strip();
            boolean isCovered = Files.readString(proc.resolve("self/mountinfo")).lines().anyMatch(MachineClock::covers);
            return id.isEmpty() || isCovered || hasOffset(proc) ? null : id;
        } catch (IOException unreadable) {
            return null;
        }
    }

    private static boolean covers(String mount) {
        String[] words = mount.split(" ");
        return words.length > 4
                && (words[4].equals("/proc/uptime") || words[4].startsWith("/proc/sys/kernel/random"));
    }

    private static boolean hasOffset(Path proc) throws IOException {
        try {
            String offsets = Files.readString(proc.resolve("self/timens_offsets"));
            return !offsets.lines().allMatch(line -> line.matches("[a-z]+\\s+0\\s+0"));
        } catch (NoSuchFileException absent) {
            // A kernel without time namespaces has no such file.
            return false;
        }
    }

    /** Milliseconds of a text such as {@code 651.13 294.76}, rounded up to the safe side; negative if it is another one. */
    static long parseUptime(String text) {
        Matcher parts = UPTIME.matcher(text);
        return parts.matches() ? Long.parseLong(parts.group(1) + parts.group(2)) * 10 + RESOLUTION_MILLIS : -1;
    }
}

package fencegate.fencing;

/**
 * One moment, as the clocks of one machine tell it.
 *
 * @param wallMillis milliseconds since 1970-01-01 UTC
 * @param boot the boot id of a kernel; null if nothing is known of its clock
 * @param uptimeMillis milliseconds of CLOCK_BOOTTIME of that kernel; 0 without a boot id
 */
public record Moment(long wallMillis, String boot, long uptimeMillis) {
    static Moment ofWall(long wallMillis) {
        return new Moment(wallMillis, null, 0);
    }
}

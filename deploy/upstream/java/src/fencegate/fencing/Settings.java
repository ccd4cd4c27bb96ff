package fencegate.fencing;

import java.time.Duration;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * The settings of a fence.
 *
 * @param watermarks where the watermarks are
 * @param compare what is compared
 * @param tokenField the name of the token's field
 * @param numberField the name of the number's field
 * @param unfenced methods whose requests pass without a fence if they have none of the fields
 * @param clockError has the fence refuse what comes after Fencing-Not-After as well, before the token is compared: the most by
 *     which the wall clocks of sender and service differ; null if the token alone decides
 */
public record Settings(
        WatermarkStore watermarks,
        Compare compare,
        String tokenField,
        String numberField,
        Set<String> unfenced,
        Duration clockError) {
    static final String KEY_FIELD = "Fencing-Key";
    static final String MODE_FIELD = "Fencing-Mode";

    public Settings {
        unfenced = Set.copyOf(unfenced);
        Stream<String> names = Stream.of(tokenField, numberField, KEY_FIELD, MODE_FIELD);
        if (names.map(Spelling::plain).collect(Collectors.toSet()).size() < 4) {
            throw new IllegalArgumentException("two fields have one name");
        }
    }

    /** Compares tokens, with the default names of the fields, and fences every request. */
    public static Settings of(WatermarkStore watermarks) {
        return new Settings(watermarks, Compare.TOKEN, "Fencing-Token", "Fencing-Number", Set.of(), null);
    }

    public Settings comparing(Compare other) {
        return new Settings(watermarks, other, tokenField, numberField, unfenced, clockError);
    }

    /** Sets the names of the fields, as {@code fields:} of the policy does. */
    public Settings fields(String token, String number) {
        return new Settings(watermarks, compare, token, number, unfenced, clockError);
    }

    public Settings unfenced(String... methods) {
        return new Settings(watermarks, compare, tokenField, numberField, Set.of(methods), clockError);
    }

    /**
     * Refuses what comes after Fencing-Not-After as well. A late request is then answered expired, also if its token is stale. The
     * error is subtracted from the moment, except on the machine of the sender.
     */
    public Settings clockError(Duration most) {
        return new Settings(watermarks, compare, tokenField, numberField, unfenced, most);
    }

    /**
     * The former name of {@link #watermarks()}, for one version.
     *
     * @deprecated use {@link #watermarks()}
     */
    @Deprecated(since = "0.1.0", forRemoval = true)
    public WatermarkStore marks() {
        return watermarks;
    }

    String comparedField() {
        return compare == Compare.TOKEN ? tokenField : numberField;
    }

    List<String> fieldNames() {
        return List.of(tokenField, numberField, KEY_FIELD, MODE_FIELD);
    }
}

package fencegate.fencing;

import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * How a service is fenced.
 *
 * @param marks where the marks are
 * @param compare what has to have grown
 * @param tokenField what the field of the token is called
 * @param numberField what the field of the number is called
 * @param unfenced methods whose requests pass without a fence, where they have none of the fields
 */
public record Settings(Marks marks, Compare compare, String tokenField, String numberField, Set<String> unfenced) {
    static final String KEY_FIELD = "Fencing-Key";
    static final String MODE_FIELD = "Fencing-Mode";

    public Settings {
        unfenced = Set.copyOf(unfenced);
        Stream<String> names = Stream.of(tokenField, numberField, KEY_FIELD, MODE_FIELD);
        if (names.map(Spelling::plain).collect(Collectors.toSet()).size() < 4) {
            throw new IllegalArgumentException("two fields have one name");
        }
    }

    /** Tokens are compared, the fields have their own names, and every request is fenced. */
    public static Settings of(Marks marks) {
        return new Settings(marks, Compare.TOKEN, "Fencing-Token", "Fencing-Number", Set.of());
    }

    public Settings comparing(Compare other) {
        return new Settings(marks, other, tokenField, numberField, unfenced);
    }

    /** As {@code fields:} of the policy says. */
    public Settings fields(String token, String number) {
        return new Settings(marks, compare, token, number, unfenced);
    }

    public Settings unfenced(String... methods) {
        return new Settings(marks, compare, tokenField, numberField, Set.of(methods));
    }

    String comparedField() {
        return compare == Compare.TOKEN ? tokenField : numberField;
    }

    List<String> fieldNames() {
        return List.of(tokenField, numberField, KEY_FIELD, MODE_FIELD);
    }
}

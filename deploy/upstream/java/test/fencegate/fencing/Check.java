package fencegate.fencing;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/** Shared by the tests: the vectors, and the checks. */
final class Check {
    private Check() {}

    static void equal(Object wanted, Object came, String which) {
        if (!Objects.equals(wanted, came)) {
            throw new AssertionError(which + ": wanted " + wanted + ", came " + came);
        }
    }

    static void that(boolean holds, String which) {
        equal(true, holds, which);
    }

    /** Where the contract lies: the folder above this middleware. */
    static Path contract() {
        return Path.of(Objects.requireNonNull(System.getProperty("contract"), "-Dcontract=deploy/upstream"));
    }

    static List<Map<String, Object>> vectors(String list) throws Exception {
        Map<String, Object> all = map(Json.parse(Files.readString(contract().resolve("vectors.json"))));
        List<Map<String, Object>> vectors = list(all.get(list)).stream().map(Check::map).toList();
        that(vectors.size() >= 5, list);
        return vectors;
    }

    @SuppressWarnings("unchecked")
    static Map<String, Object> map(Object value) {
        return (Map<String, Object>) value;
    }

    @SuppressWarnings("unchecked")
    static List<Object> list(Object value) {
        return (List<Object>) value;
    }

    static List<String> texts(Object value) {
        return list(value).stream().map(String.class::cast).toList();
    }

    static Compare compare(Map<String, Object> vector) {
        return "number".equals(vector.get("compare")) ? Compare.NUMBER : Compare.TOKEN;
    }
}

package fencegate.fencing;

import java.nio.file.Files;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.List;
import java.util.Map;

/** The contract's claims, on a real PostgreSQL; -Ddatabase is its URL. */
public final class ClaimsTest {
    private ClaimsTest() {}

    public static void main(String[] arguments) throws Exception {
        claimsMeetTheMarksThatTheContractSays();
        aHandlerThatGoesOnAfterAStaleClaimChangesNothing();
        theStatementsAreThoseOfTheRecipe();
        System.out.println("ClaimsTest: ok");
    }

    private static String section(Compare compare, String name) throws Exception {
        String file = compare.name().toLowerCase() + ".sql";
        String text = Files.readString(Check.contract().resolve("postgresql").resolve(file));
        return text.split("-- " + name + "\n")[1].split("\n\n")[0].strip();
    }

    /** A connection to a database with empty tables of the recipe. */
    private static Connection fresh(Compare compare) throws Exception {
        Connection connection = DriverManager.getConnection(System.getProperty("database"));
        try (Statement statement = connection.createStatement()) {
            statement.execute("DROP SCHEMA IF EXISTS stories CASCADE; CREATE SCHEMA stories; SET search_path = stories");
            statement.execute(section(compare, "table"));
        }
        connection.setAutoCommit(false);
        return connection;
    }

    private static Fence fence(Map<String, Object> step, Compare compare) {
        String token = (String) step.get("token");
        long number = token == null ? Long.parseLong((String) step.get("number")) : 0;
        Mode mode = Mode.parse((String) step.get("mode"));
        Stamp stamp = new Stamp(token, number, Check.texts(step.get("keys")), mode);
        return new Fence(stamp, Settings.of(new PostgresWatermarkStore()).comparing(compare));
    }

    private static boolean passes(Connection connection, Map<String, Object> step, Compare compare) throws SQLException {
        try {
            fence(step, compare).claim(connection);
        } catch (StaleTokenException stale) {
            connection.rollback();
            return false;
        }
        if ("rollback".equals(step.get("end"))) {
            connection.rollback();
        } else {
            connection.commit();
        }
        return true;
    }

    private static void claimsMeetTheMarksThatTheContractSays() throws Exception {
        for (Map<String, Object> story : Check.vectors("claims")) {
            Compare compare = Check.compare(story);
            try (Connection connection = fresh(compare)) {
                int number = 0;
                for (Object step : Check.list(story.get("steps"))) {
                    number++;
                    boolean passes = passes(connection, Check.map(step), compare);
                    Check.equal(Check.map(step).get("passes"), passes, story.get("name") + ", step " + number);
                }
            }
        }
    }

    private static void aHandlerThatGoesOnAfterAStaleClaimChangesNothing() throws Exception {
        String older = "v1-0000000000000001-00000000-00000001";
        String newer = "v1-0000000000000002-00000000-00000001";
        try (Connection connection = fresh(Compare.TOKEN)) {
            Map<String, Object> first = Map.of("mode", "exclusive", "keys", List.of("a"), "token", newer);
            Check.that(passes(connection, first, Compare.TOKEN), "the first of its key");
            try {
                fence(Map.of("mode", "exclusive", "keys", List.of("a"), "token", older), Compare.TOKEN).claim(connection);
                throw new AssertionError("an older one passes");
            } catch (StaleTokenException stale) {
                connection.createStatement().execute("CREATE TABLE effect ()");
            }
            throw new AssertionError("the transaction goes on");
        } catch (SQLException refused) {
            Check.equal("25P02", refused.getSQLState(), "after a stale claim");
        }
    }

    /** The statements stand in the source so that a service can take it alone; they are those of the recipe. */
    private static void theStatementsAreThoseOfTheRecipe() throws Exception {
        for (Compare compare : Compare.values()) {
            for (Mode mode : Mode.values()) {
                String wanted = section(compare, mode == Mode.EXCLUSIVE ? "write" : "read");
                wanted = wanted.replaceAll(":(key|token|number)\\b", "?");
                Check.equal(wanted, PostgresWatermarkStore.STATEMENTS.get(compare).get(mode).strip(), compare + " " + mode);
            }
        }
    }
}

package fencegate.fencing;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Map;

/** Watermarks in PostgreSQL, in the tables of the recipe. Final again when {@code PostgresMarks} is removed. */
public class PostgresWatermarkStore implements WatermarkStore {
    /**
     * Each changes one row, or the request is stale. A row that is new is made and compared in the same statement.
     * A watermark up to the floor is never let in, because rows below the floor may be deleted.
     */
    static final Map<Compare, Map<Mode, String>> STATEMENTS = Map.of(
            Compare.TOKEN, Map.of(Mode.EXCLUSIVE, """
                    INSERT INTO fence (resource, write_mark, read_mark)
                        SELECT CAST(? AS text), CAST(? AS text), '' FROM fence_floor WHERE CAST(? AS text) > floor
                        ON CONFLICT (resource) DO UPDATE SET write_mark = excluded.write_mark
                        WHERE excluded.write_mark > fence.write_mark AND excluded.write_mark > fence.read_mark;
                    """, Mode.SHARED, """
                    INSERT INTO fence (resource, write_mark, read_mark)
                        SELECT CAST(? AS text), '', CAST(? AS text) FROM fence_floor WHERE CAST(? AS text) > floor
                        ON CONFLICT (resource) DO UPDATE SET read_mark = greatest(fence.read_mark, excluded.read_mark)
                        WHERE excluded.read_mark > fence.write_mark;
                    """),
            Compare.NUMBER, Map.of(Mode.EXCLUSIVE, """
                    INSERT INTO fence (resource, write_mark, read_mark)
                        SELECT CAST(? AS text), CAST(? AS bigint), -1 FROM fence_floor WHERE CAST(? AS bigint) > floor
                        ON CONFLICT (resource) DO UPDATE SET write_mark = excluded.write_mark
                        WHERE excluded.write_mark >= fence.write_mark AND excluded.write_mark >= fence.read_mark;
                    """, Mode.SHARED, """
                    INSERT INTO fence (resource, write_mark, read_mark)
                        SELECT CAST(? AS text), -1, CAST(? AS bigint) FROM fence_floor WHERE CAST(? AS bigint) > floor
                        ON CONFLICT (resource) DO UPDATE SET read_mark = greatest(fence.read_mark, excluded.read_mark)
                        WHERE excluded.read_mark >= fence.write_mark;
                    """));

    /**
     * After a failed statement a transaction can only be rolled back. A handler that goes on meets
     * this.
     */
    private static final String END = "DO $$BEGIN RAISE EXCEPTION 'a newer request was let in'; END$$";

    @Override
    public boolean raise(Connection transaction, String key, Stamp stamp, Compare compare) throws SQLException {
        String statement = STATEMENTS.get(compare).get(stamp.mode());
        try (PreparedStatement raise = transaction.prepareStatement(statement)) {
            raise.setString(1, key);
            for (int place = 2; place <= 3; place++) {
                if (compare == Compare.TOKEN) {
                    raise.setString(place, stamp.token());
                } else {
                    raise.setLong(place, stamp.number());
                }
            }
            if (raise.executeUpdate() == 1) {
                return true;
            }
        }
        try (Statement end = transaction.createStatement()) {
            end.execute(END);
        } catch (SQLException wanted) {
            // If the connection is broken, the transaction is over as well.
        }
        return false;
    }
}

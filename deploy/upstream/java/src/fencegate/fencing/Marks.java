package fencegate.fencing;

import java.sql.Connection;
import java.sql.SQLException;

/** The rows that say what was let in last, in the database that has the effect. */
public interface Marks {
    /** Compares the mark of one key and raises it, in one step; false where the stamp is stale. */
    boolean raise(Connection transaction, String key, Stamp stamp, Compare compare) throws SQLException;
}

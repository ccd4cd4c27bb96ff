package fencegate.fencing;

import java.sql.Connection;
import java.sql.SQLException;

/** The rows with the newest tokens, in the database that the handler changes. */
public interface WatermarkStore {
    /** Compares the watermark of one key and raises it, in one step. False if the stamp is stale. */
    boolean raise(Connection transaction, String key, Stamp stamp, Compare compare) throws SQLException;
}

package fencegate.fencing;

import java.lang.reflect.Proxy;
import java.sql.Connection;
import java.sql.SQLException;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;

/** Watermarks with the results that a vector gives. */
final class Scripted implements WatermarkStore {
    private final Deque<String> meets;

    Scripted(List<String> meets) {
        this.meets = new ArrayDeque<>(meets);
    }

    @Override
    public boolean raise(Connection transaction, String key, Stamp stamp, Compare compare) throws SQLException {
        String met = meets.remove();
        if (met.equals("error")) {
            throw new SQLException("the database failed");
        }
        return met.equals("passes");
    }

    /** A connection that only says whether a transaction has begun. */
    static Connection connection(boolean autoCommit) {
        Class<?>[] faces = {Connection.class};
        return (Connection) Proxy.newProxyInstance(Scripted.class.getClassLoader(), faces, (self, method, arguments) -> {
            if (method.getName().equals("getAutoCommit")) {
                return autoCommit;
            }
            throw new UnsupportedOperationException(method.getName());
        });
    }
}

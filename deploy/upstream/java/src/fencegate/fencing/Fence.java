package fencegate.fencing;

import jakarta.servlet.ServletRequest;
import java.sql.Connection;
import java.sql.SQLException;
import java.util.List;
import javax.sql.DataSource;

/** A handler claims this, in the transaction that makes its change. */
public final class Fence {
    private final Stamp stamp;
    private final Settings settings;
    private boolean passed;
    private boolean stale;

    Fence(Stamp stamp, Settings settings) {
        this.stamp = stamp;
        this.settings = settings;
    }

    /** The fence of a request; null where it has none, because its method is unfenced. */
    public static Fence of(ServletRequest request) {
        return (Fence) request.getAttribute(Fence.class.getName());
    }

    public Stamp stamp() {
        return stamp;
    }

    public List<String> keys() {
        return stamp.keys();
    }

    /**
     * Compares and raises the watermark of every key, all or none. Call it once, as the first statement of the transaction
     * that has the effect. After a rollback, a claim in a new transaction may be tried.
     *
     * @throws StaleTokenException when a newer request was let in
     * @throws SQLException when the database fails
     * @throws IllegalStateException when the connection commits each statement by itself
     */
    public void claim(Connection transaction) throws SQLException {
        if (transaction.getAutoCommit()) {
            throw new IllegalStateException("the watermarks would be raised without the effect: setAutoCommit(false)");
        }
        for (String key : stamp.keys()) {
            if (!settings.watermarks().raise(transaction, key, stamp, settings.compare())) {
                sawStale();
                throw new StaleTokenException();
            }
        }
        sawPassing();
    }

    /** Runs the work in a transaction that begins with the claim, and commits it. */
    public <T> T transact(DataSource database, Work<T> work) throws SQLException {
        try (Connection connection = database.getConnection()) {
            boolean before = connection.getAutoCommit();
            connection.setAutoCommit(false);
            try {
                claim(connection);
                T result = work.run(connection);
                connection.commit();
                connection.setAutoCommit(before);
                return result;
            } catch (SQLException | RuntimeException | Error failure) {
                try {
                    connection.rollback();
                    // Set only after the rollback, because it would commit an open transaction.
                    connection.setAutoCommit(before);
                } catch (SQLException worse) {
                    failure.addSuppressed(worse);
                }
                throw failure;
            }
        }
    }

    /** The work of a transaction. */
    @FunctionalInterface
    public interface Work<T> {
        T run(Connection transaction) throws SQLException;
    }

    private synchronized void sawStale() {
        stale = true;
    }

    private synchronized void sawPassing() {
        passed = true;
    }

    /**
     * The problem that replaces an answer with this status; null if the answer is correct.
     *
     * @param ownRefusal whether the handler itself answers that the request is stale
     */
    synchronized Problem objection(int status, boolean ownRefusal) {
        boolean success = status < 400;
        if (passed && stale) {
            // It is not known which of the two transactions was committed.
            return Problem.CLAIMED_TWICE;
        }
        if (success && !passed) {
            return Problem.UNCLAIMED;
        }
        return !stale || status == 412 && ownRefusal ? null : Problem.STALE;
    }
}

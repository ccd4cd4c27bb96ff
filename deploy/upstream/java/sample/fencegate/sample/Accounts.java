package fencegate.sample;

import fencegate.fencing.Fence;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.concurrent.locks.LockSupport;
import javax.sql.DataSource;

/** The accounts and their operations. */
final class Accounts {
    /** The initial balance of an account, in cents. */
    private static final long INITIAL = 1_000_000;

    private final DataSource database;

    Accounts(DataSource database) {
        this.database = database;
    }

    /**
     * Takes an amount from an account, or adds it if negative. Returns the new balance. The claim is the transaction's first statement.
     *
     * @param to another account, which receives the amount, or pays it; null if there is none
     * @param workMillis makes the business logic slow, for tests
     */
    long take(Fence fence, String id, long amount, String to, long workMillis) throws SQLException, NotEnough, OtherAccount {
        covered(fence, id);
        if (to != null) {
            covered(fence, to);
        }
        Long after = fence.transact(database, transaction -> {
            long balance = read(transaction, id) - amount;
            LockSupport.parkNanos(workMillis * 1_000_000);
            if (balance >= 0) {
                write(transaction, id, balance);
                if (to != null) {
                    write(transaction, to, read(transaction, to) + amount);
                }
            }
            return balance;
        });
        // Committed all the same: after this answer no older request may succeed.
        if (after < 0) {
            throw new NotEnough();
        }
        return after;
    }

    /** A read without a fence is not compared. */
    long balance(Fence fence, String id) throws SQLException, OtherAccount {
        if (fence != null) {
            covered(fence, id);
            return fence.transact(database, transaction -> read(transaction, id));
        }
        try (Connection connection = database.getConnection()) {
            return read(connection, id);
        }
    }

    /** Checks that the gateway has locked this account for the request. */
    private static void covered(Fence fence, String id) throws OtherAccount {
        if (!fence.keys().contains("account/" + id)) {
            throw new OtherAccount();
        }
    }

    private static long read(Connection connection, String id) throws SQLException {
        try (PreparedStatement read = connection.prepareStatement("SELECT balance FROM accounts WHERE id = ?")) {
            read.setString(1, id);
            ResultSet found = read.executeQuery();
            return found.next() ? found.getLong(1) : INITIAL;
        }
    }

    private static void write(Connection transaction, String id, long balance) throws SQLException {
        String statement = "INSERT INTO accounts (id, balance) VALUES (?, ?)"
                + " ON CONFLICT (id) DO UPDATE SET balance = excluded.balance";
        try (PreparedStatement write = transaction.prepareStatement(statement)) {
            write.setString(1, id);
            write.setLong(2, balance);
            write.executeUpdate();
        }
    }

    /** The gateway has not locked this account. */
    static final class OtherAccount extends Exception {
        private static final long serialVersionUID = 1;
    }

    /** The balance is too small. */
    static final class NotEnough extends Exception {
        private static final long serialVersionUID = 1;
    }
}

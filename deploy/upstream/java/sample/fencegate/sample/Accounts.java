package fencegate.sample;

import fencegate.fencing.Fence;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.concurrent.locks.LockSupport;
import javax.sql.DataSource;

/** The accounts, and what may be done with them. */
final class Accounts {
    /** Cents that an account has before anything was taken. */
    private static final long INITIAL = 1_000_000;

    private final DataSource database;

    Accounts(DataSource database) {
        this.database = database;
    }

    /**
     * Takes an amount from an account, or gives it where it is negative; what is there then. The claim is the first statement of the transaction.
     *
     * @param to another account, to which it goes, or from which it comes; null where there is none
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
        // Committed all the same: who is told so is not overtaken by an older one that gets some.
        if (after < 0) {
            throw new NotEnough();
        }
        return after;
    }

    /** Without a fence it only looks. */
    long balance(Fence fence, String id) throws SQLException, OtherAccount {
        if (fence != null) {
            covered(fence, id);
            return fence.transact(database, transaction -> read(transaction, id));
        }
        try (Connection connection = database.getConnection()) {
            return read(connection, id);
        }
    }

    /** The gateway has locked what the policy named, and nothing else may be changed under this fence. */
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

    /** The fence is not about this one. */
    static final class OtherAccount extends Exception {
        private static final long serialVersionUID = 1;
    }

    /** Less is there than was wanted. */
    static final class NotEnough extends Exception {
        private static final long serialVersionUID = 1;
    }
}

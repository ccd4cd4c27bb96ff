package fencegate.fencing;

/**
 * A newer request was let in for one of the keys. Roll back; nothing may be done for this request any more.
 *
 * <p>Unchecked, because frameworks roll back for unchecked exceptions by default.
 */
public final class Stale extends RuntimeException {
    private static final long serialVersionUID = 1;

    Stale() {
        super("a newer request was let in");
    }
}

package fencegate.fencing;

/**
 * A newer request was let in for one of the keys. Roll back; nothing may be done for this request any more.
 *
 * <p>Unchecked, because frameworks roll back for unchecked exceptions by default.
 */
@SuppressWarnings("removal")
public final class StaleTokenException extends Stale {
    private static final long serialVersionUID = 1;

    StaleTokenException() {}
}

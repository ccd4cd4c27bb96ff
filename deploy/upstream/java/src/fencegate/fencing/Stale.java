package fencegate.fencing;

/**
 * The former name of {@link StaleTokenException}, for one version. What is thrown is both, so that {@code catch (Stale stale)}
 * goes on.
 *
 * @deprecated use {@link StaleTokenException}
 */
@Deprecated(since = "0.1.0", forRemoval = true)
public class Stale extends RuntimeException {
    private static final long serialVersionUID = 1;

    Stale() {
        super("a newer request was let in");
    }
}

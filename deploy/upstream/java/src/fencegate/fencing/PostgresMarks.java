package fencegate.fencing;

/**
 * The former name of {@link PostgresWatermarkStore}, for one version.
 *
 * @deprecated use {@link PostgresWatermarkStore}
 */
@Deprecated(since = "0.1.0", forRemoval = true)
@SuppressWarnings("removal")
public final class PostgresMarks extends PostgresWatermarkStore implements Marks {}

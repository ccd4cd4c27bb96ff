package fencegate.fencing;

/**
 * The former name of {@link WatermarkStore}, for one version.
 *
 * @deprecated use {@link WatermarkStore}
 */
@Deprecated(since = "0.1.0", forRemoval = true)
public interface Marks extends WatermarkStore {}

package fencegate.fencing;

/** What is compared with the last executed request of a key. */
public enum Compare {
    /** The token has to be greater, so duplicates are refused as well. */
    TOKEN,
    /** The number must not be smaller. For services that get several requests of one tenure. */
    NUMBER
}

package fencegate.fencing;

/** What has to have grown since the last request for a key. */
public enum Compare {
    /** A greater token; so duplicates are refused as well. */
    TOKEN,
    /** A number that is not smaller: for services that see one tenure several times. */
    NUMBER
}

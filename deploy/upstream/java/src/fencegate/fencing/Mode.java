package fencegate.fencing;

/** Whether a request writes, or reads beside others that read. */
public enum Mode {
    EXCLUSIVE("exclusive"),
    SHARED("shared");

    private final String word;

    Mode(String word) {
        this.word = word;
    }

    static Mode parse(String word) {
        for (Mode mode : values()) {
            if (mode.word.equals(word)) {
                return mode;
            }
        }
        throw Problem.TOKEN_MALFORMED.refused();
    }
}

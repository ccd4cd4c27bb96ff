package fencegate.fencing;

/** All tests in one virtual machine, one after the other. */
public final class AllTests {
    private AllTests() {}

    public static void main(String[] arguments) throws Exception {
        ClaimsTest.main(arguments);
        VectorsTest.main(arguments);
    }
}

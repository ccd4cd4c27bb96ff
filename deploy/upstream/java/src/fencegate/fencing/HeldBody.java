package fencegate.fencing;

import jakarta.servlet.ServletOutputStream;
import jakarta.servlet.WriteListener;
import java.io.ByteArrayOutputStream;
import java.io.IOException;

/** Keeps the first bytes of a body until its answer may begin. */
final class HeldBody extends ServletOutputStream {
    /** As many bytes as a container buffers before it sends the status. */
    private static final int MOST = 8 * 1024;

    private final HeldAnswer answer;
    private final ByteArrayOutputStream held = new ByteArrayOutputStream();

    HeldBody(HeldAnswer answer) {
        this.answer = answer;
    }

    /** Sends the held bytes, or discards them. */
    void release() throws IOException {
        if (answer.isGiven(answer.getStatus())) {
            held.writeTo(answer.outlet());
        }
        held.reset();
    }

    void forget() {
        held.reset();
    }

    @Override
    public void write(int octet) throws IOException {
        write(new byte[] {(byte) octet}, 0, 1);
    }

    @Override
    public void write(byte[] bytes, int offset, int length) throws IOException {
        if (!answer.isCommitted() && held.size() + length <= MOST) {
            held.write(bytes, offset, length);
            return;
        }
        release();
        if (answer.isGiven(answer.getStatus())) {
            answer.outlet().write(bytes, offset, length);
        }
    }

    @Override
    public void flush() throws IOException {
        release();
        if (answer.isGiven(answer.getStatus())) {
            answer.outlet().flush();
        }
    }

    @Override
    public void close() throws IOException {
        flush();
    }

    @Override
    public boolean isReady() {
        return true;
    }

    @Override
    public void setWriteListener(WriteListener listener) {
        throw new IllegalStateException("a fenced route is answered by the thread that claims");
    }
}

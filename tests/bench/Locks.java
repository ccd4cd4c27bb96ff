import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;
import java.util.stream.IntStream;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Takes and gives back Curator's locks, nothing else: Locks SERVER ROOT KEYS THREADS FILE SECONDS SET.
 *
 * <p>With a SET of more than one, each lock is an InterProcessMultiLock of so many nodes.
 *
 * <p>Says UP when it does, and counts from the time that is then written to FILE: milliseconds since 1970, so that
 * several processes count at the same time. Until then it warms up.
 */
public final class Locks {
    private static volatile long start = Long.MAX_VALUE;
    private static volatile long end = Long.MAX_VALUE;

    public static void main(String[] arguments) throws Exception {
        String server = arguments[0];
        String root = arguments[1];
        int keys = Integer.parseInt(arguments[2]);
        int threads = Integer.parseInt(arguments[3]);
        Path file = Path.of(arguments[4]);
        long window = TimeUnit.SECONDS.toMillis(Long.parseLong(arguments[5]));
        int set = Integer.parseInt(arguments[6]);

        CuratorFramework client =
                CuratorFrameworkFactory.newClient(server, 12_000, 10_000, new ExponentialBackoffRetry(100, 3));
        client.start();
        client.blockUntilConnected();

        LongAdder locks = new LongAdder();
        CountDownLatch running = new CountDownLatch(threads);
        for (int i = 0; i < threads; i++) {
            String path = root + "/" + i % keys;
            List<String> paths = IntStream.range(0, set).mapToObj(part -> path + "-" + part).toList();
            InterProcessLock lock =
                    set == 1 ? new InterProcessMutex(client, path) : new InterProcessMultiLock(client, paths);
            new Thread(() -> {
                try {
                    while (System.currentTimeMillis() < end) {
                        lock.acquire();
                        lock.release();
                        long now = System.currentTimeMillis();
                        if (now >= start && now < end) {
                            locks.increment();
                        }
                    }
                } catch (Exception trouble) {
                    trouble.printStackTrace();
                    System.exit(1);
                }
                running.countDown();
            }).start();
        }
        System.out.println("UP");
        while (!Files.exists(file)) {
            Thread.sleep(10);
        }
        long told = Long.parseLong(Files.readString(file));
        end = told + window;
        start = told;
        running.await();
        System.out.println("RESULT " + locks.sum());
        client.close();
    }
}

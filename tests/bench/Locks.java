import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** Takes and gives back Curator's locks, nothing else: Locks SERVER ROOT KEYS THREADS START SECONDS. */
public final class Locks {
    public static void main(String[] arguments) throws Exception {
        String server = arguments[0];
        String root = arguments[1];
        int keys = Integer.parseInt(arguments[2]);
        int threads = Integer.parseInt(arguments[3]);
        // Milliseconds since 1970, so that several processes count at the same time. Until then they warm up.
        long start = Long.parseLong(arguments[4]);
        long end = start + TimeUnit.SECONDS.toMillis(Long.parseLong(arguments[5]));

        CuratorFramework client =
                CuratorFrameworkFactory.newClient(server, 12_000, 10_000, new ExponentialBackoffRetry(100, 3));
        client.start();
        client.blockUntilConnected();

        LongAdder locks = new LongAdder();
        CountDownLatch running = new CountDownLatch(threads);
        boolean late = System.currentTimeMillis() > start;
        for (int i = 0; i < threads; i++) {
            InterProcessMutex lock = new InterProcessMutex(client, root + "/" + i % keys);
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
        running.await();
        if (late) {
            System.err.println("was not up in time");
            System.exit(1);
        }
        System.out.println("RESULT " + locks.sum());
        client.close();
    }
}

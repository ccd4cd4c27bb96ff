import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * A service that takes Curator's lock and calls another service while it holds it: Foreign KIND SERVER PATH URL KEY
 * PAUSE, until it is killed. KIND is mutex, write or read; PAUSE are milliseconds between two turns.
 */
public final class Foreign {
    /** Of the era, as `fencegate era show` prints it. */
    private static final long BASE = 0;

    private interface Numbered extends InterProcessLock {
        long number() throws Exception;
    }

    // As in ZOOKEEPER.md.
    static class FencedMutex extends InterProcessMutex {
        private final CuratorFramework client;
        FencedMutex(CuratorFramework client, String path) { super(client, path); this.client = client; }
        long number() throws Exception { return BASE + client.checkExists().forPath(getLockPath()).getCzxid(); }
    }
    // Until here.

    private static final class Mutex extends FencedMutex implements Numbered {
        Mutex(CuratorFramework client, String path) {
            super(client, path);
        }

        @Override
        public long number() throws Exception {
            return super.number();
        }
    }

    private static final class Write extends InterProcessReadWriteLock.WriteLock implements Numbered {
        private final CuratorFramework client;

        Write(CuratorFramework client, String path) {
            super(client, path, null);
            this.client = client;
        }

        @Override
        public long number() throws Exception {
            return BASE + client.checkExists().forPath(getLockPath()).getCzxid();
        }
    }

    private static final class Read extends InterProcessReadWriteLock.ReadLock implements Numbered {
        private final CuratorFramework client;

        Read(CuratorFramework client, String path) {
            super(client, path, null, new InterProcessReadWriteLock.WriteLock(client, path, null));
            this.client = client;
        }

        @Override
        public long number() throws Exception {
            return BASE + client.checkExists().forPath(getLockPath()).getCzxid();
        }
    }

    private static Numbered lock(String kind, CuratorFramework client, String path) {
        switch (kind) {
            case "mutex":
                return new Mutex(client, path);
            case "write":
                return new Write(client, path);
            default:
                return new Read(client, path);
        }
    }

    public static void main(String[] arguments) throws Exception {
        String kind = arguments[0];
        CuratorFramework client = CuratorFrameworkFactory.newClient(
                arguments[1], 2_000, 2_000, new ExponentialBackoffRetry(50, 10));
        client.start();
        client.blockUntilConnected();
        HttpClient http = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        System.out.println("UP");
        while (true) {
            Numbered lock = lock(kind, client, arguments[2]);
            try {
                lock.acquire();
                try {
                    String token = String.format("v1-%016x-00000000-00000001", lock.number());
                    HttpRequest request = HttpRequest.newBuilder(URI.create(arguments[3]))
                            .POST(HttpRequest.BodyPublishers.noBody())
                            .header("Fencing-Key", arguments[4])
                            .header("Fencing-Mode", kind.equals("read") ? "shared" : "exclusive")
                            .header("Fencing-Token", token)
                            .build();
                    int status = http.send(request, HttpResponse.BodyHandlers.discarding()).statusCode();
                    System.out.println("HELD " + status);
                } finally {
                    lock.release();
                }
            } catch (Exception trouble) {
                System.out.println("TROUBLE " + trouble);
            }
            Thread.sleep(Long.parseLong(arguments[5]));
        }
    }
}

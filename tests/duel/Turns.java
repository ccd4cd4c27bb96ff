import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * A client: takes Curator's lock, asks once more whether it has it, calls a service, gives the lock back, and again, until
 * it is killed: Turns SERVER SERVICE NAME. What turns.py does with other locks, in the same steps.
 *
 * <p>The retry policy is that of https://curator.apache.org/docs/getting-started/. A listener for SUSPENDED and LOST is what
 * https://curator.apache.org/docs/recipes-shared-reentrant-lock/ recommends strongly.
 */
public final class Turns {
    private static final int LEASE = 2_000;

    public static void main(String[] arguments) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(
                arguments[0], LEASE, LEASE, new ExponentialBackoffRetry(1000, 3));
        AtomicBoolean doubted = new AtomicBoolean();
        client.getConnectionStateListenable().addListener((who, state) -> {
            if (state == ConnectionState.SUSPENDED || state == ConnectionState.LOST) {
                doubted.set(true);
            }
        });
        client.start();
        client.blockUntilConnected();
        HttpClient http = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        InterProcessMutex lock = new InterProcessMutex(client, "/duel/curator/account-7");
        System.out.println("UP");
        long stand = 0;
        while (true) {
            try {
                doubted.set(false);
                lock.acquire();
                long since = System.nanoTime();
                try {
                    if (doubted.get() || !lock.isAcquiredInThisProcess()) {
                        continue;
                    }
                    if (stand > 0) {
                        System.out.println("HELD");
                        Thread.sleep(stand);
                        stand = 0;
                    }
                    HttpRequest request = HttpRequest.newBuilder(URI.create(arguments[1]))
                            .POST(HttpRequest.BodyPublishers.noBody())
                            .header("Holder", arguments[2])
                            .header("Held-Since", Long.toString(since))
                            .build();
                    stand = Long.parseLong(http.send(request, HttpResponse.BodyHandlers.ofString()).body());
                } finally {
                    lock.release();
                }
            } catch (Exception trouble) {
                System.out.println("TROUBLE " + trouble);
                Thread.sleep(50);
            }
        }
    }
}

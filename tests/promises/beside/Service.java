import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.concurrent.Executors;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * A service that takes Curator's lock for each request, unless a gateway holds it for that request already: Service
 * SERVER LOCKS URL. It says UP and its port. What it does under the lock is to call URL.
 */
public final class Service {
    private final CuratorFramework client;
    private final String locks;
    private final String url;
    private final HttpClient http = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();

    private Service(CuratorFramework client, String locks, String url) {
        this.client = client;
        this.locks = locks;
        this.url = url;
    }

    private void handle(HttpExchange exchange) throws IOException {
        exchange.getRequestBody().readAllBytes();
        int status = 500;
        try {
            String path = exchange.getRequestURI().getPath();
            HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(url + path))
                    .POST(HttpRequest.BodyPublishers.noBody());
            for (String name : new String[] {"X-Attempt", "Idempotency-Key"}) {
                String value = exchange.getRequestHeaders().getFirst(name);
                if (value != null) {
                    request.header(name, value);
                }
            }
            String token = exchange.getRequestHeaders().getFirst("Fencing-Token");
            status = token != null ? fenced(exchange, request, token) : alone(path, request);
        } catch (Exception trouble) {
            System.out.println("TROUBLE " + trouble);
        }
        exchange.sendResponseHeaders(status, -1);
        exchange.close();
    }

    /** A gateway has the lock: to wait for it would be to wait for ourselves. */
    private int fenced(HttpExchange exchange, HttpRequest.Builder request, String token) throws Exception {
        for (String name : new String[] {"Fencing-Key", "Fencing-Mode"}) {
            request.header(name, exchange.getRequestHeaders().getFirst(name));
        }
        return send(request.header("Fencing-Token", token));
    }

    private int alone(String path, HttpRequest.Builder request) throws Exception {
        String account = path.substring(path.lastIndexOf('/') + 1);
        Foreign.FencedMutex lock = new Foreign.FencedMutex(client, locks + "/" + account);
        lock.acquire();
        try {
            return send(request
                    .header("Fencing-Key", "own/" + account)
                    .header("Fencing-Mode", "exclusive")
                    .header("Fencing-Token", String.format("v1-%016x-00000000-00000001", lock.number())));
        } finally {
            lock.release();
        }
    }

    private int send(HttpRequest.Builder request) throws Exception {
        return http.send(request.build(), HttpResponse.BodyHandlers.discarding()).statusCode();
    }

    public static void main(String[] arguments) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(
                arguments[0], 10_000, 10_000, new ExponentialBackoffRetry(50, 10));
        client.start();
        client.blockUntilConnected();
        Service service = new Service(client, arguments[1], arguments[2]);
        HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.createContext("/", service::handle);
        server.setExecutor(Executors.newCachedThreadPool());
        server.start();
        System.out.println("UP " + server.getAddress().getPort());
    }
}

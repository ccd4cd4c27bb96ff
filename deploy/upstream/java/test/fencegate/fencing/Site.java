package fencegate.fencing;

import jakarta.servlet.Filter;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpFilter;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.catalina.Context;
import org.apache.catalina.LifecycleException;
import org.apache.catalina.startup.Tomcat;
import org.apache.tomcat.util.descriptor.web.FilterDef;
import org.apache.tomcat.util.descriptor.web.FilterMap;

/** A real Tomcat whose filter and handler change with each vector, asked byte by byte. */
final class Site implements AutoCloseable {
    /** The work of a handler. */
    interface Handler {
        void serve(HttpServletRequest request, HttpServletResponse response) throws Exception;
    }

    record Answer(int status, Map<String, String> fields, String body) {}

    static final List<List<String>> STAMPED = List.of(
            List.of("Fencing-Token", "v1-00000000000000ab-00000007-00000001"),
            List.of("Fencing-Key", "a"),
            List.of("Fencing-Mode", "exclusive"));

    private final Tomcat tomcat = new Tomcat();
    private volatile Filter filter;
    private volatile Handler handler;

    Site() throws Exception {
        Path folder = Files.createTempDirectory("site");
        folder.toFile().deleteOnExit();
        tomcat.setBaseDir(folder.toString());
        tomcat.setPort(0);
        tomcat.getConnector().setProperty("address", "127.0.0.1");
        // The keys of one request can be longer than the 8 KiB that it takes for a head otherwise.
        tomcat.getConnector().setProperty("maxHttpRequestHeaderSize", "16384");
        Context context = tomcat.addContext("", null);
        FilterDef definition = new FilterDef();
        definition.setFilterName("fence");
        definition.setFilter(new Changing());
        context.addFilterDef(definition);
        FilterMap routes = new FilterMap();
        routes.setFilterName("fence");
        routes.addURLPattern("/*");
        context.addFilterMap(routes);
        Tomcat.addServlet(context, "handler", new Handling()).addMapping("/*");
        tomcat.start();
    }

    void runs(Settings settings, Handler next) {
        runs(new FenceFilter(settings), next);
    }

    void runs(Filter first, Handler next) {
        filter = first;
        handler = next;
    }

    /** Each character of a field is one byte. */
    Answer exchange(String method, List<List<String>> fields) throws IOException {
        StringBuilder head = new StringBuilder(method + " /pay?secret=1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n");
        for (List<String> field : fields) {
            head.append(field.get(0)).append(": ").append(field.get(1)).append("\r\n");
        }
        try (Socket line = new Socket("127.0.0.1", tomcat.getConnector().getLocalPort())) {
            line.getOutputStream().write((head + "\r\n").getBytes(StandardCharsets.ISO_8859_1));
            return parsed(new String(line.getInputStream().readAllBytes(), StandardCharsets.ISO_8859_1));
        }
    }

    private static Answer parsed(String text) {
        int end = text.indexOf("\r\n\r\n");
        String[] lines = text.substring(0, end).split("\r\n");
        Map<String, String> fields = new TreeMap<>(String.CASE_INSENSITIVE_ORDER);
        for (String line : List.of(lines).subList(1, lines.length)) {
            fields.put(line.substring(0, line.indexOf(": ")), line.substring(line.indexOf(": ") + 2));
        }
        return new Answer(Integer.parseInt(lines[0].split(" ")[1]), fields, text.substring(end + 4));
    }

    /** Checks for exactly the filter's answer with this reason. */
    static void assertAnswer(Answer came, String reason, String which) throws Exception {
        for (Map<String, Object> answer : Check.vectors("answers")) {
            if (!reason.equals(answer.get("reason"))) {
                continue;
            }
            Map<String, Object> wanted = new LinkedHashMap<>(answer);
            Object refusal = wanted.remove("refusal");
            Check.equal((double) came.status(), wanted.get("status"), which + " " + came);
            Check.equal(wanted, Json.parse(came.body()), which);
            Check.equal("application/problem+json", came.fields().get("content-type"), which);
            Check.equal(refusal, came.fields().get("fencing-refusal"), which);
            return;
        }
        throw new AssertionError("no answer is called " + reason);
    }

    @Override
    public void close() throws LifecycleException {
        tomcat.stop();
        tomcat.destroy();
    }

    private final class Changing extends HttpFilter {
        private static final long serialVersionUID = 1;

        @Override
        protected void doFilter(HttpServletRequest request, HttpServletResponse response, FilterChain chain)
                throws IOException, ServletException {
            filter.doFilter(request, response, chain);
        }
    }

    private final class Handling extends HttpServlet {
        private static final long serialVersionUID = 1;

        @Override
        protected void service(HttpServletRequest request, HttpServletResponse response)
                throws IOException, ServletException {
            try {
                handler.serve(request, response);
            } catch (IOException | RuntimeException failure) {
                throw failure;
            } catch (Exception failure) {
                throw new ServletException(failure);
            }
        }
    }
}

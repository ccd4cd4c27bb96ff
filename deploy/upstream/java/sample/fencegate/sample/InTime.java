package fencegate.sample;

import fencegate.fencing.DeadlineFilter;
import jakarta.servlet.Filter;
import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Objects;
import java.util.concurrent.locks.LockSupport;
import org.apache.catalina.Context;
import org.apache.catalina.startup.Tomcat;
import org.apache.tomcat.util.descriptor.web.FilterDef;
import org.apache.tomcat.util.descriptor.web.FilterMap;

/** A service that refuses what comes too late to be begun, and compares nothing. Each execution is a line in a file. */
public final class InTime {
    private InTime() {}

    /** Takes on or off, the file, and the port (0 for a free one). */
    public static void main(String[] arguments) throws Exception {
        Tomcat tomcat = new Tomcat();
        File folder = Files.createTempDirectory("sample").toFile();
        folder.deleteOnExit();
        tomcat.setBaseDir(folder.getPath());
        tomcat.setPort(Integer.parseInt(arguments[2]));
        tomcat.getConnector().setProperty("address", "127.0.0.1");
        Context context = tomcat.addContext("", null);
        if (arguments[0].equals("on")) {
            put(context, inTime());
        }
        Tomcat.addServlet(context, "executes", new Executes(Path.of(arguments[1]))).addMapping("/*");
        tomcat.start();
        // The parent process reads this line to learn the port.
        System.out.println("{\"listening\":\"127.0.0.1:" + tomcat.getConnector().getLocalPort() + "\"}");
        tomcat.getServer().await();
    }

    private static Filter inTime() {
        return DeadlineFilter.create().unfenced("GET");
    }

    /** The settings that other services have in web.xml: the last filter. */
    private static void put(Context context, Filter filter) {
        FilterDef definition = new FilterDef();
        definition.setFilterName("in-time");
        definition.setFilter(filter);
        context.addFilterDef(definition);
        FilterMap routes = new FilterMap();
        routes.setFilterName("in-time");
        routes.addURLPattern("/*");
        context.addFilterMap(routes);
    }

    private static final class Executes extends HttpServlet {
        private static final long serialVersionUID = 1;
        private final transient Path file;

        Executes(Path file) {
            this.file = file;
        }

        @Override
        protected void service(HttpServletRequest request, HttpServletResponse response)
                throws IOException, ServletException {
            String line = request.getRequestURI() + "\n";
            Files.writeString(file, line, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
            String work = Objects.requireNonNullElse(request.getParameter("work_ms"), "0");
            LockSupport.parkNanos(Long.parseLong(work) * 1_000_000);
            response.getWriter().println("done");
        }
    }
}

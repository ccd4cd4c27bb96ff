package fencegate.sample;

import fencegate.fencing.Compare;
import fencegate.fencing.FenceFilter;
import fencegate.fencing.PostgresWatermarkStore;
import fencegate.fencing.Settings;
import java.io.File;
import java.nio.file.Files;
import java.sql.Connection;
import java.sql.Statement;
import org.apache.catalina.Context;
import org.apache.catalina.startup.Tomcat;
import org.apache.tomcat.util.descriptor.web.FilterDef;
import org.apache.tomcat.util.descriptor.web.FilterMap;
import org.postgresql.ds.PGSimpleDataSource;

/** A service that keeps accounts in PostgreSQL, and refuses requests that were overtaken. */
public final class Service {
    private Service() {}

    /** Takes the URL of the database, the port (0 for a free one), and token or number. */
    public static void main(String[] arguments) throws Exception {
        PGSimpleDataSource database = new PGSimpleDataSource();
        database.setURL(arguments[0]);
        try (Connection connection = database.getConnection(); Statement statement = connection.createStatement()) {
            statement.execute("CREATE TABLE IF NOT EXISTS accounts (id text PRIMARY KEY, balance bigint NOT NULL)");
        }
        // A GET without the fields is not compared. One with the fields is compared with the writes.
        Settings settings = Settings.of(new PostgresWatermarkStore())
                .comparing(Compare.valueOf(arguments[2].toUpperCase()))
                .unfenced("GET");

        Tomcat tomcat = new Tomcat();
        File folder = Files.createTempDirectory("sample").toFile();
        folder.deleteOnExit();
        tomcat.setBaseDir(folder.getPath());
        tomcat.setPort(Integer.parseInt(arguments[1]));
        tomcat.getConnector().setProperty("address", "127.0.0.1");
        // This bounds the connections to the database as well.
        tomcat.getConnector().setProperty("maxThreads", "20");
        Context context = tomcat.addContext("", null);
        fence(context, new FenceFilter(settings));
        Tomcat.addServlet(context, "accounts", new AccountsServlet(new Accounts(database)))
            .addMapping("/v1/accounts/*");
        tomcat.start();
        // The parent process reads this line to learn the port.
        System.out.println("{\"listening\":\"127.0.0.1:" + tomcat.getConnector().getLocalPort() + "\"}");
        tomcat.getServer().await();
    }

    /** The settings that other services have in web.xml. */
    private static void fence(Context context, FenceFilter filter) {
        FilterDef definition = new FilterDef();
        definition.setFilterName("fence");
        definition.setFilter(filter);
        context.addFilterDef(definition);
        FilterMap routes = new FilterMap();
        routes.setFilterName("fence");
        routes.addURLPattern("/v1/accounts/*");
        context.addFilterMap(routes);
    }
}

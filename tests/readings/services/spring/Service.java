import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import javax.servlet.MultipartConfigElement;
import javax.servlet.http.HttpServletRequest;
import javax.servlet.http.HttpServletResponse;
import org.apache.catalina.Context;
import org.apache.catalina.Wrapper;
import org.apache.catalina.startup.Tomcat;
import org.apache.tomcat.util.descriptor.web.FilterDef;
import org.apache.tomcat.util.descriptor.web.FilterMap;
import org.springframework.beans.MutablePropertyValues;
import org.springframework.format.support.DefaultFormattingConversionService;
import org.springframework.http.converter.json.MappingJackson2HttpMessageConverter;
import org.springframework.stereotype.Controller;
import org.springframework.web.bind.annotation.ModelAttribute;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.RequestHeader;
import org.springframework.web.bind.annotation.RequestMapping;
import org.springframework.web.bind.annotation.RequestParam;
import org.springframework.web.bind.support.ConfigurableWebBindingInitializer;
import org.springframework.web.context.support.StaticWebApplicationContext;
import org.springframework.web.filter.CharacterEncodingFilter;
import org.springframework.web.multipart.support.StandardServletMultipartResolver;
import org.springframework.web.servlet.DispatcherServlet;
import org.springframework.web.servlet.mvc.method.annotation.RequestMappingHandlerAdapter;
import org.springframework.web.servlet.mvc.method.annotation.RequestMappingHandlerMapping;

/**
 * How a service with Spring reads {@code id}: by {@code @ModelAttribute}, which has path, query and form; and below {@code /from} out of one
 * source, or each item of a list. {@code java Service.java PORT}.
 */
public final class Service {
    private Service() {}

    public static void main(String[] arguments) throws Exception {
        StaticWebApplicationContext beans = new StaticWebApplicationContext();
        beans.registerSingleton("mapping", RequestMappingHandlerMapping.class);
        // As `<mvc:annotation-driven/>` and Spring Boot configure it.
        ConfigurableWebBindingInitializer binding = new ConfigurableWebBindingInitializer();
        binding.setConversionService(new DefaultFormattingConversionService());
        MutablePropertyValues adapter = new MutablePropertyValues();
        adapter.add("webBindingInitializer", binding);
        adapter.add("messageConverters", List.of(new MappingJackson2HttpMessageConverter()));
        beans.registerSingleton("adapter", RequestMappingHandlerAdapter.class, adapter);
        beans.registerSingleton("multipartResolver", StandardServletMultipartResolver.class);
        beans.registerSingleton("reading", Reading.class);

        Tomcat tomcat = new Tomcat();
        File folder = Files.createTempDirectory("spring").toFile();
        folder.deleteOnExit();
        tomcat.setBaseDir(folder.getPath());
        tomcat.setPort(Integer.parseInt(arguments[0]));
        tomcat.getConnector().setProperty("address", "127.0.0.1");
        // As services of clients that write lists in this way have it.
        tomcat.getConnector().setProperty("relaxedQueryChars", "[]");
        Context context = tomcat.addContext("", null);
        Wrapper spring = Tomcat.addServlet(context, "spring", new DispatcherServlet(beans));
        spring.setMultipartConfigElement(new MultipartConfigElement(folder.getPath()));
        spring.addMapping("/");
        // Without it Tomcat takes a form for ISO 8859-1. Spring Boot adds it.
        FilterDef encoding = new FilterDef();
        encoding.setFilterName("encoding");
        encoding.setFilter(new CharacterEncodingFilter("UTF-8", true));
        context.addFilterDef(encoding);
        FilterMap all = new FilterMap();
        all.setFilterName("encoding");
        all.addURLPattern("/*");
        context.addFilterMap(all);
        tomcat.start();
        tomcat.getServer().await();
    }

    /** What a request is about. */
    public static final class Account {
        private String id;

        public String getId() {
            return id;
        }

        public void setId(String id) {
            this.id = id;
        }
    }

    /** Says what it reads. */
    @Controller
    public static final class Reading {
        @RequestMapping({"/accounts/{id}", "/accounts", "/lists", "/forms"})
        public void read(@ModelAttribute Account account, HttpServletRequest request, HttpServletResponse response)
                throws IOException {
            answer(request, response, told(account.getId()));
        }

        @RequestMapping("/from/path/{id}")
        public void path(@PathVariable("id") String id, HttpServletRequest request, HttpServletResponse response)
                throws IOException {
            answer(request, response, told(id));
        }

        @RequestMapping("/from/action/{id}:cancel")
        public void action(@PathVariable("id") String id, HttpServletRequest request, HttpServletResponse response)
                throws IOException {
            answer(request, response, told(id));
        }

        @RequestMapping("/from/query")
        public void query(@RequestParam("id") String id, HttpServletRequest request, HttpServletResponse response)
                throws IOException {
            answer(request, response, told(id));
        }

        @RequestMapping("/from/queries")
        public void queries(@RequestParam("id") List<String> ids, HttpServletRequest request, HttpServletResponse response)
                throws IOException {
            answer(request, response, each(ids));
        }

        @RequestMapping("/from/field")
        public void field(@RequestHeader("X-Id") String id, HttpServletRequest request, HttpServletResponse response)
                throws IOException {
            answer(request, response, told(id));
        }

        @RequestMapping("/from/member")
        public void member(@RequestBody Map<String, Object> body, HttpServletRequest request, HttpServletResponse response)
                throws IOException {
            answer(request, response, told(body.get("id")));
        }

        @RequestMapping("/from/members")
        public void members(@RequestBody Order order, HttpServletRequest request, HttpServletResponse response)
                throws IOException {
            answer(request, response, each(order.items.stream().map(Account::getId).collect(Collectors.toList())));
        }

        private static String told(Object id) {
            if (id == null) {
                return "-";
            }
            return id instanceof Map || id instanceof List ? "*" : "=" + id;
        }

        private static String each(List<String> ids) {
            return ids.isEmpty() ? "-" : ids.stream().map(Reading::told).collect(Collectors.joining("\n"));
        }

        private static void answer(HttpServletRequest request, HttpServletResponse response, String reading)
                throws IOException {
            response.setContentType("text/plain;charset=UTF-8");
            String key = request.getHeader("Fencing-Key");
            if (key != null) {
                response.setHeader("x-key", key);
            }
            response.getOutputStream().write(reading.getBytes(StandardCharsets.UTF_8));
        }
    }

    /** What a request about a list is about. */
    public static final class Order {
        public List<Account> items;
    }
}

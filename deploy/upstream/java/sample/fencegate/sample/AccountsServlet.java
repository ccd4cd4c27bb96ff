package fencegate.sample;

import fencegate.fencing.Fence;
import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.sql.SQLException;
import java.util.Objects;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The accounts over HTTP. */
final class AccountsServlet extends HttpServlet {
    private static final long serialVersionUID = 1;
    private static final Pattern MOVE = Pattern.compile("/([^/]+)/(debit|credit)");
    private static final Pattern ACCOUNT = Pattern.compile("/([^/]+)");
    /** Reads the amount. A real service has a JSON parser; this one needs no library. */
    private static final Pattern AMOUNT = Pattern.compile("\"amount\"\\s*:\\s*([1-9][0-9]{0,8})\\b");

    private static final Pattern TO = Pattern.compile("\"to\"\\s*:\\s*\"([^\"\\\\]+)\"");

    private final transient Accounts accounts;

    AccountsServlet(Accounts accounts) {
        this.accounts = accounts;
    }

    @Override
    protected void doPost(HttpServletRequest request, HttpServletResponse response)
            throws IOException, ServletException {
        Matcher path = MOVE.matcher(request.getPathInfo());
        String body = new String(request.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        Matcher amount = AMOUNT.matcher(body);
        if (!path.matches()) {
            response.sendError(404);
        } else if (!amount.find()) {
            tell(response, 400, "\"an amount in cents is wanted\"");
        } else {
            try {
                String work = Objects.requireNonNullElse(request.getParameter("work_ms"), "0");
                long cents = Long.parseLong(amount.group(1)) * (path.group(2).equals("debit") ? 1 : -1);
                Matcher second = TO.matcher(body);
                String to = second.find() ? second.group(1) : null;
                long balance = accounts.take(Fence.of(request), path.group(1), cents, to, Long.parseLong(work));
                tell(response, 200, "{\"balance\":" + balance + "}");
            } catch (Accounts.NotEnough few) {
                tell(response, 422, "\"not enough is there\"");
            } catch (Accounts.OtherAccount other) {
                tell(response, 403, "\"the fence is of another account\"");
            } catch (SQLException failure) {
                throw new ServletException("take", failure);
            }
        }
    }

    @Override
    protected void doGet(HttpServletRequest request, HttpServletResponse response)
            throws IOException, ServletException {
        Matcher path = ACCOUNT.matcher(request.getPathInfo());
        if (!path.matches()) {
            response.sendError(404);
            return;
        }
        try {
            long balance = accounts.balance(Fence.of(request), path.group(1));
            tell(response, 200, "{\"balance\":" + balance + "}");
        } catch (Accounts.OtherAccount other) {
            tell(response, 403, "\"the fence is of another account\"");
        } catch (SQLException failure) {
            throw new ServletException("balance", failure);
        }
    }

    private static void tell(HttpServletResponse response, int status, String json) throws IOException {
        response.setStatus(status);
        response.setContentType("application/json");
        response.getWriter().print(json);
    }
}

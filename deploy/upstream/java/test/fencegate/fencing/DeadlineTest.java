package fencegate.fencing;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;

/** The contract's Fencing-Not-After, in a real container. */
final class DeadlineTest {
    private static final Site.Handler DONE = (request, response) -> response.getWriter().print("done");

    private DeadlineTest() {}

    static void run(Site site) throws Exception {
        theFieldIsReadAsTheContractSays(site);
        whatIsInTimeIsDecidedAsTheContractSays(site);
        anUnfencedMethodPassesWithoutADeadline(site);
        aFenceLooksAtTheFieldFirst(site);
        aHandlerThatWaitsMayAskAgain(site);
        theClockOfTheKernelIsReadWhereItIsThatOfTheSender();
    }

    private static Moment moment(Object wall, Object boot, Object uptime) {
        return new Moment(millis(wall), (String) boot, boot == null ? 0 : millis(uptime));
    }

    private static long millis(Object number) {
        return ((Double) number).longValue();
    }

    private static List<List<String>> field(Object value) {
        return List.of(List.of("Fencing-Not-After", value.toString()));
    }

    private static void theFieldIsReadAsTheContractSays(Site site) throws Exception {
        for (Map<String, Object> vector : Check.vectors("not_after")) {
            String which = (String) vector.get("name");
            List<Moment> read = new ArrayList<>();
            DeadlineFilter filter = DeadlineFilter.create().clock(() -> Moment.ofWall(-10_000));
            site.runs(filter, (request, response) -> read.add(Deadline.of(request).notAfter()));
            List<List<String>> fields = Check.list(vector.get("fields")).stream().map(Check::texts).toList();
            Site.Answer answer = site.exchange("POST", fields);
            Check.equal("-10000;error=500", answer.fields().get("fencing-clock"), which);
            if (vector.get("refused") == null) {
                Check.equal(200, answer.status(), which);
                Map<String, Object> said = Check.map(vector.get("read"));
                Moment wanted = moment(said.get("not_after"), said.get("boot"), said.get("uptime"));
                Check.equal(List.of(wanted), read, which);
            } else {
                Site.assertAnswer(answer, (String) vector.get("refused"), which);
                Check.equal(List.of(), read, which);
            }
        }
    }

    private static void whatIsInTimeIsDecidedAsTheContractSays(Site site) throws Exception {
        for (Map<String, Object> vector : Check.vectors("in_time")) {
            String which = (String) vector.get("name");
            Map<String, Object> told = Check.map(vector.get("now"));
            Moment now = moment(told.get("wall"), told.get("boot"), told.get("uptime"));
            Duration error = Duration.ofMillis(millis(vector.get("clock_error")));
            site.runs(DeadlineFilter.create().clock(() -> now).clockError(error), DONE);
            Site.Answer answer = site.exchange("POST", field(vector.get("value")));
            if (vector.get("in_time").equals(true)) {
                Check.equal(200, answer.status(), which);
            } else {
                Site.assertAnswer(answer, "expired", which);
            }
        }
    }

    private static void anUnfencedMethodPassesWithoutADeadline(Site site) throws Exception {
        site.runs(DeadlineFilter.create().unfenced("GET"), DONE);
        Site.Answer free = site.exchange("GET", List.of());
        Check.equal(200, free.status(), "free");
        Check.equal(null, free.fields().get("fencing-clock"), "free");
        Site.assertAnswer(site.exchange("POST", List.of()), "not-after-missing", "a method that is fenced");
        List<List<String>> key = List.of(List.of("Fencing_Key", "a"));
        Site.assertAnswer(site.exchange("GET", key), "not-after-missing", "of a fenced route");
        List<List<String>> alike = List.of(List.of("Fencing_Not_After", "5"));
        Site.assertAnswer(site.exchange("GET", alike), "not-after-malformed", "a look-alike");
        Site.assertAnswer(site.exchange("GET", field(5)), "expired", "late");
    }

    private static void aFenceLooksAtTheFieldFirst(Site site) throws Exception {
        Settings settings = Settings.of(new Scripted(List.of()));
        site.runs(settings, DONE);
        Site.assertAnswer(site.exchange("POST", field("5")), "token-missing", "not asked for");
        site.runs(settings.clockError(Duration.ofMillis(500)), DONE);
        for (List<String> one : List.of(List.of("5", "expired"), List.of("never", "not-after-malformed"))) {
            List<List<String>> stamped = new ArrayList<>(Site.STAMPED);
            stamped.addAll(field(one.get(0)));
            Site.assertAnswer(site.exchange("POST", stamped), one.get(1), "with a token");
            Site.assertAnswer(site.exchange("POST", field(one.get(0))), one.get(1), "without one");
        }
        List<List<String>> soon = field(System.currentTimeMillis() + 3000);
        Site.assertAnswer(site.exchange("POST", soon), "token-missing", "in time");
        site.runs(settings.clockError(Duration.ofMinutes(1)), DONE);
        Site.Answer refused = site.exchange("POST", soon);
        Site.assertAnswer(refused, "expired", "within the clock error");
        Check.that(refused.fields().get("fencing-clock").matches("[0-9]{13};error=60000"), refused.toString());
    }

    private static void aHandlerThatWaitsMayAskAgain(Site site) throws Exception {
        AtomicLong wall = new AtomicLong(1000);
        List<Boolean> told = new ArrayList<>();
        DeadlineFilter filter = DeadlineFilter.create().clock(() -> Moment.ofWall(wall.get())).clockError(Duration.ZERO);
        site.runs(filter, (request, response) -> {
            told.add(Deadline.of(request).isOver());
            wall.set(1500);
            told.add(Deadline.of(request).isOver());
        });
        site.exchange("POST", field(1500));
        Check.equal(List.of(false, true), told, "asked again");
    }

    private static void theClockOfTheKernelIsReadWhereItIsThatOfTheSender() throws Exception {
        MachineClock clock = new MachineClock();
        Moment first = clock.get();
        Moment second = clock.get();
        Check.that(first.boot() != null && first.boot().equals(second.boot()), first.toString());
        Check.that(first.uptimeMillis() <= second.uptimeMillis(), first + " " + second);
        Check.equal(651_140L, MachineClock.parseUptime("651.13 294.76\n"), "rounded up");
        for (String text : List.of("", "651 2", "651.1 2", "-1.00 2")) {
            Check.that(MachineClock.parseUptime(text) < 0, text);
        }
        String mount = "22 1 0:20 / /proc rw - proc proc rw\n";
        String zero = "monotonic           0         0\nboottime            0         0\n";
        String lxcfs = mount + "9 2 0:5 /proc/uptime /proc/uptime rw - fuse.lxcfs lxcfs rw\n";
        String covered = mount + "9 2 0:5 /x /proc/sys/kernel/random/boot_id ro - tmpfs x rw\n";
        assertKnown(true, "b\n", zero, mount);
        assertKnown(true, "b\n", null, mount);
        assertKnown(false, "b\n", zero.replaceFirst(" 0  ", "-9  "), mount);
        assertKnown(false, "b\n", zero, lxcfs);
        assertKnown(false, "b\n", zero, covered);
        assertKnown(false, "b\n", zero, null);
        assertKnown(false, "", zero, mount);
        assertKnown(false, null, zero, mount);
    }

    private static void assertKnown(boolean known, String id, String offsets, String mounts) throws Exception {
        Path proc = Files.createTempDirectory("clock");
        try {
            List<String> texts = Arrays.asList(id, offsets, mounts);
            List<String> names = List.of("sys/kernel/random/boot_id", "self/timens_offsets", "self/mountinfo");
            for (int at = 0; at < names.size(); at++) {
                if (texts.get(at) != null) {
                    Files.createDirectories(proc.resolve(names.get(at)).getParent());
                    Files.writeString(proc.resolve(names.get(at)), texts.get(at));
                }
            }
            Check.equal(known, MachineClock.bootId(proc) != null, texts.toString());
        } finally {
            try (var files = Files.walk(proc)) {
                for (Path file : files.sorted(Comparator.reverseOrder()).toList()) {
                    Files.delete(file);
                }
            }
        }
    }
}

"""Runs the contract (`deploy/upstream/vectors.json`) against both kinds of middleware."""

import asyncio
import json
import sqlite3
import sys
import tempfile
import time
import unittest
from pathlib import Path

UPSTREAM = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(UPSTREAM / "python" / "src"))

import fencegate_upstream as upstream  # noqa: E402
from fencegate_upstream import statements  # noqa: E402
from fencegate_upstream.not_after import Clock, is_in_time, parse_not_after  # noqa: E402
from fencegate_upstream.stamp import Refused  # noqa: E402

VECTORS = json.loads((UPSTREAM / "vectors.json").read_text())
ANSWERS = {answer["reason"]: answer for answer in VECTORS["answers"]}
GOOD = VECTORS["requests"][0]["fields"]


class Scripted:
    """Watermarks whose claims end as the vector has it."""

    def raise_watermark(self, tx, key, mode, mark):
        if tx == "error":
            raise OSError("the database failed")
        return tx == "passes"

    async def raise_watermark_async(self, tx, key, mode, mark):
        await asyncio.sleep(0)
        return self.raise_watermark(tx, key, mode, mark)


def claims_of(vector):
    """Runs the handler of a vector up to its answer; raises if it gives none."""

    def play(fence):
        for claim in vector["claims"]:
            try:
                fence.claim(claim)
                assert claim == "passes"
            except upstream.StaleTokenError:
                assert claim == "stale"
                if vector["status"] == 0:
                    raise
            except OSError:
                assert claim == "error"

    return play


class Wsgi:
    """Asks a WSGI application as a server does: values of one name are joined, and `_` is `-`."""

    name = "wsgi"

    @staticmethod
    def asked(fields, handler, settings, method="POST", around=None):
        """`handler(fence)` returns a status, or raises an exception. `around`: another middleware than that of the fence."""
        environ = {"REQUEST_METHOD": method, "PATH_INFO": "/a", "QUERY_STRING": "secret=1"}
        for name, value in fields:
            variable = "HTTP_" + name.upper().replace("-", "_")
            environ[variable] = environ[variable] + "," + value if variable in environ else value
        heads = []

        def application(environ, start_response):
            status = handler(environ.get("fencegate.deadline" if around else "fencegate.fence"))
            start_response(f"{status} Own", [("X-Own", "1")])
            return [b"", b"the ", b"handler's"]

        def start_response(status, headers, exc_info=None):
            heads.append((int(status[:3]), dict(headers)))
            return None

        middleware = around or (lambda app: upstream.WsgiFence(app, Scripted(), settings))
        body = middleware(application)(environ, start_response)
        told = b"".join(body)
        assert len(heads) == 1, heads
        return heads[0] + (told,)


class Asgi:
    name = "asgi"

    @staticmethod
    def asked(fields, handler, settings, method="POST", around=None):
        headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in fields]
        scope = {"type": "http", "method": method, "path": "/a", "query_string": b"secret=1", "headers": headers}
        sent = []

        async def application(scope, receive, send):
            status = handler(scope.get("fencegate.deadline" if around else "fencegate.fence"))
            await send({"type": "http.response.start", "status": status, "headers": [(b"x-own", b"1")]})
            await send({"type": "http.response.body", "body": b"the ", "more_body": True})
            await send({"type": "http.response.body", "body": b"handler's"})

        async def send(message):
            sent.append(message)

        middleware = around or (lambda app: upstream.AsgiFence(app, Scripted(), settings))
        asyncio.run(middleware(application)(scope, None, send))
        assert [message["type"] for message in sent].count("http.response.start") == 1, sent
        names = {name.decode().title(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], names, b"".join(message["body"] for message in sent[1:])


KINDS = (Wsgi, Asgi)
DEADLINES = {"wsgi": upstream.WsgiDeadline, "asgi": upstream.AsgiDeadline}


class Answers(unittest.TestCase):
    def answers(self, told, reason):
        status, fields, body = told
        expected = ANSWERS[reason]
        self.assertEqual(status, expected["status"])
        self.assertEqual(fields["Content-Type"], "application/problem+json")
        self.assertEqual(fields.get("Fencing-Refusal"), expected.get("refusal"))
        self.assertEqual(json.loads(body), {name: expected[name] for name in ("title", "status", "reason")})


class Contract(Answers):
    def test_requests_are_read_and_refused_as_written(self):
        for kind in KINDS:
            for vector in VECTORS["requests"]:
                with self.subTest(kind=kind.name, vector=vector["name"], compare=vector.get("compare")):
                    fences = []

                    def handler(fence):
                        fences.append(fence)
                        fence.claim("passes")
                        return 200

                    told = kind.asked(vector["fields"], handler, upstream.Settings(vector.get("compare", "token")))
                    if "refused" in vector and kind.name not in vector.get("unseen_by", ()):
                        self.answers(told, vector["refused"])
                        self.assertEqual(fences, [])
                        continue
                    self.assertEqual(told[0], 200)
                    if "accepted" in vector:
                        (fence,), said = fences, vector["accepted"]
                        self.assertEqual(fence.token, said["token"])
                        self.assertEqual(str(fence.number), said["number"])
                        self.assertEqual(list(fence.keys), said["keys"])
                        self.assertEqual(fence.mode, said["mode"])

    def test_handlers_are_overruled_as_written(self):
        for kind in KINDS:
            for vector in VECTORS["handlers"]:
                with self.subTest(kind=kind.name, vector=vector["name"]):
                    play = claims_of(vector)

                    def handler(fence):
                        play(fence)
                        return vector["status"]

                    if vector["sent"] == "unclaimed":
                        with self.assertLogs("fencegate_upstream", "ERROR") as logged:
                            told = kind.asked(GOOD, handler, upstream.Settings())
                        self.assertIn(f"answered {vector['status']} without a claim", logged.output[0])
                        self.assertNotIn("secret", logged.output[0])
                    else:
                        told = kind.asked(GOOD, handler, upstream.Settings())
                    if isinstance(vector["sent"], int):
                        self.assertEqual((told[0], told[2]), (vector["sent"], b"the handler's"))
                    else:
                        self.answers(told, vector["sent"])

    def test_a_failure_that_is_not_of_the_fence_goes_on(self):
        def handler(fence):
            raise KeyError("of the handler")

        for kind in KINDS:
            with self.assertRaises(KeyError):
                kind.asked(GOOD, handler, upstream.Settings())

    def test_methods_that_are_not_fenced_pass_without_any_of_the_fields_only(self):
        settings = upstream.Settings(unfenced=["GET"])
        for kind in KINDS:
            self.assertEqual(kind.asked([["Accept", "text/plain"]], lambda fence: 200 if fence is None else 500, settings, "GET")[0], 200)
            self.answers(kind.asked([], lambda fence: 200, settings), "token-missing")
            self.answers(kind.asked([["Fencing-Key", "a"]], lambda fence: 200, settings, "GET"), "token-missing")
            self.assertEqual(kind.asked([], lambda fence: 200, settings, "HEAD")[2], b"")

    def test_fields_have_other_names_where_the_policy_says_so(self):
        settings = upstream.Settings(token_field="X-Fence", number_field="X-Number")
        renamed = [[name.replace("Fencing-Token", "x-fence").replace("Fencing-Number", "x-number"), value] for name, value in GOOD]

        def handler(fence):
            fence.claim("passes")
            return 200

        for kind in KINDS:
            self.assertEqual(kind.asked(renamed, handler, settings)[0], 200)
            self.answers(kind.asked(GOOD, handler, settings), "token-missing")

    def test_a_line_feed_behind_a_value_is_no_part_of_it(self):
        for at in range(len(GOOD)):
            fields = [(name.encode(), (value + "\n" * (index == at)).encode()) for index, (name, value) in enumerate(GOOD)]
            with self.assertRaises(Refused):
                upstream.Settings().read("POST", fields)

    def test_writes_by_the_callable_of_wsgi_are_judged_too(self):
        for claim, sent in (("passes", 200), (None, 500)):
            heads, written = [], []

            def start_response(status, headers, exc_info=None):
                heads.append(status)
                return written.append

            def application(environ, start_response):
                if claim:
                    environ["fencegate.fence"].claim(claim)
                start_response("200 OK", [])(b"a part")
                return [b"the rest"]

            environ = {"REQUEST_METHOD": "POST", "PATH_INFO": "/", "QUERY_STRING": ""}
            environ.update({"HTTP_" + name.upper().replace("-", "_"): value for name, value in GOOD})
            body = upstream.WsgiFence(application, Scripted())(environ, start_response)
            rest = b"".join(body)
            self.assertEqual([int(head[:3]) for head in heads], [sent])
            if claim:
                self.assertEqual((written, rest), ([b"a part"], b"the rest"))
            else:
                self.assertEqual(json.loads(b"".join(written) + rest)["reason"], "unclaimed")


    def test_an_answer_of_wsgi_without_a_body_is_judged_too(self):
        for claims, sent in ((["passes"], 204), ([], 500)):
            heads = []

            def application(environ, start_response):
                for claim in claims:
                    environ["fencegate.fence"].claim(claim)
                start_response("204 No Content", [])
                return []

            environ = {"REQUEST_METHOD": "POST", "PATH_INFO": "/", "QUERY_STRING": ""}
            environ.update({"HTTP_" + name.upper().replace("-", "_"): value for name, value in GOOD})
            start_response = lambda status, headers, exc_info=None: heads.append(int(status[:3]))  # noqa: E731
            list(upstream.WsgiFence(application, Scripted())(environ, start_response))
            self.assertEqual(heads, [sent])

    def test_all_keys_are_claimed_in_order_until_one_is_stale(self):
        class Keys(Scripted):
            def raise_watermark(self, tx, key, mode, mark):
                tx.append((key, mode, mark))
                return key != "b"

        fields = [[name, "a, b, c" if name == "Fencing-Key" else value] for name, value in GOOD]
        stamp = upstream.Settings().read("POST", [(name.encode(), value.encode()) for name, value in fields])
        for claim in ("claim", "claim_async"):
            claimed = []
            fence = upstream.Fence(stamp, "token", Keys())
            with self.assertRaises(upstream.StaleTokenError):
                waited = getattr(fence, claim)(claimed)
                if waited is not None:
                    asyncio.run(waited)
            self.assertEqual(claimed, [(key, "exclusive", stamp.token) for key in "ab"])


def moment(wall, boot, uptime):
    return upstream.Moment(wall, boot, uptime if boot is not None else None)


class NotAfter(Answers):
    def asked(self, kind, fields, method="POST", now=moment(0, None, None), handler=lambda deadline: 200, **settings):
        around = lambda app: DEADLINES[kind.name](app, clock=lambda: now, **settings)  # noqa: E731
        return kind.asked(fields, handler, None, method, around)

    def test_fields_are_read_and_refused_as_written(self):
        for kind in KINDS:
            for vector in VECTORS["not_after"]:
                with self.subTest(kind=kind.name, vector=vector["name"]):
                    deadlines = []
                    told = self.asked(
                        kind,
                        vector["fields"],
                        now=moment(-10000, None, None),
                        handler=lambda deadline: deadlines.append(deadline) or 200,
                    )
                    if "refused" in vector and kind.name not in vector.get("unseen_by", ()):
                        self.answers(told, vector["refused"])
                        self.assertEqual(deadlines, [])
                        continue
                    self.assertEqual(told[::2], (200, b"the handler's"))
                    self.assertEqual(told[1]["Fencing-Clock"], "-10000;error=500")
                    if "read" in vector:
                        read = vector["read"]
                        wanted = moment(read["not_after"], read["boot"], read["uptime"])
                        self.assertEqual([deadline.not_after for deadline in deadlines], [wanted])

    def test_what_is_in_time_is_decided_as_written(self):
        for vector in VECTORS["in_time"]:
            now = moment(vector["now"]["wall"], vector["now"]["boot"], vector["now"]["uptime"])
            not_after = parse_not_after(vector["value"].encode())
            self.assertEqual(is_in_time(not_after, now, vector["clock_error"]), vector["in_time"], vector["name"])
            for kind in KINDS:
                fields = [["Fencing-Not-After", vector["value"]]]
                told = self.asked(kind, fields, now=now, clock_error=vector["clock_error"])
                if vector["in_time"]:
                    self.assertEqual(told[0], 200)
                else:
                    self.answers(told, "expired")

    def test_methods_that_are_not_fenced_pass_without_any_of_the_fields_only(self):
        for kind in KINDS:
            free = self.asked(kind, [["Accept", "text/plain"]], "GET", unfenced=["GET"])
            self.assertEqual((free[0], free[1].get("Fencing-Clock")), (200, None))
            for fields, method in (([], "POST"), ([["Fencing-Key", "a"]], "GET")):
                self.answers(self.asked(kind, fields, method, unfenced=["GET"]), "not-after-missing")
            self.answers(self.asked(kind, [["Fencing-Not-After", "0"]], "GET", unfenced=["GET"]), "expired")

    def test_a_fence_looks_at_the_field_first(self):
        asked_for = upstream.Settings(clock_error=500)
        for kind in KINDS:
            told = kind.asked([["Fencing-Not-After", "5"]], lambda fence: 200, upstream.Settings())
            self.answers(told, "token-missing")
            for value, reason in (("5", "expired"), ("never", "not-after-malformed")):
                for fields in (GOOD, []):
                    told = kind.asked([*fields, ["Fencing-Not-After", value]], lambda fence: 200, asked_for)
                    self.answers(told, reason)
                    self.assertRegex(told[1]["Fencing-Clock"], r"^[0-9]+;error=500$")
            late = str(time.time_ns() // 1_000_000 + 2000)
            self.answers(kind.asked([["Fencing-Not-After", late]], lambda fence: 200, asked_for), "token-missing")
            settings = upstream.Settings(clock_error=5000)
            self.answers(kind.asked([["Fencing-Not-After", late]], lambda fence: 200, settings), "expired")

    def test_a_handler_that_waits_may_ask_again(self):
        for kind in KINDS:
            told = []
            clock = iter([1000, 1000, 2000, 3000]).__next__

            def handler(deadline):
                told.extend([deadline.is_over(), deadline.is_over()])
                return 200

            around = lambda app: DEADLINES[kind.name](app, clock_error=0, clock=lambda: moment(clock(), None, None))  # noqa: E731
            kind.asked([["Fencing-Not-After", "1500"]], handler, None, "POST", around)
            self.assertEqual(told, [False, True])

    def test_the_clock_of_the_kernel_is_compared_where_it_is_the_same(self):
        first, second = Clock()(), Clock()()
        self.assertEqual(first.boot, Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        self.assertLessEqual(first.uptime, second.uptime)
        read = float(Path("/proc/uptime").read_text().split()[0]) * 1000
        self.assertLess(abs(read - second.uptime), 5000)
        zero, offset = "boottime            0         0\n", "boottime         -100         0\n"
        for boot, offsets, known in (("b\n", zero, True), ("b", None, True), ("b", offset, False), ("", zero, False), (None, zero, False)):
            with tempfile.TemporaryDirectory() as folder:
                for name, text in (("sys/kernel/random/boot_id", boot), ("self/timens_offsets", offsets)):
                    if text is not None:
                        (Path(folder) / name).parent.mkdir(parents=True)
                        (Path(folder) / name).write_text(text)
                self.assertEqual(Clock(folder)().boot is not None, known)


class InSqlite(unittest.TestCase):
    def bank(self, form):
        """An empty database, which commits each statement by itself unless a transaction is begun."""
        bank = sqlite3.connect(":memory:", isolation_level=None)
        self.addCleanup(bank.close)
        bank.executescript(section("sqlite", form, "table"))
        return bank

    def test_stories_end_as_written(self):
        for story in VECTORS["claims"]:
            form = story.get("compare", "token")
            watermarks, bank = upstream.sqlite(form), self.bank(form)
            for step in story["steps"]:
                bank.execute("BEGIN IMMEDIATE")
                mark = step["token"] if form == "token" else int(step["number"])
                passes = all(watermarks.raise_watermark(bank, key, step["mode"], mark) for key in step["keys"])
                bank.execute("COMMIT" if passes and step.get("end") != "rollback" else "ROLLBACK")
                self.assertEqual(passes, step["passes"], story["name"])

    def test_a_claim_that_would_be_committed_by_itself_is_none(self):
        bank = self.bank("token")
        token = GOOD[0][1]
        for tx in (bank, bank.cursor()):
            with self.assertRaises(upstream.NoTransactionError):
                upstream.sqlite().raise_watermark(tx, "a", "exclusive", token)
        self.assertEqual(bank.execute("SELECT count(*) FROM fence").fetchone(), (0,))
        # A default connection begins transactions by itself, and commits them only on demand.
        bank.isolation_level = ""
        self.assertTrue(upstream.sqlite().raise_watermark(bank, "a", "exclusive", token))
        self.assertTrue(bank.in_transaction)


def section(database, form, name):
    recipe = (UPSTREAM / database / f"{form}.sql").read_text()
    return next(part.split("\n", 1)[1] for part in recipe.split("-- ")[1:] if part.startswith(name + "\n"))


class Statements(unittest.TestCase):
    def test_they_are_those_of_the_recipes(self):
        for database in ("postgresql", "sqlite", "mariadb"):
            for (form, name), statement in getattr(statements, database.upper()).items():
                self.assertEqual(statement.strip(), section(database, form, name).strip())

    def test_each_style_has_its_parameters(self):
        watermarks = upstream.postgresql()
        statement, values = watermarks._statements["exclusive"].with_values({"key": "k", "token": "t"})
        self.assertIn("%(token)s", statement)
        self.assertEqual(values, {"key": "k", "token": "t"})
        statement, values = upstream.mariadb(paramstyle="qmark")._statements["shared"].with_values({"key": "k", "token": "t"})
        self.assertEqual((statement.count("?"), values), (4, ("t", "k", "t", "t")))
        row, values = upstream.mariadb()._row.with_values({"key": "k", "token": "t"})
        self.assertEqual(values, {"key": "k"})


class FormerNames(unittest.TestCase):
    """The names before the renames work for one version, and warn."""

    STAMP = upstream.Settings().read("POST", [(name.encode(), value.encode()) for name, value in GOOD])

    def test_classes_are_the_same(self):
        for former, name in (("Marks", "WatermarkStore"), ("NoTransaction", "NoTransactionError"), ("Stale", "StaleTokenError")):
            with self.assertWarns(DeprecationWarning):
                self.assertIs(getattr(upstream, former), getattr(upstream, name))
        with self.assertWarns(DeprecationWarning):
            from fencegate_upstream import Stale
        self.assertIs(Stale, upstream.StaleTokenError)
        self.assertFalse(hasattr(upstream, "Fresh"))

    def test_arguments_are_taken(self):
        for middleware in (upstream.WsgiFence, upstream.AsgiFence):
            store = Scripted()
            with self.assertWarns(DeprecationWarning):
                self.assertIs(middleware(None, marks=store).watermarks, store)
            with self.assertRaises(TypeError):
                middleware(None)
        for recipe in (upstream.postgresql, upstream.sqlite, upstream.mariadb):
            with self.assertWarns(DeprecationWarning):
                former = recipe(form="number")._statements["shared"]._text
            self.assertEqual(former, recipe(compare="number")._statements["shared"]._text)

    def test_methods_are_called(self):
        class Former:
            """A store that was written before."""

            def raise_mark(self, tx, key, mode, mark):
                return tx == "passes"

            async def raise_mark_async(self, tx, key, mode, mark):
                return tx == "passes"

        class Derived(upstream.WatermarkStore):
            """Overrides a method by its former name."""

            def raise_mark(self, tx, key, mode, mark):
                return tx != "stale" and super().raise_mark(tx, key, mode, mark)

        bank = sqlite3.connect(":memory:", isolation_level=None)
        self.addCleanup(bank.close)
        bank.executescript(section("sqlite", "token", "table"))
        bank.execute("BEGIN")
        derived = Derived(statements.SQLITE["token", "write"], statements.SQLITE["token", "read"])
        for store, passes in ((Former(), "passes"), (derived, bank)):
            for tx in (passes, "stale"):
                fence = upstream.Fence(self.STAMP, "token", store)
                with self.assertWarns(DeprecationWarning):
                    if tx == "stale":
                        self.assertRaises(upstream.StaleTokenError, fence.claim, tx)
                    else:
                        fence.claim(tx)
        with self.assertWarns(DeprecationWarning):
            asyncio.run(upstream.Fence(self.STAMP, "token", Former()).claim_async("passes"))
        with self.assertWarns(DeprecationWarning):
            self.assertTrue(upstream.sqlite().raise_mark(bank, "another", "exclusive", self.STAMP.token))


class Page(unittest.TestCase):
    def test_it_shows_what_runs(self):
        blocks = (UPSTREAM / "python" / "README.md").read_text().split("```python\n")[1:]
        self.assertEqual(len(blocks), 2)
        for name, block in zip(("account.py", "deadline.py"), blocks):
            sample = (UPSTREAM / "python" / "sample" / name).read_text().split("# --- page\n")[1]
            self.assertEqual(block.split("```")[0].strip(), sample.strip())


if __name__ == "__main__":
    unittest.main()

"""Accounts in three databases, each by the driver that most people use for it."""

import sqlite3
from contextlib import closing
from pathlib import Path

import fencegate_upstream as upstream

RECIPES = Path(__file__).resolve().parents[2]


class Bank:
    """`work` is what one transaction does, with a cursor; all of it is rolled back where it raises something."""

    place = "%s"
    again = ()
    new = "INSERT INTO account VALUES ({0}, 1000000) ON CONFLICT DO NOTHING"

    def __init__(self, where, form):
        self.where, self.form = where, form

    def run(self, work):
        while True:
            with closing(self.connect()) as connection, closing(connection.cursor()) as cursor:
                try:
                    cursor.execute(self.begin)
                    done = work(cursor)
                except BaseException as failed:
                    cursor.execute("ROLLBACK")
                    # The database has ended it for the sake of another one: nothing was done.
                    if isinstance(failed, self.again) and failed.args[0] in self.codes:
                        continue
                    raise
                cursor.execute("COMMIT")
                return done

    def take(self, cursor, account):
        cursor.execute(self.new.format(self.place), [account])
        cursor.execute("UPDATE account SET cents = cents - 1 WHERE id = %s".replace("%s", self.place), [account])

    def balance(self, cursor, account):
        cursor.execute("SELECT cents FROM account WHERE id = %s".replace("%s", self.place), [account])
        found = cursor.fetchone()
        return found[0] if found else 1000000

    def make(self):
        recipe = (RECIPES / type(self).__name__.lower() / f"{self.form}.sql").read_text()
        tables = recipe.split("-- table\n")[1].split("-- ")[0]
        accounts = "CREATE TABLE account (id VARCHAR(64) PRIMARY KEY, cents BIGINT NOT NULL);"
        with closing(self.connect()) as connection, closing(connection.cursor()) as cursor:
            for statement in (tables + accounts).split(";")[:-1]:
                cursor.execute(statement)


class Sqlite(Bank):
    begin = "BEGIN IMMEDIATE"
    place = "?"

    def connect(self):
        connection = sqlite3.connect(self.where, timeout=20, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        return connection

    def marks(self):
        return upstream.sqlite(self.form)


class Postgresql(Bank):
    begin = "BEGIN"

    def connect(self):
        import psycopg

        return psycopg.connect(self.where, autocommit=True)

    def marks(self):
        return upstream.postgresql(self.form)


class MariaDb(Bank):
    begin = "START TRANSACTION"
    new = "INSERT IGNORE INTO account VALUES ({0}, 1000000)"
    # Deadlock.
    codes = (1213,)

    def connect(self):
        import pymysql

        self.again = pymysql.err.OperationalError
        return pymysql.connect(unix_socket=self.where, user="root", database="service", autocommit=True)

    def marks(self):
        return upstream.mariadb(self.form)


BANKS = {"sqlite": Sqlite, "postgresql": Postgresql, "mariadb": MariaDb}

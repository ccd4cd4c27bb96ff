"""Accounts in three databases, each with its most common driver."""

import sqlite3
from contextlib import closing
from pathlib import Path

import fencegate_upstream as upstream

RECIPES = Path(__file__).resolve().parents[2]


class Bank:
    """`work` does one transaction with a cursor. If it raises an exception, the transaction is rolled back.

    The tables of the recipe and `account (id, cents)` have to exist; SQLite makes them itself.
    """

    place = "%s"
    again = ()
    codes = ()
    write_account = "INSERT INTO account VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET cents = excluded.cents"

    def __init__(self, where, compare):
        self.where, self.compare = where, compare

    def run(self, work):
        while True:
            with closing(self.connect()) as connection, closing(connection.cursor()) as cursor:
                try:
                    cursor.execute(self.begin)
                    done = work(cursor)
                except BaseException as failed:
                    # Nothing is committed, even if the rollback fails.
                    connection.rollback()
                    if isinstance(failed, self.again) and failed.args[0] in self.codes:
                        continue
                    raise
                connection.commit()
                return done

    def balance(self, cursor, account):
        cursor.execute("SELECT cents FROM account WHERE id = %s".replace("%s", self.place), [account])
        found = cursor.fetchone()
        return found[0] if found else 1000000

    def write(self, cursor, account, cents):
        cursor.execute(self.write_account.replace("%s", self.place), [account, cents])


class Sqlite(Bank):
    begin = "BEGIN IMMEDIATE"
    place = "?"

    def __init__(self, where, compare):
        super().__init__(where, compare)
        recipe = (RECIPES / "sqlite" / f"{compare}.sql").read_text()
        tables = recipe.split("-- table\n")[1].split("-- ")[0]
        accounts = "CREATE TABLE account (id TEXT PRIMARY KEY, cents INTEGER NOT NULL) STRICT;"

        def make(cursor):
            cursor.execute("SELECT count(*) FROM sqlite_master WHERE name = 'account'")
            if cursor.fetchone() == (0,):
                for statement in (tables + accounts).split(";")[:-1]:
                    cursor.execute(statement)

        self.run(make)

    def connect(self):
        connection = sqlite3.connect(self.where, timeout=20, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        return connection

    def watermarks(self):
        return upstream.sqlite(self.compare)


class Postgresql(Bank):
    begin = "BEGIN"

    def connect(self):
        import psycopg

        return psycopg.connect(self.where, autocommit=True)

    def watermarks(self):
        return upstream.postgresql(self.compare)


class MariaDb(Bank):
    begin = "START TRANSACTION"
    write_account = "REPLACE INTO account VALUES (%s, %s)"
    # Deadlock: the database has ended this transaction in favour of another one, and nothing was done.
    codes = (1213,)

    def connect(self):
        import pymysql

        self.again = pymysql.err.OperationalError
        return pymysql.connect(unix_socket=self.where, user="root", database="service", autocommit=True)

    def watermarks(self):
        return upstream.mariadb(self.compare)


BANKS = {"sqlite": Sqlite, "postgresql": Postgresql, "mariadb": MariaDb}

"""Compares and raises watermarks in a database, by the statements of the recipes, with drivers that follow PEP 249."""

from __future__ import annotations

import re
import warnings
from typing import Any, Dict, Optional, Tuple, Union

from .fence import NoTransactionError
from .statements import MARIADB, POSTGRESQL, SQLITE

Mark = Union[str, int]
Values = Dict[str, Mark]


class WatermarkStore:
    """The statements of one recipe, in the parameter style of one driver."""

    def __init__(self, write: str, read: str, row: Optional[str] = None, paramstyle: str = "named") -> None:
        """`row` comes before the others, for a database that needs two statements."""
        self._statements = {"exclusive": Statement(write, paramstyle), "shared": Statement(read, paramstyle)}
        self._row = Statement(row, paramstyle) if row else None

    def raise_watermark(self, tx: Any, key: str, mode: str, mark: Mark) -> bool:
        """True if the claim passes; then the watermark is raised in this transaction."""
        _look_for_transaction(tx)
        values = _values(key, mark)
        cursor = tx if hasattr(tx, "rowcount") else tx.cursor()
        try:
            if self._row:
                cursor.execute(*self._row.with_values(values))
            cursor.execute(*self._statements[mode].with_values(values))
            return _changed(cursor.rowcount)
        finally:
            if cursor is not tx:
                cursor.close()

    async def raise_watermark_async(self, tx: Any, key: str, mode: str, mark: Mark) -> bool:
        """The same for asynchronous drivers whose `execute` returns a cursor, such as psycopg's and aiosqlite's."""
        _look_for_transaction(tx)
        values = _values(key, mark)
        if self._row:
            await tx.execute(*self._row.with_values(values))
        cursor = await tx.execute(*self._statements[mode].with_values(values))
        return _changed(cursor.rowcount)

    def raise_mark(self, tx: Any, key: str, mode: str, mark: Mark) -> bool:
        """The former name of `raise_watermark`, for one version."""
        warnings.warn("raise_mark is raise_watermark now", DeprecationWarning, stacklevel=2)
        return self.raise_watermark(tx, key, mode, mark)

    async def raise_mark_async(self, tx: Any, key: str, mode: str, mark: Mark) -> bool:
        """The former name of `raise_watermark_async`, for one version."""
        warnings.warn("raise_mark_async is raise_watermark_async now", DeprecationWarning, stacklevel=2)
        return await self.raise_watermark_async(tx, key, mode, mark)


# The former name, for one version.
Marks = WatermarkStore


class Statement:
    """The statement with parameters in the driver's style."""

    STYLES = {"named": r":\1", "pyformat": r"%(\1)s", "qmark": "?"}
    PARAMETER = re.compile(r":(key|token|number)\b")

    def __init__(self, statement: str, paramstyle: str) -> None:
        if paramstyle not in self.STYLES:
            raise ValueError("paramstyle is one of " + ", ".join(self.STYLES))
        self._text = self.PARAMETER.sub(self.STYLES[paramstyle], statement)
        self._places = self.PARAMETER.findall(statement) if paramstyle == "qmark" else None

    def with_values(self, values: Values) -> Tuple[str, Union[Values, Tuple[Mark, ...]]]:
        if self._places is None:
            # Some drivers refuse a parameter that is not in the statement.
            return self._text, {name: value for name, value in values.items() if name in self._text}
        return self._text, tuple(values[name] for name in self._places)


def postgresql(
    compare: str = "token", paramstyle: str = "pyformat", *, form: Optional[str] = None
) -> WatermarkStore:
    """psycopg and psycopg2; `named` for others. `compare`: as in `Settings`. `form` is its former name."""
    compare = _compared(compare, form)
    return WatermarkStore(POSTGRESQL[compare, "write"], POSTGRESQL[compare, "read"], paramstyle=paramstyle)


def sqlite(compare: str = "token", *, form: Optional[str] = None) -> WatermarkStore:
    compare = _compared(compare, form)
    return WatermarkStore(SQLITE[compare, "write"], SQLITE[compare, "read"])


def mariadb(
    compare: str = "token", paramstyle: str = "pyformat", *, form: Optional[str] = None
) -> WatermarkStore:
    """PyMySQL, mysqlclient, MySQL Connector; `qmark` for MariaDB's own."""
    compare = _compared(compare, form)
    return WatermarkStore(MARIADB[compare, "write"], MARIADB[compare, "read"], MARIADB[compare, "row"], paramstyle)


def _compared(compare: str, form: Optional[str]) -> str:
    if form is None:
        return compare
    warnings.warn("form= is compare= now", DeprecationWarning, stacklevel=3)
    return form


def _values(key: str, mark: Mark) -> Values:
    return {"key": key, "token" if isinstance(mark, str) else "number": mark}


def _changed(rows: int) -> bool:
    if rows not in (0, 1):
        raise RuntimeError(f"the driver tells of {rows} rows, and a claim changes one or none")
    return rows == 1


def _look_for_transaction(tx: Any) -> None:
    """Raises NoTransactionError if the driver reports that there is none, and that the next statement begins none."""
    connection = getattr(tx, "connection", None) or tx
    if _commits_by_itself(connection) and _is_in_transaction(connection) is False:
        raise NoTransactionError("begin a transaction first: this claim would be committed by itself")


def _commits_by_itself(connection: Any) -> bool:
    autocommit = getattr(connection, "autocommit", None)
    if isinstance(autocommit, bool):
        return autocommit
    if hasattr(connection, "get_autocommit"):
        return bool(connection.get_autocommit())
    # The only mode of sqlite3 before Python 3.12, and the default since.
    return getattr(connection, "isolation_level", "") is None


def _is_in_transaction(connection: Any) -> Optional[bool]:
    """None if the driver does not tell."""
    if hasattr(connection, "in_transaction"):
        return bool(connection.in_transaction)
    if hasattr(getattr(connection, "info", None), "transaction_status"):
        return int(connection.info.transaction_status) != 0
    if hasattr(connection, "get_transaction_status"):
        return int(connection.get_transaction_status()) != 0
    if hasattr(connection, "server_status"):
        # SERVER_STATUS_IN_TRANS in the protocol of MySQL.
        return bool(connection.server_status & 1)
    return None

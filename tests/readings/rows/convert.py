"""What Python and SQLite take for one value. Each line of the input has three words in hexadecimal digits: how it is converted, what stands
in the row, and a spelling; a spelling behind `#` is a number. Each line of the output has `=` and the value in such digits, `-` where there
is no such row, or `!` where the spelling is refused."""

import sqlite3
import sys
import unicodedata
import uuid

HOW = {
    "int(id)": int,
    "uuid.UUID(id)": uuid.UUID,
    "casefold()": str.casefold,
    'unicodedata.normalize("NFC", id)': lambda text: unicodedata.normalize("NFC", text),
}

database = sqlite3.connect(":memory:")


def found(column, row, spelling):
    """The row with this value in a column that is declared so."""
    database.executescript(f"DROP TABLE IF EXISTS stock; CREATE TABLE stock (id {column}, seen INTEGER DEFAULT 0);")
    database.execute("INSERT INTO stock (id) VALUES (?)", (row,))
    changed = database.execute("UPDATE stock SET seen = seen + 1 WHERE id = ?", (spelling,)).rowcount
    return "=" + str(row).encode().hex() if changed == 1 else "-"


def value(word):
    text = bytes.fromhex(word.removeprefix("#")).decode()
    return int(text) if word.startswith("#") else text


for line in sys.stdin:
    how, row, spelling = map(value, line.split(" "))
    try:
        print("=" + str(HOW[how](spelling)).encode().hex() if how in HOW else found(how, row, spelling))
    except (ValueError, OverflowError):
        print("!")

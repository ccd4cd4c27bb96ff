"""How a service in Python reads a path, a query or a body: as reader.php, by what comes with the language."""

import json
import sys
from urllib.parse import parse_qs, unquote_to_bytes, urlsplit


def told(value):
    if value is None:
        return "-"
    if isinstance(value, (dict, list)):
        return "*"
    # As the key of a dict: `True` and 1.0 are the same one as 1.
    if isinstance(value, (int, float)) and value == int(value):
        value = int(value)
    return "=" + str(value).encode("utf-8", "surrogatepass").hex()


def path(text, _):
    return "=" + unquote_to_bytes(urlsplit(text).path).hex()


def query(text, name):
    values = parse_qs(text, keep_blank_values=True).get(name, [None])
    return told(values[0] if len(values) == 1 else values)


def body(text, name):
    value = json.loads(text.encode())
    return told(value.get(name) if isinstance(value, dict) else None)


READ = {"path": path, "query": query, "body": body}[sys.argv[1]]
for line in sys.stdin:
    try:
        print(READ(bytes.fromhex(line).decode(), sys.argv[2]))
    except (ValueError, OverflowError, RecursionError):
        print("!")

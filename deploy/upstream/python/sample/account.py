"""A service with accounts, each of whose transactions claims the fence.

account.py wsgi|asgi token|number sqlite|postgresql|mariadb WHERE [PORT]
"""

import asyncio
import io
import json
import socket
import sys
import time
from socketserver import ThreadingMixIn
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from banks import BANKS
from fencegate_upstream import AsgiFence, Settings, WsgiFence

# --- page
def debit(fence, account, order, work_ms):
    """First the claim, then the effect. Whatever is raised on the way rolls back both."""

    def work(tx):
        fence.claim(tx)
        left = bank.balance(tx, account) - order["amount"]
        time.sleep(work_ms / 1000)
        bank.write(tx, account, left)
        if "to" in order:
            bank.write(tx, order["to"], bank.balance(tx, order["to"]) + order["amount"])
        return left

    return bank.run(work)


def read(fence, account):
    """With a fence where a gateway has made it a read under one, and without where it comes as it is."""

    def work(tx):
        if fence:
            fence.claim(tx)
        return bank.balance(tx, account)

    return bank.run(work)


def service():
    return WsgiFence(application, bank.watermarks(), Settings(compare=bank.compare, unfenced=["GET"]))
# --- page


def application(environ, start_response):
    """POST /v1/accounts/{id}/debit {"amount": cents, "to": id}, GET /v1/accounts/{id}"""
    status, said = answered(environ, environ.get("fencegate.fence"))
    start_response(status, [("Content-Type", "application/json")])
    return [json.dumps(said).encode()]


def answered(environ, fence):
    _, accounts, account, verb = (environ["PATH_INFO"].strip("/").split("/") + [""] * 4)[:4]
    if accounts != "accounts" or verb not in ("", "debit"):
        return "404 Not Found", "nothing is here"
    order = {}
    if environ["REQUEST_METHOD"] == "POST":
        try:
            order = json.loads(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)))
            assert isinstance(order["amount"], int) and order["amount"] > 0
        except (ValueError, TypeError, KeyError, AssertionError):
            return "400 Bad Request", "an amount in cents is wanted"
    # The gateway has not locked this account for the request.
    touched = {f"account/{one}" for one in (account, order.get("to")) if one}
    if fence and not touched <= set(fence.keys):
        return "403 Forbidden", "the fence is of another account"
    if verb == "debit":
        work = parse_qs(environ["QUERY_STRING"]).get("work_ms", ["0"])
        return "200 OK", {"balance": debit(fence, account, order, int(work[0]))}
    return "200 OK", {"balance": read(fence, account)}


async def asgi_application(scope, receive, send):
    """The same, on a thread for blocking work."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    environ = {
        "wsgi.input": io.BytesIO(body),
        "CONTENT_LENGTH": str(len(body)),
        "PATH_INFO": scope["path"],
        "REQUEST_METHOD": scope["method"],
        "QUERY_STRING": scope["query_string"].decode(),
        "fencegate.fence": scope.get("fencegate.fence"),
    }
    heads = []
    told = await asyncio.to_thread(application, environ, lambda *head: heads.append(head))
    ((status, fields),) = heads
    headers = [(name.lower().encode(), value.encode()) for name, value in fields]
    await send({"type": "http.response.start", "status": int(status[:3]), "headers": headers})
    await send({"type": "http.response.body", "body": told[0]})


class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 256


class Handler(WSGIRequestHandler):
    """Drops fields with `_`, which would become the variable of another field, as gunicorn does."""

    def get_environ(self):
        for name in [name for name in self.headers if "_" in name]:
            del self.headers[name]
        return super().get_environ()

    def log_message(self, *_):
        """Logs nothing, because the log is not read."""


def serve_wsgi():
    server = Server(("127.0.0.1", port), Handler)
    server.set_app(service())
    print(f"listening on 127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


def serve_asgi():
    import uvicorn

    listener = socket.create_server(("127.0.0.1", port), backlog=256)
    print("listening on 127.0.0.1:%d" % listener.getsockname()[1], flush=True)
    fenced = AsgiFence(asgi_application, bank.watermarks(), Settings(compare=bank.compare, unfenced=["GET"]))
    uvicorn.Server(uvicorn.Config(fenced, log_level="warning", lifespan="off")).run([listener])


if __name__ == "__main__":
    kind, compare, database, where, *rest = sys.argv[1:]
    port = int(rest[0]) if rest else 0
    bank = BANKS[database](where, compare)
    {"wsgi": serve_wsgi, "asgi": serve_asgi}[kind]()

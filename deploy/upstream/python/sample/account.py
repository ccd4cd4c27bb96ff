"""A service with accounts, each of whose transactions claims the fence.

account.py wsgi|asgi token|number sqlite|postgresql|mariadb WHERE
"""

import asyncio
import socket
import sys
import time
from socketserver import ThreadingMixIn
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from banks import BANKS
from fencegate_upstream import AsgiFence, Settings, WsgiFence

# --- page
def debit(fence, account, milliseconds):
    """First the claim, then the effect. Whatever is raised on the way rolls back both."""

    def work(tx):
        fence.claim(tx)
        time.sleep(milliseconds / 1000)
        bank.take(tx, account)
        return bank.balance(tx, account)

    return bank.run(work)


def application(environ, start_response):
    """POST /accounts/{id}/debit, GET /accounts/{id}"""
    fence = environ.get("fencegate.fence")
    accounts, account, verb = (environ["PATH_INFO"][1:].split("/", 2) + ["", ""])[:3]
    status, told = "200 OK", ""
    if accounts != "accounts" or (fence and f"account/{account}" not in fence.keys):
        status, told = "404 Not Found", "nothing is here for this fence"
    elif environ["REQUEST_METHOD"] == "POST" and verb == "debit":
        work = parse_qs(environ["QUERY_STRING"]).get("milliseconds", ["0"])
        told = debit(fence, account, int(work[0]))
    else:
        told = read(fence, account)
    start_response(status, [("Content-Type", "text/plain")])
    return [f"{told}\n".encode()]


def service():
    return WsgiFence(application, bank.marks(), Settings(compare=bank.form, unfenced=["GET"]))
# --- page


def read(fence, account):
    """With a fence where a gateway has made it a read under one, and without where it comes as it is."""

    def work(tx):
        if fence:
            fence.claim(tx)
        return bank.balance(tx, account)

    return bank.run(work)


async def asgi_application(scope, receive, send):
    """The same, on a thread that may wait."""
    environ = {
        "PATH_INFO": scope["path"],
        "REQUEST_METHOD": scope["method"],
        "QUERY_STRING": scope["query_string"].decode(),
        "fencegate.fence": scope.get("fencegate.fence"),
    }
    heads = []
    body = await asyncio.to_thread(application, environ, lambda *head: heads.append(head))
    ((status, fields),) = heads
    headers = [(name.lower().encode(), value.encode()) for name, value in fields]
    await send({"type": "http.response.start", "status": int(status[:3]), "headers": headers})
    await send({"type": "http.response.body", "body": body[0]})


class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 256


class Handler(WSGIRequestHandler):
    """Drops what would become the variable of another field, as gunicorn does."""

    def get_environ(self):
        for name in [name for name in self.headers if "_" in name]:
            del self.headers[name]
        return super().get_environ()

    def log_message(self, *_):
        """Nobody reads it."""


def serve_wsgi():
    server = Server(("127.0.0.1", 0), Handler)
    server.set_app(service())
    print(f"listening on 127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


def serve_asgi():
    import uvicorn

    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    print("listening on 127.0.0.1:%d" % listener.getsockname()[1], flush=True)
    fenced = AsgiFence(asgi_application, bank.marks(), Settings(compare=bank.form, unfenced=["GET"]))
    uvicorn.Server(uvicorn.Config(fenced, log_level="warning", lifespan="off")).run([listener])


if __name__ == "__main__":
    _, kind, form, database, where = sys.argv
    bank = BANKS[database](where, form)
    bank.make()
    {"wsgi": serve_wsgi, "asgi": serve_asgi}[kind]()

"""A service that refuses what comes too late to be begun, and compares nothing.

deadline.py wsgi|asgi on|off FILE [PORT [WORKERS]]

Each execution is a line in FILE. `off` leaves the middleware out. WORKERS processes share one listening socket, and each
serves one request at a time: what comes meanwhile waits in the socket's line.
"""

import os
import socket
import sys
import threading
import time
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from fencegate_upstream import AsgiDeadline, WsgiDeadline

# --- page
def service():
    return WsgiDeadline(application, unfenced=["GET"])


def asynchronous_service():
    return AsgiDeadline(asgi_application, unfenced=["GET"])
# --- page


def application(environ, start_response):
    """Executes a request: one line, and `?work_ms=` of time."""
    executed(environ["PATH_INFO"])
    time.sleep(int(parse_qs(environ["QUERY_STRING"]).get("work_ms", ["0"])[0]) / 1000)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"done\n"]


async def asgi_application(scope, receive, send):
    executed(scope["path"])
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"done\n"})


def executed(path):
    with open(file, "a") as lines:
        lines.write(path + "\n")


class Handler(WSGIRequestHandler):
    """Drops fields with `_`, which would become the variable of another field, as gunicorn does."""

    def get_environ(self):
        for name in [name for name in self.headers if "_" in name]:
            del self.headers[name]
        return super().get_environ()

    def log_message(self, *_):
        """Logs nothing, because the log is not read."""


def serve_wsgi(listener, workers):
    reads, writes = os.pipe()
    for _ in range(workers - 1):
        if os.fork() == 0:
            # A worker ends with its parent, which alone keeps this pipe open.
            os.close(writes)
            threading.Thread(target=lambda: os.read(reads, 1) or os._exit(0), daemon=True).start()
            break
    server = WSGIServer(listener.getsockname(), Handler, bind_and_activate=False)
    server.socket = listener
    server.server_name, server.server_port = "localhost", listener.getsockname()[1]
    server.setup_environ()
    server.set_app(service() if mode == "on" else application)
    server.serve_forever()


def serve_asgi(listener, _workers):
    import uvicorn

    app = asynchronous_service() if mode == "on" else asgi_application
    uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off")).run([listener])


if __name__ == "__main__":
    kind, mode, file, *rest = sys.argv[1:]
    listener = socket.create_server(("127.0.0.1", int(rest[0]) if rest else 0), backlog=256)
    print("listening on 127.0.0.1:%d" % listener.getsockname()[1], flush=True)
    {"wsgi": serve_wsgi, "asgi": serve_asgi}[kind](listener, int(rest[1]) if rest[1:] else 1)

"""A service that takes kazoo's lock and calls another service while it holds it: foreign.py KIND SERVER PATH URL KEY PAUSE,
until it is killed. KIND is lock, write or read; PAUSE are milliseconds between two turns."""

import http.client
import sys
import time
import urllib.parse

from kazoo.client import KazooClient

# The base of the era, as `fencegate era show` prints it.
BASE = 0

kind, server, path, url, key, pause = sys.argv[1:]
zk = KazooClient(hosts=server, timeout=2.0)
zk.start()
kinds = {"lock": zk.Lock, "write": zk.WriteLock, "read": zk.ReadLock}
# One lock object for all turns, as in services.
lock = kinds[kind](path)
address = urllib.parse.urlsplit(url)
print("UP", flush=True)


def call(number):
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=10)
    fields = {
        "Fencing-Key": key,
        "Fencing-Mode": "shared" if kind == "read" else "exclusive",
        "Fencing-Token": f"v1-{number:016x}-00000000-00000001",
    }
    connection.request("POST", address.path, headers=fields)
    status = connection.getresponse().status
    connection.close()
    print("HELD", status, flush=True)


while True:
    try:
        # As in ZOOKEEPER.md.
        with lock:
            stat = zk.exists(f"{lock.path}/{lock.node}")
            number = BASE + stat.czxid
            call(number)
        # Until here.
    except Exception as trouble:
        print("TROUBLE", type(trouble).__name__, trouble, flush=True)
        if lock.is_acquired:
            lock.release()
    time.sleep(int(pause) / 1000)

"""A client: takes a lock, asks once more whether it has it, calls a service, gives the lock back, and again, until it is killed.

    turns.py KIND SERVER SERVICE NAME

KIND is kazoo, redis, redlock, etcd or postgres, and SERVER where that listens: host and port, with commas between several.
With KIND `none` it takes no lock: whoever it calls does.

The service tells how many milliseconds it shall stand still the next time that it has the lock. It says HELD when it does.
"""

import base64
import http.client
import json
import sys
import threading
import time
import urllib.parse

LEASE = 2
KEY = "account/7"


class Nothing:
    def __init__(self, server):
        pass

    def take(self):
        pass

    def has(self):
        return True

    def give(self):
        pass

    def mend(self):
        pass


class Kazoo:
    """A listener tells of a session that is in doubt: https://kazoo.readthedocs.io/en/latest/basic_usage.html#listening-for-connection-events
    The lock, one for all turns: https://kazoo.readthedocs.io/en/latest/api/recipe/lock.html"""

    def __init__(self, server):
        from kazoo.client import KazooClient, KazooState

        self.connected, self.doubted = KazooState.CONNECTED, False
        self.zk = KazooClient(hosts=server, timeout=LEASE)
        self.zk.add_listener(self.told)
        self.zk.start()
        self.lock = self.zk.Lock(f"/duel/kazoo/{KEY}")

    def told(self, state):
        self.doubted |= state != self.connected

    def take(self):
        self.doubted = False
        self.lock.acquire()

    def has(self):
        return self.lock.is_acquired and not self.doubted

    def give(self):
        self.lock.release()

    def mend(self):
        if self.lock.is_acquired:
            self.lock.release()


class Redis:
    """With a life, and the sleep between tries that it has by itself: https://redis.readthedocs.io/en/stable/lock.html
    Whoever holds it may ask `owned()`."""

    def __init__(self, server):
        import redis

        host, port = server.split(":")
        self.lock = redis.Redis(host=host, port=int(port)).lock(KEY, timeout=LEASE)

    def take(self):
        self.lock.acquire()

    def has(self):
        return self.lock.owned()

    def give(self):
        self.lock.release()

    def mend(self):
        pass


class Redlock:
    """On most of five servers that know nothing of each other: https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/
    As pottery has it, with a life and `locked()`: https://github.com/brainix/pottery#redlock"""

    def __init__(self, servers):
        import pottery
        import redis

        addresses = [server.split(":") for server in servers.split(",")]
        masters = {redis.Redis(host=host, port=int(port), socket_timeout=1) for host, port in addresses}
        self.lock = pottery.Redlock(key=KEY, masters=masters, auto_release_time=LEASE)

    def take(self):
        self.lock.acquire()

    def has(self):
        return self.lock.locked() > 0

    def give(self):
        self.lock.release()

    def mend(self):
        pass


class Etcd:
    """The lock service of etcd over its JSON gateway: https://etcd.io/docs/v3.4/dev-guide/api_concurrency_reference_v3/ and
    https://etcd.io/docs/v3.4/dev-guide/api_grpc_gateway/. A lease for each client, renewed after a third of its life as a
    session of the Go library does it. Whether the key that Lock has given is there tells whether the lock is held."""

    def __init__(self, server):
        self.server, self.lease, self.key = server, None, None
        self.connection = http.client.HTTPConnection(server, timeout=60)
        self.mend()
        threading.Thread(target=self.renew, daemon=True).start()

    def renew(self):
        connection = http.client.HTTPConnection(self.server, timeout=60)
        while True:
            time.sleep(LEASE / 3)
            try:
                ask(connection, "/v3/lease/keepalive", {"ID": self.lease})
            except Exception:
                connection.close()

    def take(self):
        name = base64.b64encode(KEY.encode()).decode()
        self.key = ask(self.connection, "/v3/lock/lock", {"name": name, "lease": self.lease})["key"]

    def has(self):
        return ask(self.connection, "/v3/kv/range", {"key": self.key}).get("count") == "1"

    def give(self):
        ask(self.connection, "/v3/lock/unlock", {"key": self.key})

    def mend(self):
        self.connection.close()
        self.lease = ask(self.connection, "/v3/lease/grant", {"TTL": LEASE})["ID"]


class Postgres:
    """An advisory lock that a transaction holds to its end: https://www.postgresql.org/docs/current/explicit-locking.html#ADVISORY-LOCKS
    The server ends a session that is idle in its transaction for longer than `idle_in_transaction_session_timeout`, so that
    it holds no lock for ever: https://www.postgresql.org/docs/current/runtime-config-client.html#GUC-IDLE-IN-TRANSACTION-SESSION-TIMEOUT"""

    def __init__(self, server):
        self.url = server
        self.mend()

    def run(self, statement):
        with self.connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchone()

    def take(self):
        self.run("SELECT pg_advisory_xact_lock(7)")

    def has(self):
        return self.run("SELECT true FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = pg_backend_pid()") == (True,)

    def give(self):
        self.connection.commit()

    def mend(self):
        import psycopg2

        self.connection = psycopg2.connect(self.url)


def ask(connection, path, question):
    connection.request("POST", path, json.dumps(question), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    read = answer.read()
    if answer.status != 200:
        raise RuntimeError(f"{path}: {answer.status} {read!r}")
    return json.loads(read)


class Service:
    def __init__(self, url, name):
        address = urllib.parse.urlsplit(url)
        self.path, self.name = address.path, name
        self.connection = http.client.HTTPConnection(address.hostname, address.port, timeout=60)

    def call(self, since):
        fields = {"Holder": self.name, "Held-Since": str(since), "Content-Type": "application/json"}
        try:
            self.connection.request("POST", self.path, "{}", fields)
            answer = self.connection.getresponse()
            told = answer.read()
        except Exception:
            self.connection.close()
            raise
        if answer.status != 200:
            raise RuntimeError(f"{answer.status} {told[:200]!r}")
        return int(told) / 1000 if told.isdigit() else 0


def main():
    kind, server, url, name = sys.argv[1:]
    kinds = {"none": Nothing, "kazoo": Kazoo, "redis": Redis, "redlock": Redlock, "etcd": Etcd, "postgres": Postgres}
    lock, service, stand = kinds[kind](server), Service(url, name), 0
    print("UP", flush=True)
    while True:
        try:
            lock.take()
            since = time.monotonic_ns()
            try:
                if not lock.has():
                    continue
                if stand:
                    print("HELD", flush=True)
                    time.sleep(stand)
                    stand = 0
                stand = service.call(since)
            finally:
                lock.give()
        except Exception as trouble:
            print("TROUBLE", type(trouble).__name__, trouble, flush=True)
            time.sleep(0.05)
            try:
                lock.mend()
            except Exception as more:
                print("TROUBLE", type(more).__name__, more, flush=True)


main()

"""Takes a lock of Redis or etcd, calls the service while it holds it, gives it back, and again.

    take.py redis|etcd SERVER SERVICE KEYS THREADS FILE SECONDS

Says UP when it does, and counts from the time that is then written to FILE: milliseconds since 1970, so that several
processes count at the same time. Until then it warms up.
"""

import base64
import http.client
import json
import os
import random
import sys
import threading
import time


class Redis:
    """The lock of redis-py, with the life that its documentation asks for and the sleep between tries that it has by
    itself: https://redis.readthedocs.io/en/stable/lock.html"""

    clients = None

    def __init__(self, server):
        import redis

        host, port = server.split(":")
        Redis.clients = Redis.clients or redis.Redis(host=host, port=int(port))

    def work(self, key, call):
        with Redis.clients.lock(f"lock/{key}", timeout=10):
            call()


class Etcd:
    """The lock service of etcd, whose waiters stand in line, over its JSON gateway; a lease for each client, renewed as
    a session of the Go library does it, which lives for 60 seconds:
    https://etcd.io/docs/v3.4/dev-guide/api_concurrency_reference_v3/ and https://etcd.io/docs/v3.4/dev-guide/api_grpc_gateway/"""

    LIFE = 60

    def __init__(self, server):
        self.connection = http.client.HTTPConnection(server, timeout=60)
        self.lease = self.ask("/v3/lease/grant", {"TTL": self.LIFE})["ID"]
        self.renewed = time.monotonic()

    def ask(self, path, question):
        return json.loads(post(self.connection, path, json.dumps(question)))

    def work(self, key, call):
        if time.monotonic() > self.renewed + self.LIFE / 3:
            self.ask("/v3/lease/keepalive", {"ID": self.lease})
            self.renewed = time.monotonic()
        name = base64.b64encode(f"lock/{key}".encode()).decode()
        held = self.ask("/v3/lock/lock", {"name": name, "lease": self.lease})["key"]
        try:
            call()
        finally:
            self.ask("/v3/lock/unlock", {"key": held})


def post(connection, path, body):
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    read = answer.read()
    if answer.status != 200:
        raise RuntimeError(f"{path}: {answer.status} {read!r}")
    return read


def main():
    kind, server, service, keys, threads, file, seconds = sys.argv[1:]
    keys, window = int(keys), float(seconds)
    start = end = float("inf")
    counts = [0] * int(threads)
    locks = [{"redis": Redis, "etcd": Etcd}[kind](server) for _ in counts]

    # `start` and `end` become known while this runs.
    def take(number):
        connection = http.client.HTTPConnection(service, timeout=60)
        while time.time() < end:
            key = random.randrange(keys)
            locks[number].work(key, lambda: post(connection, f"/once/{key}", '{"amount": 1}'))
            if start <= time.time() < end:
                counts[number] += 1

    def watched(number):
        try:
            take(number)
        except Exception as trouble:
            print(f"TROUBLE {trouble!r}", flush=True)
            os._exit(1)

    running = [threading.Thread(target=watched, args=(number,)) for number in range(len(counts))]
    for thread in running:
        thread.start()
    print("UP", flush=True)
    while not os.path.exists(file):
        time.sleep(0.01)
    with open(file) as told:
        begin = int(told.read()) / 1000
    end = begin + window
    start = begin
    for thread in running:
        thread.join()
    print(f"RESULT {sum(counts)}", flush=True)


main()

"""Takes a lock as many programs do: it makes one ephemeral node, and whoever is told that the node is there waits for it to go.

Under the lock it writes to the service that gateways write to, with the number of its node. One line per lock."""

import http.client
import sys
import threading
import time

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NodeExistsError

servers, path, door, key, target = sys.argv[1:6]
# The base of an installation that never had another era.
BASE = 0
zookeeper = KazooClient(hosts=servers, timeout=2.0)
zookeeper.start()


def take():
    while True:
        gone = threading.Event()
        try:
            _, ours = zookeeper.create(path, b"plain", ephemeral=True, include_data=True)
            return ours
        except NodeExistsError:
            if zookeeper.exists(path, watch=lambda event: gone.set()):
                gone.wait(1)


def give_back(ours):
    # After a pause the session may be a new one, and the node may belong to another holder: all holders use one name.
    found = zookeeper.exists(path)
    if found and found.czxid == ours.czxid:
        zookeeper.delete(path)
    else:
        print("lost", flush=True)


while True:
    try:
        ours = take()
        # The number fences the request: a service that compares numbers refuses late requests.
        number = BASE + ours.czxid
        service = http.client.HTTPConnection(door, timeout=10)
        token = f"v1-{number:016x}-00000000-00000001"
        service.request("POST", target, headers={"Fencing-Key": key, "Fencing-Token": token})
        answer = service.getresponse()
        answer.read()
        service.close()
        give_back(ours)
        print("held", answer.status, flush=True)
        time.sleep(0.02)
    except (KazooException, OSError) as trouble:
        print("trouble", repr(trouble), flush=True)
        time.sleep(0.05)

"""Holds a lock through a gateway with httpx: acquires, calls, renews, loses, is refused, releases.

FENCEGATE_URL, FENCEGATE_TOKEN, and KEY: `account/7`, where the policy fences `POST /pay/7` by it.
"""

import os
import time

import httpx

KEY = os.environ["KEY"]
gateway = httpx.Client(base_url=os.environ["FENCEGATE_URL"], timeout=30)


def now():
    """A clock that goes on while the machine sleeps; `time.monotonic` does not."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    def __init__(self, ttl_ms, wait_ms):
        body = {"keys": [KEY], "ttl_ms": ttl_ms, "wait_ms": wait_ms}
        bearer = {"Authorization": "Bearer " + os.environ["FENCEGATE_TOKEN"]}
        document = self._ask("POST", "", headers=bearer, json=body)
        self.path = "/" + document["reference"]
        self.shown = {"Fencing-Lease": document["lease"]}
        print("held", document["token"])

    def _ask(self, method, path, **more):
        sent = now()
        answer = gateway.request(method, "/.fencegate/v1/leases" + path, **more)
        document = answer.raise_for_status().json()
        # The promised time counts from the moment in which the question was sent.
        self.until = sent + document["held_for_ms"] / 1000
        return document

    def renew(self):
        self._ask("POST", self.path + "/renew", headers=self.shown)
        print("renewed")

    def outside(self):
        """Work that does not go through the gateway: no step begins when the promised time is over."""
        steps = 0
        while steps < 3 and now() < self.until:
            time.sleep(0.01)
            steps += 1
        print("outside", steps)

    def call(self):
        """Work that goes through the gateway: the gateway stamps the next token on it, or refuses it."""
        answer = gateway.post("/pay/" + KEY.partition("/")[2], headers=self.shown)
        word = answer.headers["Fencing-Token"] if answer.is_success else answer.json()["reason"]
        print("call", answer.status_code, word)

    def release(self):
        gateway.delete("/.fencegate/v1/leases" + self.path, headers=self.shown).raise_for_status()
        print("released")


first = Lease(ttl_ms=2000, wait_ms=0)
first.outside()
first.call()
first.call()
first.renew()

# Nothing renews the lease from here, as if this process slept. Another client gets the lock when the ttl is over.
second = Lease(ttl_ms=10_000, wait_ms=8000)
first.outside()
first.call()

# The second lease has waited, so its promised time may be over. The answer to a renewal decides.
second.renew()
second.call()
second.release()

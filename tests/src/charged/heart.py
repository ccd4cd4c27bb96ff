"""A command that does nothing but live: it writes when it began, and again and again that it is there still.

    heart.py FILE MANNER

One line in FILE: its token, the first and the last moment at which it ran, in nanoseconds of CLOCK_BOOTTIME. MANNER `stubborn`
is deaf to SIGTERM, `meek` is not; `brief` ends by itself after 30 ms. Of a `headless` one the first thread has ended, so that it
looks dead, and another one lives on. Behind the moments stands its number.
"""

import ctypes
import os
import signal
import sys
import threading
import time

file, manner = sys.argv[1:]
if manner in ("stubborn", "headless"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
token = os.environ["FENCING_TOKEN"]


def now():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


began = now()
out = os.open(file, os.O_WRONLY | os.O_CREAT, 0o600)


def beats():
    while manner != "brief" or now() - began < 30_000_000:
        os.pwrite(out, f"{token} {began:020} {now():020} {os.getpid()}\n".encode(), 0)
        time.sleep(0.0005)


if manner == "headless":
    threading.Thread(target=beats).start()
    exit_thread = {"x86_64": 60, "aarch64": 93}[os.uname().machine]
    ctypes.CDLL(None).syscall(exit_thread, 0)
beats()

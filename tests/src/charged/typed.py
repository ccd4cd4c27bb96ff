"""What is typed at a terminal while a command runs under a lock: Ctrl-C reaches it once, Ctrl-Z does not keep the lock for ever.

    typed.py BINARY POLICY FOLDER HEART

Prints `as told` where all of it is so.
"""

import os
import pty
import re
import select
import sys
import time

binary, policy, folder, heart = sys.argv[1:]

COUNTS = os.path.join(folder, "counts.py")
with open(COUNTS, "w") as file:
    file.write(
        """
import signal, sys, time
got = 0
def count(*_):
    global got
    got += 1
signal.signal(signal.SIGINT, count)
print("u" + "p", flush=True)
while not got:
    time.sleep(0.01)
time.sleep(0.5)
sys.exit(40 + got)
"""
    )

pid, fd = pty.fork()
if pid == 0:
    os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
seen = ""


def read(what, seconds=20):
    global seen
    late = time.monotonic() + seconds
    while not (found := re.search(what, seen)):
        assert time.monotonic() < late, f"no {what!r} in {seen!r}"
        if select.select([fd], [], [], 0.1)[0]:
            seen += os.read(fd, 65536).decode(errors="replace")
    seen = seen[found.end() :]
    return found


def line(text):
    os.write(fd, (text + "\n").encode())


def code():
    line("echo rc'='$?")
    return int(read(r"rc=(\d+)")[1])


def lives(life):
    """Some process writes this life, and is not only waited for."""
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{process}/cmdline") as said, open(f"/proc/{process}/stat") as stat:
                arguments = said.read().split("\0")
                if arguments[0] == "python3" and life in arguments and ") Z" not in stat.read():
                    return True
        except OSError:
            pass
    return False


def awaits(what, wanted, seconds=20):
    late = time.monotonic() + seconds
    while what() != wanted:
        assert time.monotonic() < late, seen
        time.sleep(0.01)


lock = f"{binary} lock typed -c {policy} --grace 250ms"

# Ctrl-C is the command's, and comes once.
line(f"{lock} -- python3 {COUNTS}")
read("up")
os.write(fd, b"\x03")
assert (got := code()) == 41, got

# Stopped and continued within the proof: it goes on.
line(f"{lock} -- python3 {COUNTS}")
read("up")
os.write(fd, b"\x1a")
read("Stopped")
line("fg")
read("fencegate")
time.sleep(0.3)
os.write(fd, b"\x03")
assert (got := code()) == 41, got

# Stopped for longer: the command is ended, and its lock is another's.
life = os.path.join(folder, "life")
line(f"{lock} -- python3 {heart} {life} meek")
awaits(lambda: os.path.exists(life) and lives(life), True)
os.write(fd, b"\x1a")
read("Stopped")
awaits(lambda: lives(life), False)
line(f"{binary} lock typed -c {policy} --wait 20s -- echo n'ex't")
read("next")
line("fg")
read("FG0622")
assert (got := code()) == 123, got
print("as told")

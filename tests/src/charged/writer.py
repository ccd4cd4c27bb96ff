"""A leader that writes: it shows its token to a register that compares, again and again.

    writer.py REGISTER

REGISTER is a folder: `mark` has the largest token that was shown, `refused` a line for each smaller one that came later. Who leads
writes its name into `leads/` first.
"""

import fcntl
import os
import sys
import time

register = sys.argv[1]
token = os.environ["FENCING_TOKEN"]


def now():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


with open(os.path.join(register, "leads", token), "w") as mine:
    mine.write(f"{now()}\n")
while True:
    with open(os.path.join(register, "mark"), "a+") as mark:
        fcntl.flock(mark, fcntl.LOCK_EX)
        mark.seek(0)
        largest = mark.read()
        if token < largest:
            with open(os.path.join(register, "refused"), "a") as refused:
                refused.write(f"{token} after {largest}\n")
        elif token > largest:
            mark.truncate(0)
            mark.write(token)
            mark.flush()
    time.sleep(0.001)

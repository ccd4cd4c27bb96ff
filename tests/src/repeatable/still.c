/* Stands before the C library in one process, so that each run of it is the same: random numbers follow each other from the
   same one on, for each thread; all clocks stand; and what is written counts as on the disk. */
#include <stdint.h>
#include <string.h>
#include <sys/time.h>
#include <sys/types.h>
#include <time.h>

#define NOW 1790000000

static __thread uint64_t state;

/* SplitMix64. */
static uint64_t next(void)
{
    uint64_t z = (state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

ssize_t getrandom(void *place, size_t length, unsigned flags)
{
    (void)flags;
    for (size_t done = 0; done < length; done += sizeof(uint64_t)) {
        uint64_t number = next();
        size_t left = length - done;
        memcpy((char *)place + done, &number, left < sizeof number ? left : sizeof number);
    }
    return (ssize_t)length;
}

int getentropy(void *place, size_t length)
{
    getrandom(place, length, 0);
    return 0;
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    (void)clock;
    time->tv_sec = NOW;
    time->tv_nsec = 0;
    return 0;
}

time_t time(time_t *place)
{
    if (place)
        *place = NOW;
    return NOW;
}

int gettimeofday(struct timeval *restrict place, void *restrict zone)
{
    (void)zone;
    place->tv_sec = NOW;
    place->tv_usec = 0;
    return 0;
}

int fsync(int file)
{
    (void)file;
    return 0;
}

int fdatasync(int file)
{
    (void)file;
    return 0;
}

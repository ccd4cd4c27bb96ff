/* Stands before the C library in one process: its wall clock and its boot clock are moved by what a mapped file says. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

/* Nanoseconds. Whoever steps the clocks writes them while the process runs. */
struct moved {
    volatile int64_t wall, boot;
};

static const struct moved nowhere, *moved = &nowhere;

/* Without the file nothing could be tested: the process does not start. */
__attribute__((constructor)) static void map_file(void)
{
    const char *name = getenv("STEPPED_CLOCK");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    void *place = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *moved, PROT_READ, MAP_SHARED, file, 0);
    if (place == MAP_FAILED)
        abort();
    close(file);
    moved = place;
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    int failed = (int)syscall(SYS_clock_gettime, clock, time);
    int64_t by = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE ? moved->wall
        : clock == CLOCK_BOOTTIME                                          ? moved->boot
                                                                           : 0;
    if (failed || !by)
        return failed;
    int64_t nanos = time->tv_nsec + by % SECOND;
    int64_t carry = nanos < 0 ? -1 : nanos >= SECOND;
    time->tv_sec += by / SECOND + carry;
    time->tv_nsec = nanos - carry * SECOND;
    return 0;
}

time_t time(time_t *place)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (place)
        *place = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *restrict place, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    place->tv_sec = now.tv_sec;
    place->tv_usec = now.tv_nsec / 1000;
    return 0;
}

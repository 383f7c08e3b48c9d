/* LD_PRELOAD library that shifts clocks ahead of the kernel's by the offset in a file. turned_clock.py is its other half.
 *
 * A process reads the shifted clock and passes absolute times based on it to the kernel, whose own clocks are unchanged. So
 * functions that take an absolute time subtract the offset. Durations (epoll_wait, poll, nanosleep) are unchanged.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NANOSECONDS 1000000000L

static const int64_t nothing;
/* Offset of the clocks in nanoseconds. */
static const volatile int64_t *ahead = &nothing;

static int (*true_clock_gettime)(clockid_t, struct timespec *);
static int (*true_clock_nanosleep)(clockid_t, int, const struct timespec *, struct timespec *);
static int (*true_cond_timedwait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
static int (*true_cond_clockwait)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
static int (*true_sem_timedwait)(sem_t *, const struct timespec *);
static int (*true_sem_clockwait)(sem_t *, clockid_t, const struct timespec *);
static long (*true_syscall)(long, ...);

__attribute__((constructor)) static void prepare(void)
{
    true_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    true_clock_nanosleep = dlsym(RTLD_NEXT, "clock_nanosleep");
    /* Older libraries have two versions of this function, and dlsym returns the obsolete one. */
    true_cond_timedwait = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!true_cond_timedwait)
        true_cond_timedwait = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    true_cond_clockwait = dlsym(RTLD_NEXT, "pthread_cond_clockwait");
    true_sem_timedwait = dlsym(RTLD_NEXT, "sem_timedwait");
    true_sem_clockwait = dlsym(RTLD_NEXT, "sem_clockwait");
    true_syscall = dlsym(RTLD_NEXT, "syscall");
    const char *path = getenv("TURNED_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *page = mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED)
        ahead = page;
}

static struct timespec moved(const struct timespec *time, int64_t nanoseconds)
{
    int64_t rest = time->tv_nsec + nanoseconds % NANOSECONDS;
    struct timespec result = {time->tv_sec + nanoseconds / NANOSECONDS, rest};
    if (rest >= NANOSECONDS) {
        result.tv_sec += 1;
        result.tv_nsec -= NANOSECONDS;
    } else if (rest < 0) {
        result.tv_sec -= 1;
        result.tv_nsec += NANOSECONDS;
    }
    return result;
}

static int is_turned(clockid_t clock)
{
    return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE;
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    /* The constructor of another library may run before ours. */
    int failed = true_clock_gettime ? true_clock_gettime(clock, time) : (int)syscall(SYS_clock_gettime, clock, time);
    if (!failed && is_turned(clock))
        *time = moved(time, *ahead);
    return failed;
}

time_t time(time_t *result)
{
    struct timespec now = {0, 0};
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    if (result)
        *result = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *restrict result, void *restrict zone)
{
    struct timespec now = {0, 0};
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now))
        return -1;
    result->tv_sec = now.tv_sec;
    result->tv_usec = now.tv_nsec / 1000;
    return 0;
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left)
{
    if (!(flags & TIMER_ABSTIME) || !is_turned(clock))
        return true_clock_nanosleep(clock, flags, until, left);
    struct timespec earlier = moved(until, -*ahead);
    return true_clock_nanosleep(clock, flags, &earlier, left);
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex, const struct timespec *restrict until)
{
    struct timespec earlier = moved(until, -*ahead);
    return true_cond_timedwait(condition, mutex, &earlier);
}

int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock, const struct timespec *until)
{
    struct timespec earlier = moved(until, -*ahead);
    return true_cond_clockwait(condition, mutex, clock, &earlier);
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict until)
{
    struct timespec earlier = moved(until, -*ahead);
    return true_sem_timedwait(semaphore, &earlier);
}

int sem_clockwait(sem_t *restrict semaphore, clockid_t clock, const struct timespec *restrict until)
{
    struct timespec earlier = moved(until, -*ahead);
    return true_sem_clockwait(semaphore, clock, &earlier);
}

/* Rust's standard library waits for a futex with this function, until an absolute time (FUTEX_WAIT_BITSET). */
long syscall(long number, ...)
{
    long given[6];
    va_list list;
    va_start(list, number);
    for (int place = 0; place < 6; place++)
        given[place] = va_arg(list, long);
    va_end(list);
    if (!true_syscall)
        true_syscall = dlsym(RTLD_NEXT, "syscall");
    struct timespec earlier;
    if (number == SYS_futex && (given[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET && given[3]) {
        earlier = moved((const struct timespec *)given[3], -*ahead);
        given[3] = (long)&earlier;
    }
    return true_syscall(number, given[0], given[1], given[2], given[3], given[4], given[5]);
}

/* LD_PRELOAD library that kills a spooler before the step of a job that a shared file names. killed_at_step.py is its other half.
 *
 * A step is a call that locks, creates, writes or removes a file of a job. Steps before the lock change nothing, and processes that
 * lock no job are not counted.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Steps that are left before the kill; negative: no kill. */
static int64_t *left;
/* Whether this process has locked a job. */
static int works;

static int (*true_fcntl)(int, int, ...);
static int (*true_open64)(const char *, int, ...);
static int (*true_unlink)(const char *);
static ssize_t (*true_write)(int, const void *, size_t);

__attribute__((constructor)) static void prepare(void)
{
    true_fcntl = dlsym(RTLD_NEXT, "fcntl");
    true_open64 = dlsym(RTLD_NEXT, "open64");
    true_unlink = dlsym(RTLD_NEXT, "unlink");
    true_write = dlsym(RTLD_NEXT, "write");
    const char *path = getenv("KILLED_AT_STEP");
    int file = path ? true_open64(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *page = mmap(NULL, sizeof *left, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED)
        left = page;
}

static void step(const char *path)
{
    if (!left || !works || *left < 0 || !strstr(path, "uwsgi_spoolfile_on_"))
        return;
    *left -= 1;
    if (*left < 0)
        kill(getpid(), SIGKILL);
}

static void step_of_descriptor(int descriptor)
{
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length < 0 ? 0 : length] = 0;
    step(path);
}

int fcntl(int descriptor, int command, ...)
{
    va_list list;
    va_start(list, command);
    void *given = va_arg(list, void *);
    va_end(list);
    if (command == F_SETLK) {
        works = 1;
        step_of_descriptor(descriptor);
    }
    return true_fcntl ? true_fcntl(descriptor, command, given) : -1;
}

int fcntl64(int descriptor, int command, ...) __attribute__((alias("fcntl")));

int open64(const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0;
    va_end(list);
    if (flags & O_CREAT)
        step(path);
    if (!true_open64)
        true_open64 = dlsym(RTLD_NEXT, "open64");
    return true_open64(path, flags, mode);
}

int unlink(const char *path)
{
    step(path);
    return true_unlink(path);
}

ssize_t write(int descriptor, const void *data, size_t length)
{
    if (works && left && *left >= 0)
        step_of_descriptor(descriptor);
    if (!true_write)
        true_write = dlsym(RTLD_NEXT, "write");
    return true_write(descriptor, data, length);
}

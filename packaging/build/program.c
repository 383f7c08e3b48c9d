/* bolide/bin/bolide of the package: runs the master that is in the native module of the package, so that the package has the native
 * code once, and the master has no interpreter. packaging/build/program.py compiles it with -DMODULE, the module's file name, and
 * with a header of the names that the module expects of Python. It knows no option.
 */
#include <dlfcn.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

/* The status of a start that failed. */
enum { START_FAILED = 1 };

/* The master calls no Python. These names exist so that the module can be loaded where there is none; inside of Python they are
 * the interpreter's. */
static void absent(const char *name) {
    fprintf(stderr, "bolide: %s was called without Python, which is a bug of Bolide\n", name);
    abort();
}

#define ABSENT(name) \
    void name(void) { \
        absent(#name); \
    }
#include "python-names.h"

/* Writes the path of the module: it is in the directory above the program's, as the whole package may be anywhere. */
static int find_module(char *path, size_t size) {
    char own[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    if (length < 0)
        /* Without /proc, the kernel has kept the path of the call. */
        length = snprintf(own, sizeof own, "%s", (const char *)getauxval(AT_EXECFN));
    if (length >= (ssize_t)sizeof own)
        return -1;
    own[length] = '\0';
    for (int levels = 0; levels < 2; levels++) {
        char *slash = strrchr(own, '/');
        if (slash == NULL)
            return -1;
        *slash = '\0';
    }
    int written = snprintf(path, size, "%s/" MODULE, own);
    return written > 0 && (size_t)written < size ? 0 : -1;
}

int main(void) {
    char path[PATH_MAX];
    if (find_module(path, sizeof path) != 0) {
        fprintf(stderr, "bolide: the path of this program is too long to find " MODULE "\n");
        return START_FAILED;
    }
    /* A reader that goes away is an error of the write, as everywhere in Bolide. */
    signal(SIGPIPE, SIG_IGN);
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    int (*run)(void) = module == NULL ? NULL : (int (*)(void))dlsym(module, "bolide_run_program");
    if (run == NULL) {
        fprintf(stderr, "bolide: %s; install bolide again (pip install --force-reinstall bolide; Debian: apt install --reinstall bolide)\n", dlerror());
        return START_FAILED;
    }
    return run();
}

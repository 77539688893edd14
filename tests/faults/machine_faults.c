/*
 * Machine faults for a server that preloads this library. A test controls them through a shared page.
 *
 * Faults: errors of flushes and writes, hanging flushes, and a shifted wall clock. They affect only files with ".sqlite" in
 * their path.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

struct control {
    volatile int32_t sync_error, write_error, hang, injected, hung, unused;
    volatile double ahead;
};

static struct control *control;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("TOLLHOUSE_MACHINE_FAULTS");
    int descriptor = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (descriptor < 0) return;
    void *page = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (page != MAP_FAILED) control = page;
    close(descriptor);
}

static int is_database(int descriptor) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strstr(path, ".sqlite") != NULL;
}

static int fails(int descriptor, int error) {
    if (!error || !is_database(descriptor)) return 0;
    control->injected++;
    errno = error;
    return 1;
}

static int before_sync(int descriptor) {
    if (!control) return 0;
    if (control->hang && is_database(descriptor)) {
        control->hung++;
        while (control->hang) usleep(10000);
    }
    return fails(descriptor, control->sync_error);
}

int fsync(int descriptor) {
    static int (*next)(int);
    if (!next) next = dlsym(RTLD_NEXT, "fsync");
    return before_sync(descriptor) ? -1 : next(descriptor);
}

int fdatasync(int descriptor) {
    static int (*next)(int);
    if (!next) next = dlsym(RTLD_NEXT, "fdatasync");
    return before_sync(descriptor) ? -1 : next(descriptor);
}

ssize_t pwrite64(int descriptor, const void *data, size_t size, off64_t place) {
    static ssize_t (*next)(int, const void *, size_t, off64_t);
    if (!next) next = dlsym(RTLD_NEXT, "pwrite64");
    return control && fails(descriptor, control->write_error) ? -1 : next(descriptor, data, size, place);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*next)(clockid_t, struct timespec *);
    if (!next) next = dlsym(RTLD_NEXT, "clock_gettime");
    int result = next(clock, now);
    if (control && clock == CLOCK_REALTIME) now->tv_sec += (time_t)control->ahead;
    return result;
}

int gettimeofday(struct timeval *now, void *zone) {
    static int (*next)(struct timeval *, void *);
    if (!next) next = dlsym(RTLD_NEXT, "gettimeofday");
    int result = next(now, zone);
    if (control && now) now->tv_sec += (time_t)control->ahead;
    return result;
}

time_t time(time_t *place) {
    static time_t (*next)(time_t *);
    if (!next) next = dlsym(RTLD_NEXT, "time");
    time_t now = next(NULL) + (control ? (time_t)control->ahead : 0);
    if (place) *place = now;
    return now;
}

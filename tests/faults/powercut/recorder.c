/*
 * Preload this library to record every change below the directory TRACE_ROOT, in order, into the file TRACE_FILE.
 *
 * Each record is a head (operation, inode, offset, length) followed by `length` bytes; replay.py reads it. A change and its
 * record are made under one lock, so both have the same order. Unsupported calls (pwritev, link, ...) are recorded as 'X',
 * which makes the test fail.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define FILES 65536

struct __attribute__((packed)) head {
    char operation;
    uint64_t inode;
    uint64_t offset;
    uint32_t length;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX];
static size_t root_length;
static int trace = -1;
static char *paths[FILES]; /* paths of open files below the root, relative to it */

#define REAL(result, name, ...) static result (*real_##name)(__VA_ARGS__)
REAL(int, open64, const char *, int, ...);
REAL(int, close, int);
REAL(ssize_t, write, int, const void *, size_t);
REAL(ssize_t, pwrite64, int, const void *, size_t, off64_t);
REAL(int, ftruncate64, int, off64_t);
REAL(int, fsync, int);
REAL(int, fdatasync, int);
REAL(int, renameat, int, const char *, int, const char *);
REAL(int, unlinkat, int, const char *, int);
REAL(int, mkdirat, int, const char *, mode_t);
REAL(int, linkat, int, const char *, int, const char *, int);
REAL(int, fallocate64, int, int, off64_t, off64_t);
REAL(int, openat64, int, const char *, int, ...);

static void *known(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) abort();
    return found;
}

__attribute__((constructor)) static void begin(void) {
    *(void **)&real_open64 = known("open64");
    *(void **)&real_openat64 = known("openat64");
    *(void **)&real_close = known("close");
    *(void **)&real_write = known("write");
    *(void **)&real_pwrite64 = known("pwrite64");
    *(void **)&real_ftruncate64 = known("ftruncate64");
    *(void **)&real_fsync = known("fsync");
    *(void **)&real_fdatasync = known("fdatasync");
    *(void **)&real_renameat = known("renameat");
    *(void **)&real_unlinkat = known("unlinkat");
    *(void **)&real_mkdirat = known("mkdirat");
    *(void **)&real_linkat = known("linkat");
    *(void **)&real_fallocate64 = known("fallocate64");
    const char *file = getenv("TRACE_FILE"), *directory = getenv("TRACE_ROOT");
    if (!file || !directory) return;
    snprintf(root, sizeof root, "%s", directory);
    root_length = strlen(root);
    trace = real_open64(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static void record(char operation, uint64_t inode, uint64_t offset, const void *data, size_t length) {
    struct head head = {operation, inode, offset, (uint32_t)length};
    struct iovec parts[2] = {{&head, sizeof head}, {(void *)data, length}};
    size_t wanted = sizeof head + length;
    if (writev(trace, parts, 2) != (ssize_t)wanted) abort();
}

/* Return the path relative to the root, or NULL if it is outside. */
static const char *below(int directory, const char *path, char *full) {
    if (trace < 0 || !path) return NULL;
    if (path[0] == '/') {
        snprintf(full, PATH_MAX, "%s", path);
    } else {
        char link[64], base[PATH_MAX];
        ssize_t n;
        if (directory == AT_FDCWD) {
            if (!getcwd(base, sizeof base)) return NULL;
        } else {
            snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
            n = readlink(link, base, sizeof base - 1);
            if (n < 0) return NULL;
            base[n] = 0;
        }
        if (snprintf(full, PATH_MAX, "%s/%s", base, path) >= PATH_MAX) return NULL;
    }
    if (strncmp(full, root, root_length) || (full[root_length] != '/' && full[root_length])) return NULL;
    return full[root_length] ? full + root_length + 1 : "";
}

static uint64_t inode_of(int file) {
    struct stat status;
    return fstat(file, &status) ? 0 : status.st_ino;
}

static int is_traced(int file) { return trace >= 0 && file >= 0 && file < FILES && paths[file]; }

static int opened(int directory, const char *path, int flags, mode_t mode) {
    char full[PATH_MAX];
    const char *name = below(directory, path, full);
    if (!name) return real_openat64(directory, path, flags, mode);
    pthread_mutex_lock(&lock);
    int was_there = !faccessat(directory, path, F_OK, AT_SYMLINK_NOFOLLOW);
    int file = real_openat64(directory, path, flags, mode);
    int error = errno;
    if (file >= 0 && file < FILES) {
        free(paths[file]);
        paths[file] = strdup(name);
        if (!was_there && (flags & O_CREAT)) record('C', inode_of(file), 0, name, strlen(name));
        else if (flags & O_TRUNC) record('T', inode_of(file), 0, NULL, 0);
    }
    pthread_mutex_unlock(&lock);
    errno = error;
    return file;
}

#define OPEN(name, directory, ...)                                      \
    int name(__VA_ARGS__, int flags, ...) {                             \
        mode_t mode = 0;                                                \
        if (flags & (O_CREAT | O_TMPFILE)) {                            \
            va_list more;                                               \
            va_start(more, flags);                                      \
            mode = va_arg(more, mode_t);                                \
            va_end(more);                                               \
        }                                                               \
        return opened(directory, path, flags, mode);                    \
    }
OPEN(open, AT_FDCWD, const char *path)
OPEN(open64, AT_FDCWD, const char *path)
OPEN(openat, directory, int directory, const char *path)
OPEN(openat64, directory, int directory, const char *path)

int close(int file) {
    if (is_traced(file)) {
        pthread_mutex_lock(&lock);
        free(paths[file]);
        paths[file] = NULL;
        pthread_mutex_unlock(&lock);
    }
    return real_close(file);
}

ssize_t pwrite64(int file, const void *data, size_t length, off64_t offset) {
    if (!is_traced(file)) return real_pwrite64(file, data, length, offset);
    pthread_mutex_lock(&lock);
    ssize_t written = real_pwrite64(file, data, length, offset);
    int error = errno;
    if (written > 0) record('W', inode_of(file), offset, data, written);
    pthread_mutex_unlock(&lock);
    errno = error;
    return written;
}

ssize_t pwrite(int file, const void *data, size_t length, off_t offset) { return pwrite64(file, data, length, offset); }

ssize_t write(int file, const void *data, size_t length) {
    if (!is_traced(file)) return real_write(file, data, length);
    pthread_mutex_lock(&lock);
    struct stat status;
    off64_t offset = lseek64(file, 0, SEEK_CUR);
    if (fcntl(file, F_GETFL) & O_APPEND && !fstat(file, &status)) offset = status.st_size;
    ssize_t written = real_write(file, data, length);
    int error = errno;
    if (written > 0) record('W', inode_of(file), offset, data, written);
    pthread_mutex_unlock(&lock);
    errno = error;
    return written;
}

int ftruncate64(int file, off64_t size) {
    if (!is_traced(file)) return real_ftruncate64(file, size);
    pthread_mutex_lock(&lock);
    int result = real_ftruncate64(file, size), error = errno;
    if (!result) record('T', inode_of(file), size, NULL, 0);
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}

int ftruncate(int file, off_t size) { return ftruncate64(file, size); }

static int synced(int file, int (*sync)(int)) {
    if (!is_traced(file)) return sync(file);
    pthread_mutex_lock(&lock);
    int result = sync(file), error = errno;
    struct stat status;
    if (!result && !fstat(file, &status)) {
        char operation = S_ISDIR(status.st_mode) ? 'D' : 'S';
        record(operation, status.st_ino, 0, paths[file], strlen(paths[file]));
    }
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}

int fsync(int file) { return synced(file, real_fsync); }
int fdatasync(int file) { return synced(file, real_fdatasync); }

int fallocate64(int file, int mode, off64_t offset, off64_t length) {
    if (!is_traced(file)) return real_fallocate64(file, mode, offset, length);
    pthread_mutex_lock(&lock);
    int result = real_fallocate64(file, mode, offset, length), error = errno;
    if (!result) record(mode ? 'X' : 'A', inode_of(file), offset + length, NULL, 0);
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}

int fallocate(int file, int mode, off_t offset, off_t length) { return fallocate64(file, mode, offset, length); }

int posix_fallocate64(int file, off64_t offset, off64_t length) {
    return fallocate64(file, 0, offset, length) ? errno : 0;
}

int posix_fallocate(int file, off_t offset, off_t length) { return posix_fallocate64(file, offset, length); }

int renameat(int from_directory, const char *from, int to_directory, const char *to) {
    char full[PATH_MAX], other[PATH_MAX], both[2 * PATH_MAX];
    const char *old = below(from_directory, from, full), *new = below(to_directory, to, other);
    if (!old && !new) return real_renameat(from_directory, from, to_directory, to);
    pthread_mutex_lock(&lock);
    int result = real_renameat(from_directory, from, to_directory, to), error = errno;
    if (!result && old && new) {
        int length = snprintf(both, sizeof both, "%s%c%s", old, 0, new);
        record('R', 0, 0, both, length);
    } else if (!result) {
        record('X', 0, 0, NULL, 0);
    }
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}

int rename(const char *from, const char *to) { return renameat(AT_FDCWD, from, AT_FDCWD, to); }

int unlinkat(int directory, const char *path, int flags) {
    char full[PATH_MAX];
    const char *name = below(directory, path, full);
    if (!name) return real_unlinkat(directory, path, flags);
    pthread_mutex_lock(&lock);
    int result = real_unlinkat(directory, path, flags), error = errno;
    if (!result) record('U', 0, 0, name, strlen(name));
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}

int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int mkdirat(int directory, const char *path, mode_t mode) {
    char full[PATH_MAX];
    const char *name = below(directory, path, full);
    if (!name) return real_mkdirat(directory, path, mode);
    pthread_mutex_lock(&lock);
    int result = real_mkdirat(directory, path, mode), error = errno;
    if (!result) record('M', 0, 0, name, strlen(name));
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}

int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

static void unknown(int file) {
    if (is_traced(file)) record('X', 0, 0, paths[file], strlen(paths[file]));
}

/* Read back bytes that the kernel copied into a file, and record them in pieces. */
static void copied(int file, off64_t offset, ssize_t length) {
    char full[2 * PATH_MAX], piece[65536];
    snprintf(full, sizeof full, "%s/%s", root, paths[file]);
    int again = real_open64(full, O_RDONLY | O_CLOEXEC);
    while (length > 0) {
        ssize_t read = pread64(again, piece, length < (ssize_t)sizeof piece ? (size_t)length : sizeof piece, offset);
        if (read <= 0) abort();
        record('W', inode_of(file), offset, piece, read);
        offset += read;
        length -= read;
    }
    real_close(again);
}

int linkat(int from_directory, const char *from, int to_directory, const char *to, int flags) {
    char full[PATH_MAX];
    if (below(to_directory, to, full)) record('X', 0, 0, full, strlen(full));
    return real_linkat(from_directory, from, to_directory, to, flags);
}

int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

ssize_t pwritev(int file, const struct iovec *parts, int count, off_t offset) {
    static ssize_t (*real)(int, const struct iovec *, int, off_t);
    if (!real) *(void **)&real = known("pwritev");
    unknown(file);
    return real(file, parts, count, offset);
}

ssize_t sendfile64(int to, int from, off64_t *offset, size_t count) {
    static ssize_t (*real)(int, int, off64_t *, size_t);
    if (!real) *(void **)&real = known("sendfile64");
    if (!is_traced(to)) return real(to, from, offset, count);
    pthread_mutex_lock(&lock);
    off64_t at = lseek64(to, 0, SEEK_CUR);
    ssize_t sent = real(to, from, offset, count);
    int error = errno;
    copied(to, at, sent);
    pthread_mutex_unlock(&lock);
    errno = error;
    return sent;
}

ssize_t sendfile(int to, int from, off_t *offset, size_t count) { return sendfile64(to, from, offset, count); }

ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t count, unsigned flags) {
    static ssize_t (*real)(int, off64_t *, int, off64_t *, size_t, unsigned);
    if (!real) *(void **)&real = known("copy_file_range");
    if (!is_traced(to)) return real(from, from_at, to, to_at, count, flags);
    pthread_mutex_lock(&lock);
    off64_t at = to_at ? *to_at : lseek64(to, 0, SEEK_CUR);
    ssize_t sent = real(from, from_at, to, to_at, count, flags);
    int error = errno;
    copied(to, at, sent);
    pthread_mutex_unlock(&lock);
    errno = error;
    return sent;
}

/* A disk that forgets: keeps, beside each directory that is named in POWERCUT_DIRS, what a power cut would leave of it.
 *
 * Why: SIGKILL leaves the page cache, so a test that only kills never sees what was written and not synced. This library
 * is preloaded into a bookie and notes every write and every sync; tests/process/chaos/powercut/disk.py then makes of its notes
 * one of the states that a power cut might have left. It also injects faults: errors of writes, syncs and allocations,
 * and slow syncs.
 *
 * For each directory D that is watched, D.shadow (made by disk.py) holds
 *   live/INODE     a hard link to the file, so that its number is not given again and its data outlives its name
 *   synced/INODE   what of the file is durable: ranges are copied when the file is synced
 *   lost/INODE     ranges that a sync failed to write (`struct range`s): the kernel calls their pages clean, so they can be
 *                  read, and no later sync of any process writes them unless they are written again
 *   names          durable names ("= INODE NAME"), then what happened to names since ("+ INODE NAME", "- NAME",
 *                  "> OLD NEW"), one a line and in order
 *   control        faults, as `struct faults` below; disk.py writes it, this library maps it
 *
 * A sync is real only in the notes: the data is left to the kernel, because a killed process loses nothing there, and
 * hundreds of cuts should not wait for a disk. What is copied at a sync is read from the file after the sync began, so a
 * concurrent write may count as durable; a power cut may leave that, too. Names count as durable only once their
 * directory was synced, which is stricter than most file systems. Writes through mappings are not seen: what uses them
 * (LMDB's lock file) must not rely on them. Files are told apart by inode, so descriptors may be duplicated at will.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define DIRS_MAX 64
#define RANGES_MAX 512
#define CHUNK (256 * 1024)

struct faults {
    uint32_t write_errno;
    uint32_t sync_errno;
    uint32_t allocate_errno;
    uint32_t sync_delay_us;
    uint32_t sync_lies; /* says done and does nothing: a disk that cannot be trusted, for tests of the tests */
    uint32_t dsync_kills; /* a write through O_DSYNC reaches the page cache, and its process dies */
};

struct dir {
    char path[PATH_MAX];
    volatile struct faults *faults;
};

struct range {
    off_t begin, end;
};

struct file {
    dev_t device;
    ino_t inode;
    struct dir *dir;
    int count, lost_count;
    struct range dirty[RANGES_MAX];
    struct range lost[RANGES_MAX];
    struct file *next;
};

static struct dir dirs[DIRS_MAX];
static int dir_count;
static struct file *files;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int (*real_open)(const char *, int, ...);
static int (*real_openat)(int, const char *, int, ...);
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_writev)(int, const struct iovec *, int);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*real_pwritev)(int, const struct iovec *, int, off_t);
static ssize_t (*real_pwritev2)(int, const struct iovec *, int, off_t, int);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static int (*real_ftruncate)(int, off_t);
static int (*real_fallocate)(int, int, off_t, off_t);
static int (*real_posix_fallocate)(int, off_t, off_t);
static int (*real_rename)(const char *, const char *);
static int (*real_renameat)(int, const char *, int, const char *);
static int (*real_unlink)(const char *);
static int (*real_unlinkat)(int, const char *, int);
static int (*real_statvfs)(const char *, struct statvfs64 *);

static void give_up(const char *what, const char *where) {
    fprintf(stderr, "powercut: %s %s failed (%s): what is durable is not known any more\n", what, where, strerror(errno));
    abort();
}

static void *next_of(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) {
        fprintf(stderr, "powercut: the C library has no %s\n", name);
        abort();
    }
    return found;
}

static void add_dir(const char *path) {
    char name[PATH_MAX + 32];
    if (dir_count == DIRS_MAX) {
        fprintf(stderr, "powercut: POWERCUT_DIRS names more than %d directories\n", DIRS_MAX);
        abort();
    }
    struct dir *dir = &dirs[dir_count++];
    snprintf(dir->path, sizeof dir->path, "%s", path);
    snprintf(name, sizeof name, "%s.shadow/control", path);
    int fd = real_open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) give_up("opening", name);
    void *mapped = mmap(NULL, sizeof(struct faults), PROT_READ, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) give_up("mapping", name);
    close(fd);
    dir->faults = mapped;
}

static void begin(void) {
    *(void **)&real_open = next_of("open64");
    *(void **)&real_openat = next_of("openat64");
    *(void **)&real_write = next_of("write");
    *(void **)&real_writev = next_of("writev");
    *(void **)&real_pwrite = next_of("pwrite64");
    *(void **)&real_pwritev = next_of("pwritev64");
    *(void **)&real_pwritev2 = next_of("pwritev64v2");
    *(void **)&real_fsync = next_of("fsync");
    *(void **)&real_fdatasync = next_of("fdatasync");
    *(void **)&real_ftruncate = next_of("ftruncate64");
    *(void **)&real_fallocate = next_of("fallocate64");
    *(void **)&real_posix_fallocate = next_of("posix_fallocate64");
    *(void **)&real_rename = next_of("rename");
    *(void **)&real_renameat = next_of("renameat");
    *(void **)&real_unlink = next_of("unlink");
    *(void **)&real_unlinkat = next_of("unlinkat");
    *(void **)&real_statvfs = next_of("statvfs64");
    const char *named = getenv("POWERCUT_DIRS");
    if (!named) return;
    char *copy = strdup(named), *rest = copy, *path;
    while ((path = strsep(&rest, ":")))
        if (*path) add_dir(path);
    free(copy);
}

static void start(void) { pthread_once(&once, begin); }

__attribute__((constructor)) static void at_load(void) { start(); }

/* -- names -------------------------------------------------------------------------------------------------------- */

/* The watched directory that holds `path` (relative to `at`), and the last part of the path. */
static struct dir *dir_of_path(int at, const char *path, char *last) {
    char parent[PATH_MAX], real[PATH_MAX], whole[PATH_MAX * 2];
    if (!dir_count) return NULL;
    if (path[0] != '/' && at != AT_FDCWD) {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", at);
        ssize_t got = readlink(link, parent, sizeof parent - 1);
        if (got < 0) return NULL;
        parent[got] = 0;
        snprintf(whole, sizeof whole, "%s/%s", parent, path);
    } else {
        snprintf(whole, sizeof whole, "%s%s", path[0] == '/' ? "" : "./", path);
    }
    char *slash = strrchr(whole, '/');
    snprintf(last, NAME_MAX + 1, "%s", slash + 1);
    *slash = 0;
    if (!realpath(*whole ? whole : "/", real)) return NULL;
    for (int n = 0; n < dir_count; n++)
        if (!strcmp(dirs[n].path, real)) return &dirs[n];
    return NULL;
}

static struct dir *dir_of_descriptor(int fd) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t got = readlink(link, path, sizeof path - 1);
    if (got < 0) return NULL;
    path[got] = 0;
    for (int n = 0; n < dir_count; n++)
        if (!strcmp(dirs[n].path, path)) return &dirs[n];
    return NULL;
}

static void note_name(struct dir *dir, const char *line) {
    char name[PATH_MAX + 32];
    snprintf(name, sizeof name, "%s.shadow/names", dir->path);
    int fd = real_open(name, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0) give_up("opening", name);
    if (real_write(fd, line, strlen(line)) != (ssize_t)strlen(line)) give_up("writing", name);
    close(fd);
}

/* The directory was synced: a mark that every name before it is durable. One short write, so a kill cannot halve it. */
static void names_are_durable(struct dir *dir) { note_name(dir, "!\n"); }

/* -- files -------------------------------------------------------------------------------------------------------- */

static void shadow_name(char *name, struct dir *dir, const char *kind, ino_t inode) {
    snprintf(name, PATH_MAX + 64, "%s.shadow/%s/%llu", dir->path, kind, (unsigned long long)inode);
}

static void copy_range(int from, int to, off_t begin, off_t end, const char *name) {
    static char buffer[CHUNK]; /* under the lock */
    while (begin < end) {
        size_t size = end - begin < CHUNK ? (size_t)(end - begin) : CHUNK;
        ssize_t got = pread(from, buffer, size, begin);
        if (got < 0) give_up("reading", name);
        if (!got) return;
        for (ssize_t done = 0; done < got;) {
            ssize_t put = real_pwrite(to, buffer + done, got - done, begin + done);
            if (put <= 0) give_up("writing", name);
            done += put;
        }
        begin += got;
    }
}

/* Add a range to one of a file's lists; returns the new count. */
static int add_range(struct range *ranges, int count, off_t begin, off_t end) {
    if (begin >= end) return count;
    for (int n = count - 1; n >= 0 && n >= count - 4; n--) {
        struct range *range = &ranges[n];
        if (begin <= range->end && end >= range->begin) {
            if (begin < range->begin) range->begin = begin;
            if (end > range->end) range->end = end;
            return count;
        }
    }
    if (count == RANGES_MAX) { /* too many: one that covers them all */
        for (int n = 1; n < count; n++) {
            if (ranges[n].begin < ranges[0].begin) ranges[0].begin = ranges[n].begin;
            if (ranges[n].end > ranges[0].end) ranges[0].end = ranges[n].end;
        }
        return add_range(ranges, 1, begin, end);
    }
    ranges[count] = (struct range){begin, end};
    return count + 1;
}

static void load_lost(struct file *file) {
    char name[PATH_MAX + 64];
    shadow_name(name, file->dir, "lost", file->inode);
    int fd = real_open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    ssize_t got = read(fd, file->lost, sizeof file->lost);
    if (got < 0) give_up("reading", name);
    file->lost_count = got / sizeof *file->lost;
    close(fd);
}

static void save_lost(struct file *file) {
    char name[PATH_MAX + 64];
    shadow_name(name, file->dir, "lost", file->inode);
    int fd = real_open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ssize_t size = file->lost_count * sizeof *file->lost;
    if (fd < 0) give_up("making", name);
    if (real_write(fd, file->lost, size) != size) give_up("writing", name);
    close(fd);
}

/* The range was written, so its pages are dirty, whatever a sync made of them before. */
static void mark(struct file *file, off_t begin, off_t end) {
    int kept = 0, before = file->lost_count;
    struct range all[RANGES_MAX];
    file->count = add_range(file->dirty, file->count, begin, end);
    if (!before) return;
    memcpy(all, file->lost, sizeof all);
    for (int n = 0; n < before; n++) {
        off_t left = all[n].end < begin ? all[n].end : begin, right = all[n].begin > end ? all[n].begin : end;
        if (kept + 2 > RANGES_MAX) give_up("remembering", "what a sync lost");
        if (all[n].begin < left) file->lost[kept++] = (struct range){all[n].begin, left};
        if (right < all[n].end) file->lost[kept++] = (struct range){right, all[n].end};
    }
    file->lost_count = kept;
    save_lost(file);
}

/* A sync failed: nothing is dirty any more. */
static void lose(struct file *file) {
    for (int n = 0; n < file->count; n++)
        file->lost_count = add_range(file->lost, file->lost_count, file->dirty[n].begin, file->dirty[n].end);
    file->count = 0;
    save_lost(file);
}

/* Copy what of a range no failed sync has lost, from the `n`th loss on. */
static void copy_sound(struct file *file, int n, int from, int to, off_t begin, off_t end, const char *name) {
    for (; n < file->lost_count; n++) {
        struct range *lost = &file->lost[n];
        if (lost->begin >= end || lost->end <= begin) continue;
        copy_sound(file, n + 1, from, to, begin, lost->begin, name);
        begin = lost->end;
    }
    copy_range(from, to, begin, end, name);
}

static struct file *file_of(int fd) {
    struct stat found;
    if (!dir_count || fstat(fd, &found) || !S_ISREG(found.st_mode)) return NULL;
    for (struct file *file = files; file; file = file->next)
        if (file->inode == found.st_ino && file->device == found.st_dev) return file;
    return NULL;
}

/* Copy what `file` has written since its last sync: from now on a power cut cannot take it away. */
static void file_is_durable(struct file *file, int fd) {
    char name[PATH_MAX + 64], own[64];
    struct stat found;
    shadow_name(name, file->dir, "synced", file->inode);
    int to = real_open(name, O_RDWR | O_CLOEXEC);
    if (to < 0) give_up("opening", name);
    snprintf(own, sizeof own, "/proc/self/fd/%d", fd);
    int from = real_open(own, O_RDONLY | O_CLOEXEC); /* `fd` may be for writing only */
    if (from < 0) give_up("opening", own);
    if (fstat(from, &found)) give_up("looking at", own);
    for (int n = 0; n < file->count; n++)
        copy_sound(file, 0, from, to, file->dirty[n].begin, file->dirty[n].end, name);
    if (real_ftruncate(to, found.st_size)) give_up("truncating", name);
    file->count = 0;
    close(from);
    close(to);
}

/* Watch the file behind `fd`. A file that no process has watched before is durable as it is, unless it is new. */
static void watch(struct dir *dir, int fd, const char *path, int at, int is_new) {
    char name[PATH_MAX + 64];
    struct stat found;
    if (fstat(fd, &found) || !S_ISREG(found.st_mode)) return;
    for (struct file *file = files; file; file = file->next)
        if (file->inode == found.st_ino && file->device == found.st_dev) return;
    struct file *file = calloc(1, sizeof *file);
    if (!file) give_up("remembering", path);
    file->dir = dir;
    file->inode = found.st_ino;
    file->device = found.st_dev;
    file->next = files;
    files = file;
    shadow_name(name, dir, "synced", found.st_ino);
    int known = !access(name, F_OK);
    if (!known) {
        int to = real_open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (to < 0) give_up("making", name);
        close(to);
    }
    shadow_name(name, dir, "live", found.st_ino);
    if (linkat(at, path, AT_FDCWD, name, 0) && errno != EEXIST) give_up("linking", name);
    if (known) { /* an earlier process may have left writes that it did not sync, and some that it tried to */
        file->count = add_range(file->dirty, file->count, 0, INT64_MAX);
        load_lost(file);
    } else if (!is_new) {
        mark(file, 0, INT64_MAX);
        file_is_durable(file, fd);
    }
}

static int open_watched(int at, const char *path, int flags, mode_t mode) {
    char last[NAME_MAX + 1], line[NAME_MAX + 64];
    start();
    struct dir *dir = flags & O_DIRECTORY ? NULL : dir_of_path(at, path, last);
    if (!dir) return real_openat(at, path, flags, mode);
    pthread_mutex_lock(&lock);
    struct stat before;
    int is_new = (flags & O_CREAT) && fstatat(at, path, &before, 0);
    if (flags & O_TRUNC && !is_new) { /* what it holds must be known before it goes */
        int fd = real_openat(at, path, O_RDWR | O_CLOEXEC);
        if (fd >= 0) {
            watch(dir, fd, path, at, 0);
            struct file *file = file_of(fd);
            if (file) mark(file, 0, INT64_MAX);
            close(fd);
        }
    }
    int fd = real_openat(at, path, flags, mode);
    int error = errno;
    struct stat found;
    if (fd >= 0 && !fstat(fd, &found) && S_ISREG(found.st_mode)) {
        watch(dir, fd, path, at, is_new);
        if (is_new) {
            snprintf(line, sizeof line, "+ %llu %s\n", (unsigned long long)found.st_ino, last);
            note_name(dir, line);
        }
    }
    pthread_mutex_unlock(&lock);
    errno = error;
    return fd;
}

#define MODE_OF(flags, mode)                                  \
    mode_t mode = 0;                                          \
    if ((flags) & O_CREAT || ((flags) & O_TMPFILE) == O_TMPFILE) { \
        va_list list;                                         \
        va_start(list, flags);                                \
        mode = va_arg(list, mode_t);                          \
        va_end(list);                                         \
    }

int open(const char *path, int flags, ...) { MODE_OF(flags, mode) return open_watched(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE_OF(flags, mode) return open_watched(AT_FDCWD, path, flags, mode); }
int openat(int at, const char *path, int flags, ...) { MODE_OF(flags, mode) return open_watched(at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) { MODE_OF(flags, mode) return open_watched(at, path, flags, mode); }
int creat(const char *path, mode_t mode) { return open_watched(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return creat(path, mode); }

/* -- writes ------------------------------------------------------------------------------------------------------- */

/* The file behind `fd` if it is watched and may be written; sets *fault to the error that is injected. */
static struct file *before_write(int fd, uint32_t *fault) {
    start();
    pthread_mutex_lock(&lock);
    struct file *file = file_of(fd);
    pthread_mutex_unlock(&lock);
    *fault = file ? file->dir->faults->write_errno : 0;
    return file;
}

static ssize_t after_write(struct file *file, int fd, off_t begin, ssize_t done) {
    int error = errno;
    if (done > 0) {
        pthread_mutex_lock(&lock);
        mark(file, begin, begin + done);
        int is_synced = fcntl(fd, F_GETFL) & O_DSYNC; /* O_SYNC contains it: this write is durable, others are not */
        if (is_synced && (file->dir->faults->sync_errno || file->dir->faults->dsync_kills)) {
            file->lost_count = add_range(file->lost, file->lost_count, begin, begin + done);
            save_lost(file);
            if (file->dir->faults->dsync_kills) kill(getpid(), SIGKILL);
            error = (int)file->dir->faults->sync_errno;
            done = -1;
        } else if (is_synced) {
            struct range all[RANGES_MAX];
            int count = file->count;
            memcpy(all, file->dirty, sizeof all);
            file->dirty[0] = (struct range){begin, begin + done};
            file->count = 1;
            file_is_durable(file, fd);
            memcpy(file->dirty, all, sizeof all);
            file->count = count;
        }
        pthread_mutex_unlock(&lock);
    }
    errno = error;
    return done;
}

static off_t position(int fd) {
    struct stat found;
    if (fcntl(fd, F_GETFL) & O_APPEND) return fstat(fd, &found) ? 0 : found.st_size;
    return lseek(fd, 0, SEEK_CUR);
}

/* Run `call` on a file; `begin` is where it writes. */
#define WRITE(fd, where, call)                        \
    uint32_t fault;                                   \
    struct file *file = before_write(fd, &fault);     \
    if (!file) return call;                           \
    if (fault) {                                      \
        errno = (int)fault;                           \
        return -1;                                    \
    }                                                 \
    off_t begin = where;                              \
    ssize_t done = call;                              \
    return after_write(file, fd, begin, done);

ssize_t write(int fd, const void *data, size_t size) { WRITE(fd, position(fd), real_write(fd, data, size)) }
ssize_t writev(int fd, const struct iovec *parts, int count) { WRITE(fd, position(fd), real_writev(fd, parts, count)) }
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { WRITE(fd, at, real_pwrite(fd, data, size, at)) }
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) { WRITE(fd, at, real_pwrite(fd, data, size, at)) }
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
    WRITE(fd, at, real_pwritev(fd, parts, count, at))
}
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) {
    WRITE(fd, at, real_pwritev(fd, parts, count, at))
}
/* CPython writes through this one. */
ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t at, int flags) {
    WRITE(fd, at, real_pwritev2(fd, parts, count, at, flags))
}
ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t at, int flags) {
    WRITE(fd, at, real_pwritev2(fd, parts, count, at, flags))
}

static int truncate_watched(int fd, off_t size) {
    uint32_t fault;
    struct stat before;
    struct file *file = before_write(fd, &fault);
    if (!file) return real_ftruncate(fd, size);
    if (fault || fstat(fd, &before)) {
        errno = fault ? (int)fault : errno;
        return -1;
    }
    int result = real_ftruncate(fd, size);
    int error = errno;
    if (!result) {
        pthread_mutex_lock(&lock);
        mark(file, size < before.st_size ? size : before.st_size, INT64_MAX);
        pthread_mutex_unlock(&lock);
    }
    errno = error;
    return result;
}

int ftruncate(int fd, off_t size) { return truncate_watched(fd, size); }
int ftruncate64(int fd, off64_t size) { return truncate_watched(fd, size); }

/* Room for zeros: the size and any hole that is punched become durable at the next sync. */
static uint32_t before_allocation(int fd, struct file **file) {
    uint32_t fault;
    *file = before_write(fd, &fault);
    return *file && (*file)->dir->faults->allocate_errno ? (*file)->dir->faults->allocate_errno : fault;
}

static int fallocate_watched(int fd, int mode, off_t at, off_t size) {
    struct file *file;
    uint32_t fault = before_allocation(fd, &file);
    if (fault) {
        errno = (int)fault;
        return -1;
    }
    int result = real_fallocate(fd, mode, at, size);
    if (file && !result && mode) after_write(file, fd, at, size);
    return result;
}

static int posix_fallocate_watched(int fd, off_t at, off_t size) {
    struct file *file;
    uint32_t fault = before_allocation(fd, &file);
    return fault ? (int)fault : real_posix_fallocate(fd, at, size);
}

int fallocate(int fd, int mode, off_t at, off_t size) { return fallocate_watched(fd, mode, at, size); }
int fallocate64(int fd, int mode, off64_t at, off64_t size) { return fallocate_watched(fd, mode, at, size); }
int posix_fallocate(int fd, off_t at, off_t size) { return posix_fallocate_watched(fd, at, size); }
int posix_fallocate64(int fd, off64_t at, off64_t size) { return posix_fallocate_watched(fd, at, size); }

/* -- syncs -------------------------------------------------------------------------------------------------------- */

static void wait_us(uint32_t delay_us) {
    struct timespec rest = {delay_us / 1000000, (long)(delay_us % 1000000) * 1000};
    while (nanosleep(&rest, &rest) && errno == EINTR) continue;
}

static int sync_watched(int fd, int (*real)(int)) {
    struct stat found;
    start();
    if (!dir_count || fstat(fd, &found)) return real(fd);
    if (S_ISDIR(found.st_mode)) {
        struct dir *dir = dir_of_descriptor(fd);
        if (!dir) return real(fd);
        if (dir->faults->sync_errno) {
            errno = (int)dir->faults->sync_errno;
            return -1;
        }
        pthread_mutex_lock(&lock);
        names_are_durable(dir);
        pthread_mutex_unlock(&lock);
        return 0;
    }
    pthread_mutex_lock(&lock);
    struct file *file = file_of(fd);
    pthread_mutex_unlock(&lock);
    if (!file) return real(fd);
    if (file->dir->faults->sync_delay_us) wait_us(file->dir->faults->sync_delay_us);
    pthread_mutex_lock(&lock);
    uint32_t fault = file->dir->faults->sync_errno;
    if (fault) lose(file); /* as Linux does: a later sync succeeds and writes none of it */
    else if (!file->dir->faults->sync_lies) file_is_durable(file, fd);
    pthread_mutex_unlock(&lock);
    errno = (int)fault;
    return fault ? -1 : 0;
}

int fsync(int fd) { start(); return sync_watched(fd, real_fsync); }
int fdatasync(int fd) { start(); return sync_watched(fd, real_fdatasync); }

/* -- renames and removals ----------------------------------------------------------------------------------------- */

static int rename_watched(int old_at, const char *old, int new_at, const char *new, int is_plain) {
    char from[NAME_MAX + 1], to[NAME_MAX + 1], line[2 * NAME_MAX + 64];
    start();
    struct dir *source = dir_of_path(old_at, old, from), *target = dir_of_path(new_at, new, to);
    if (!source && !target) return is_plain ? real_rename(old, new) : real_renameat(old_at, old, new_at, new);
    if (source != target) { /* two logs of names cannot say that it is one step */
        errno = EXDEV;
        return -1;
    }
    pthread_mutex_lock(&lock);
    int result = real_renameat(old_at, old, new_at, new), error = errno;
    if (!result) {
        snprintf(line, sizeof line, "> %s %s\n", from, to);
        note_name(source, line);
    }
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}

int rename(const char *old, const char *new) { return rename_watched(AT_FDCWD, old, AT_FDCWD, new, 1); }
int renameat(int old_at, const char *old, int new_at, const char *new) {
    return rename_watched(old_at, old, new_at, new, 0);
}

static int unlink_watched(int at, const char *path, int flags) {
    char last[NAME_MAX + 1], line[NAME_MAX + 64];
    start();
    struct dir *dir = dir_of_path(at, path, last);
    if (!dir || flags & AT_REMOVEDIR) return real_unlinkat(at, path, flags);
    pthread_mutex_lock(&lock);
    int result = real_unlinkat(at, path, flags), error = errno;
    if (!result) {
        snprintf(line, sizeof line, "- %s\n", last);
        note_name(dir, line);
    }
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}

int unlink(const char *path) { return unlink_watched(AT_FDCWD, path, 0); }
int unlinkat(int at, const char *path, int flags) { return unlink_watched(at, path, flags); }

/* A disk that is full says so. */
int statvfs64(const char *path, struct statvfs64 *found) {
    char real[PATH_MAX];
    start();
    int result = real_statvfs(path, found);
    if (result || !dir_count || !realpath(path, real)) return result;
    for (int n = 0; n < dir_count; n++)
        if (!strcmp(dirs[n].path, real) &&
            (dirs[n].faults->write_errno == ENOSPC || dirs[n].faults->allocate_errno == ENOSPC))
            found->f_bavail = found->f_bfree = 0;
    return 0;
}

int statvfs(const char *path, struct statvfs *found) { return statvfs64(path, (struct statvfs64 *)found); }

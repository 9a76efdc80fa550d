/* Staging: for each file, find its copy or make it.
 *
 *   shared lock -> does the copy exist? -> yes: keep the lock while the stage is open, and read the copy
 *                                       -> no:  exclusive lock -> still missing? -> make it -> back to the start
 *
 * Going back to the start makes it safe to release the exclusive lock: if the copy is removed in between, that is noticed. In the
 * background a thread does the same. */
#include "data/stage.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "base/log.h"
#include "base/status.h"
#include "base/text.h"
#include "base/thread.h"
#include "data/source.h"

enum { TRIES = 5 }; /* for a file that changes while it is copied, or a copy that is removed immediately */

typedef struct staged {
    ls__copy copy;
    char *path; /* of the copy; NULL: not staged */
} staged;

struct ls_stage {
    ls_stage_options o;
    char *folder;
    ls__sources sources;
    staged *files; /* (sources.count) */
    int64_t begin;
    uint64_t done; /* bytes, for progress */
    _Atomic bool stop;
    pthread_t thread;
    bool running;
    pthread_mutex_t lock; /* of report */
    ls_stage_report report;
    double read_seconds, verify_seconds;
    size_t most; /* files that may be staged */
};

static void add_done(void *user, uint64_t bytes)
{
    ls_stage *s = user;
    s->done += bytes;
    if (s->o.progress) s->o.progress(s->o.user, s->done, s->report.bytes);
}

/* Opens the original and gets its identity. */
static ls_status open_original(const char *path, int *fd, ls__identity *id)
{
    size_t bytes;
    struct stat st;
    ls_status status = ls__file_open(path, fd, &bytes);
    if (status) return status;
    if (fstat(*fd, &st)) {
        status = ls__fail_errno("%s: cannot be examined", path);
        close(*fd);
        return status;
    }
    *id = ls__identity_of(&st);
    return LS_OK;
}

/* Makes the copy. LS_PENDING: the original changed, or another process made the copy; check again. */
static ls_status make(ls_stage *s, ls__copy *c, const char *path, int fd, const ls__identity *id)
{
    ls_status status = ls__copy_lock(c, true);
    if (status) return status;
    if (ls__copy_valid(c, id, s->o.verify)) return LS_PENDING;
    int part;
    uint64_t before = s->done;
    ls__copy_times times = { 0 };
    status = ls__copy_make_room(c, id->bytes, s->o.limit, &part);
    if (!status) status = ls__copy_make(c, path, fd, id, part, add_done, s, &times);
    if (status) {
        s->done = before;
        return status;
    }
    pthread_mutex_lock(&s->lock);
    s->report.copied++;
    s->report.copied_bytes += id->bytes;
    s->read_seconds += times.read_seconds;
    s->verify_seconds += times.verify_seconds;
    pthread_mutex_unlock(&s->lock);
    return LS_PENDING;
}

/* Finds the copy, or makes it and returns LS_PENDING to be called again. */
static ls_status stage_once(ls_stage *s, staged *f, const char *path, bool verify)
{
    int fd;
    ls__identity id;
    char *real = realpath(path, NULL);
    if (!real) return ls__fail_errno("%s: cannot be found", path);
    ls_status status = open_original(path, &fd, &id);
    if (status) {
        free(real);
        return status;
    }
    f->copy = (ls__copy){ .folder = s->folder, .stop = &s->stop, .lock = -1 };
    ls__copy_name(&f->copy, real, &id);
    status = ls__copy_lock(&f->copy, false);
    if (!status && !ls__copy_valid(&f->copy, &id, verify)) {
        status = make(s, &f->copy, path, fd, &id);
    } else if (!status) {
        f->path = ls__copy_path(&f->copy, "data");
        if (!f->path) status = ls__fail(LS_ENOMEM, "out of memory");
    }
    if (status) ls__copy_unlock(&f->copy);
    close(fd);
    free(real);
    return status;
}

static ls_status stage_file(ls_stage *s, size_t i)
{
    const char *path = s->sources.files[i].path;
    /* A copy in use is locked, which takes a descriptor. */
    if (i >= s->most)
        return ls__fail(LS_ESYS,
                        "staging %s: it is file %zu, and the limit on open files allows only %zu; raise it (ulimit "
                        "-n), or use fewer and larger files",
                        path, i + 1, s->most);
    size_t copied = s->report.copied;
    for (int try = 0; try < TRIES; try++) {
        bool made = s->report.copied > copied; /* by us; it was read back just now */
        ls_status status = stage_once(s, &s->files[i], path, s->o.verify && !made);
        if (status == LS_PENDING) continue;
        if (status) return ls__fail_within(status, "staging %s", path);
        if (made) return LS_OK;
        pthread_mutex_lock(&s->lock);
        s->report.found++;
        pthread_mutex_unlock(&s->lock);
        add_done(s, s->sources.files[i].bytes);
        return LS_OK;
    }
    return ls__fail(LS_EIO, "staging %s: the file keeps changing while it is copied", path);
}

/* Each epoch saves the difference of the two reading times. */
static void judge(ls_stage_report *r)
{
    if (!(r->source_rate > 0) || !(r->local_rate > 0)) return;
    double bytes = (double)r->copied_bytes, source = bytes / r->source_rate;
    r->saved_seconds = source - bytes / r->local_rate;
    r->verdict = r->saved_seconds > 0.05 * source ? LS_STAGE_FASTER : LS_STAGE_NOT_FASTER;
}

static ls_status stage_all(ls_stage *s)
{
    ls_status status = LS_OK;
    for (size_t i = 0; i < s->sources.count && !s->stop; i++) {
        status = stage_file(s, i);
        if (!status && s->o.background && s->o.ready) s->o.ready(s->o.user, i, s->files[i].path);
        if (!status || s->stop) continue;
        if (s->o.strict) break;
        if (!s->report.failed) ls__log(LS_LOG_WARNING, "%s; the original is read", ls_error());
        pthread_mutex_lock(&s->lock);
        s->report.failed++;
        pthread_mutex_unlock(&s->lock);
        status = LS_OK;
    }
    if (s->report.failed > 1)
        ls__log(LS_LOG_WARNING, "staging: %zu of %zu files could not be staged; their originals are read",
                s->report.failed, s->report.files);
    pthread_mutex_lock(&s->lock);
    ls_stage_report *r = &s->report;
    r->seconds = (double)(ls_now() - s->begin) * 1e-9;
    if (s->read_seconds > 0) r->source_rate = (double)r->copied_bytes / s->read_seconds;
    if (s->verify_seconds > 0) r->local_rate = (double)r->copied_bytes / s->verify_seconds;
    judge(r);
    pthread_mutex_unlock(&s->lock);
    return status;
}

static void *run(void *arg)
{
    ls_stage *s = arg;
    if (stage_all(s) && !s->stop) ls__log(LS_LOG_WARNING, "%s; the original is read", ls_error());
    ls_stage_report r = ls_stage_get_report(s);
    if (s->stop || r.failed == r.files) return NULL;
    char rates[100] = "";
    if (r.verdict != LS_STAGE_UNMEASURED)
        snprintf(rates, sizeof rates, "; source %.1f MB/s, local %.1f MB/s", r.source_rate * 1e-6, r.local_rate * 1e-6);
    ls__log(LS_LOG_INFO, "staged in %s: %zu of %zu file%s, %zu copied now, %.1f s%s", s->folder, r.copied + r.found,
            r.files, ls__s((int64_t)r.files), r.copied, r.seconds, rates);
    return NULL;
}

ls_status ls_stage_open(ls_stage **out, const char *const *paths, size_t n_paths, const ls_stage_options *o)
{
    LS__NEED(out, "out");
    *out = NULL;
    LS__NEED(o, "options");
    if (!o->folder || !*o->folder) return ls__fail(LS_EINVAL, "staging: no folder given");
    ls_stage *s = calloc(1, sizeof *s);
    if (!s) return ls__fail(LS_ENOMEM, "staging: out of memory");
    s->o = *o;
    s->begin = ls_now();
    pthread_mutex_init(&s->lock, NULL);
    ls_status status = ls__stage_folder(o->folder, &s->folder);
    if (status) goto fail;
    status = ls__sources_open(&s->sources, paths, n_paths);
    if (status) goto fail;
    ls__sources_rest(&s->sources); /* only names and sizes are needed */
    s->most = ls__sources_keep();
    s->files = calloc(s->sources.count, sizeof *s->files);
    if (!s->files) {
        status = ls__fail(LS_ENOMEM, "staging: no memory for a list of %zu files", s->sources.count);
        goto fail;
    }
    s->report.files = s->sources.count;
    for (size_t i = 0; i < s->sources.count; i++) {
        s->files[i].copy.lock = -1;
        s->report.bytes += s->sources.files[i].bytes;
    }
    if (o->background) {
        status = ls__thread_start(&s->thread, "ls-stage", run, s);
        s->running = !status;
    } else {
        status = stage_all(s);
    }
    if (status) goto fail;
    *out = s;
    return LS_OK;
fail:
    ls_stage_free(&s);
    return status;
}

void ls_stage_free(ls_stage **stage)
{
    ls_stage *s = stage ? *stage : NULL;
    if (!s) return;
    s->stop = true;
    if (s->running) pthread_join(s->thread, NULL);
    for (size_t i = 0; s->files && i < s->sources.count; i++) {
        ls__copy_unlock(&s->files[i].copy);
        free(s->files[i].path);
    }
    free(s->files);
    free(s->folder);
    ls__sources_close(&s->sources);
    pthread_mutex_destroy(&s->lock);
    free(s);
    *stage = NULL;
}

const char *ls_stage_path(const ls_stage *s, size_t file)
{
    if (file >= s->sources.count) return NULL;
    /* In the background paths become valid at any time; only `ready` reports them. */
    return !s->o.background && s->files[file].path ? s->files[file].path : s->sources.files[file].path;
}

ls_stage_report ls_stage_get_report(const ls_stage *stage)
{
    ls_stage *s = (ls_stage *)(uintptr_t)stage; /* the lock is the only thing written */
    pthread_mutex_lock(&s->lock);
    ls_stage_report report = s->report;
    pthread_mutex_unlock(&s->lock);
    return report;
}

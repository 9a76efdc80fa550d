/* The files of a run: which there are, which are missing, and one clock for all. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file.h"
#include "record/event_file.h"
#include "base/status.h"
#include "base/text.h"
#include "measure/model.h"
#include "measure/read.h"

void ls__run_note(ls_run *run, ls_note_kind kind, int rank, int64_t number, const char *text)
{
    ls_note *notes = realloc(run->notes, (run->n_notes + 1) * sizeof *notes);
    if (!notes) return;
    run->notes = notes;
    run->notes[run->n_notes++] = (ls_note){
        .kind = kind, .rank = rank, .number = number, .text = text ? ls__printable_copy(text, strlen(text)) : NULL
    };
}

/* The highest rank that has a file; -1: there are none. */
static ls_status highest_rank(const char *folder, int *highest)
{
    *highest = -1;
    DIR *d = opendir(folder);
    if (!d) return ls__fail_errno("%s: cannot be read", folder);
    for (const struct dirent *e; (e = readdir(d));) {
        int rank, end = 0;
        if (sscanf(e->d_name, "rank-%6d.bin%n", &rank, &end) != 1 || !end || e->d_name[end] || rank < 0) continue;
        if (rank > *highest) *highest = rank;
    }
    closedir(d);
    return LS_OK;
}

/* Reads one file; *found if there is such a file. */
static ls_status read_one_file(ls_run_rank *r, const char *folder, int rank, const char *end, size_t newest_bytes,
                               bool *found)
{
    char *path;
    int fd;
    size_t bytes;
    *found = false;
    if (asprintf(&path, "%s/rank-%d%s", folder, rank, end) < 0) return ls__fail(LS_ENOMEM, "%s: out of memory", folder);
    ls_status status = ls__file_open(path, &fd, &bytes);
    *found = status != LS_ENOENT;
    if (!status) {
        status = ls__events_read(r, fd, bytes, newest_bytes);
        if (status) status = ls__fail_within(status, "%s", path);
        close(fd);
    }
    free(path);
    return status;
}

static int by_time(const void *a, const void *b)
{
    const ls_event *x = a, *y = b;
    return (x->time > y->time) - (x->time < y->time);
}

/* Events come nearly in order; where threads overtook each other, they are sorted. Insertion keeps equal times in order. */
static void sort_events(ls_run_rank *r)
{
    size_t moves = 0, limit = 64 * r->n_events;
    for (size_t i = 1; i < r->n_events; i++) {
        ls_event e = r->events[i];
        size_t k = i;
        for (; k && r->events[k - 1].time > e.time; k--, moves++) r->events[k] = r->events[k - 1];
        r->events[k] = e;
        if (moves > limit) { /* a hostile file, or one from elsewhere */
            qsort(r->events, r->n_events, sizeof *r->events, by_time);
            return;
        }
    }
}

/* Moves times to rank 0's clock. Offsets measured later hold from half-way between; between two they are joined by a line, so that
 * a clock that drifts does not jump. */
static void align(ls_run_rank *r)
{
    const ls_event *marks[64];
    size_t n = 0;
    for (size_t i = 0; i < r->n_events && n < 64; i++)
        if (r->events[i].kind == LS_EVENT_CLOCK) marks[n++] = &r->events[i];
    if (!n) return;
    int64_t time[64], ahead[64];
    for (size_t i = 0; i < n; i++) time[i] = marks[i]->time, ahead[i] = (int64_t)marks[i]->a;
    size_t k = 0;
    for (size_t i = 0; i < r->n_events; i++) {
        int64_t t = r->events[i].time;
        while (k + 1 < n && time[k + 1] <= t) k++;
        double offset = (double)ahead[k];
        if (k + 1 < n && t > time[k] && time[k + 1] > time[k])
            offset += (double)(ahead[k + 1] - ahead[k]) * (double)(t - time[k]) / (double)(time[k + 1] - time[k]);
        r->events[i].time = (int64_t)((uint64_t)t - (uint64_t)(int64_t)offset);
    }
    r->start = (int64_t)((uint64_t)r->start - (uint64_t)ahead[0]);
}

static struct stat look_at(const char *folder, int rank, const char *end)
{
    struct stat s;
    char *path;
    if (asprintf(&path, "%s/rank-%d%s", folder, rank, end) < 0) return (struct stat){ 0 };
    if (stat(path, &s)) s = (struct stat){ 0 };
    free(path);
    return s;
}

/* Both files. A fault of a file becomes a note. */
static ls_status read_rank(ls_run *run, ls_run_rank *r, const char *folder, int rank, size_t newest_bytes)
{
    bool found = false;
    ls_status status = LS_OK;
    size_t newest = (size_t)look_at(folder, rank, ".bin").st_size;
    if (!newest_bytes || newest < newest_bytes)
        status = read_one_file(r, folder, rank, ".old.bin", newest_bytes ? newest_bytes - newest : 0, &found);
    if (status && status != LS_ENOENT) {
        ls__run_note(run, LS_NOTE_UNREADABLE, rank, 0, ls_error());
        ls__events_free(r);
        if (status == LS_ENOMEM) return status;
    }
    status = read_one_file(r, folder, rank, ".bin", newest_bytes, &found);
    if (status == LS_ENOMEM) return status;
    if (status && found) ls__run_note(run, LS_NOTE_UNREADABLE, rank, 0, ls_error());
    return LS_OK;
}

/* *forgotten: how long before its first events the rank began, if it has more than one file. */
static ls_status load_rank(ls_run *run, const char *folder, int rank, size_t newest_bytes, int64_t *forgotten)
{
    enum { TRIES = 3 };
    ls_run_rank r = { 0 };
    for (int i = 0; i < TRIES; i++) {
        /* A new file begun between reading the one and the other would leave a gap. */
        struct stat before = look_at(folder, rank, ".old.bin"), after;
        size_t notes = run->n_notes;
        ls_status status = read_rank(run, &r, folder, rank, newest_bytes);
        after = look_at(folder, rank, ".old.bin");
        bool again = before.st_ino != after.st_ino && i + 1 < TRIES;
        if (status || again) ls__events_free(&r);
        if (status) return status;
        if (!again) break;
        while (run->n_notes > notes) free(run->notes[--run->n_notes].text);
    }
    if (r.present && r.rank != rank) {
        ls__run_note(run, LS_NOTE_WRONG_RANK, rank, r.rank, NULL);
        ls__events_free(&r);
    }
    if (r.present && r.cut) ls__run_note(run, LS_NOTE_TRUNCATED, rank, 0, NULL);
    if (r.invalid) ls__run_note(run, LS_NOTE_INVALID, rank, (int64_t)(r.invalid & INT64_MAX), NULL);
    if (r.lost) ls__run_note(run, LS_NOTE_LOST, rank, (int64_t)(r.lost & INT64_MAX), NULL);
    sort_events(&r);
    align(&r);
    sort_events(&r); /* offsets that a file claims may turn times round */
    r.rank = rank;
    run->rank[rank] = r;
    if (r.n_events && look_at(folder, rank, ".old.bin").st_ino)
        *forgotten = ls__max(*forgotten, r.events[0].time - r.start);
    return LS_OK;
}

static void note_missing(ls_run *run)
{
    int missing = 0, first = -1;
    for (int r = 0; r < run->ranks; r++)
        if (!run->rank[r].present && !missing++) first = r;
    if (missing) ls__run_note(run, LS_NOTE_MISSING, first, missing, NULL);
}

/* Ranks whose files are there decide how many there were. */
static ls_status count_ranks(ls_run *run, int files)
{
    int ranks = 0, present = 0;
    for (int r = 0; r < files; r++)
        if (run->rank[r].present && (!ranks || run->rank[r].start > run->rank[present].start)) {
            ranks = run->rank[r].ranks;
            present = r;
        }
    if (!ranks && run->n_notes && run->notes[0].text) return ls__fail(LS_EFORMAT, "%s", run->notes[0].text);
    if (!ranks) return ls__fail(LS_EFORMAT, "%s: no events could be read", run->path);
    ls_run_rank *all = realloc(run->rank, (size_t)(ranks > files ? ranks : files) * sizeof *all);
    if (!all) return ls__fail(LS_ENOMEM, "%s: no memory for %d ranks", run->path, ranks);
    run->rank = all;
    for (int r = files; r < ranks; r++) all[r] = (ls_run_rank){ .rank = r };
    for (int r = 0; r < files; r++)
        if (all[r].present && (r >= ranks || all[r].ranks != ranks)) {
            if (r < ranks) ls__run_note(run, LS_NOTE_WRONG_SIZE, r, all[r].ranks, NULL);
            ls__events_free(&all[r]);
            all[r].rank = r;
        }
    for (int r = ranks; r < files; r++) ls__events_free(&all[r]);
    run->ranks = ranks;
    note_missing(run);
    return LS_OK;
}

/* Why a folder has no events: an import without them is of the Flight Recorder's dumps, or was interrupted. */
static ls_status no_events(const char *run)
{
    char *path, begin[4096] = "";
    size_t bytes;
    int fd = -1;
    if (asprintf(&path, "%s/import.json", run) < 0) return ls__fail(LS_ENOMEM, "%s: out of memory", run);
    ls_status status = ls__file_open(path, &fd, &bytes);
    free(path);
    if (status)
        return ls__fail(LS_ENOENT,
                        "%s: no events were recorded there; a training run records them unless no_record is set", run);
    ssize_t n = pread(fd, begin, sizeof begin - 1, 0);
    begin[n > 0 ? n : 0] = 0;
    close(fd);
    if (strstr(begin, "this import was interrupted"))
        return ls__fail(LS_ENOENT, "%s: this import was interrupted; import the files again", run);
    return ls__fail(LS_ENOENT,
                    "%s: holds dumps of the Flight Recorder, which have no steps: 'lockstep report' shows them as text "
                    "or with --json",
                    run);
}

ls_status ls__run_load(ls_run *run, size_t newest_bytes)
{
    char *folder;
    struct stat s;
    if (asprintf(&folder, "%s/events", run->path) < 0) return ls__fail(LS_ENOMEM, "%s: out of memory", run->path);
    if (stat(folder, &s) || !S_ISDIR(s.st_mode)) strcpy(folder, run->path);
    int highest = -1;
    int64_t forgotten = 0;
    bool lost = false;
    ls_status status = LS_OK;
    if (!*run->path || (stat(run->path, &s) && errno == ENOENT))
        status = ls__fail(LS_ENOENT, "%s: no such folder", *run->path ? run->path : "''");
    else if (!stat(run->path, &s) && !S_ISDIR(s.st_mode))
        status = ls__fail(LS_EINVAL, "%s: is a file; name the folder of a run", run->path);
    else
        status = highest_rank(folder, &highest);
    if (!status && highest < 0) status = no_events(run->path);
    if (!status && !(run->rank = calloc((size_t)highest + 1, sizeof *run->rank)))
        status = ls__fail(LS_ENOMEM, "%s: no memory for %d ranks", run->path, highest + 1);
    for (int r = 0; r <= highest && !status; r++) {
        status = load_rank(run, folder, r, newest_bytes, &forgotten);
        run->ranks = r + 1;
    }
    if (!status) status = count_ranks(run, highest + 1);
    for (int r = 0; r < run->ranks; r++) lost = lost || (run->rank[r].present && run->rank[r].lost_files);
    /* Records that do not number their files have only the time. */
    if (!status && !newest_bytes && (lost || forgotten > 1000000000))
        ls__run_note(run, LS_NOTE_NO_BEGINNING, -1, forgotten, NULL);
    free(folder);
    return status;
}

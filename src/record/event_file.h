/* The files of a record: the events of a ring, streamed to disk.
 *
 *   FOLDER/rank-R.bin        the newest events
 *   FOLDER/rank-R.old.bin    earlier ones; a full rank-R.bin is renamed to this
 *
 * Each has at most LS__EVENT_FILE_SEGMENT bytes (more only if its beginning and one block need that). A file is
 *
 *   "LSEVENTS"               8 bytes
 *   u32, u32                 version (1), length of the header
 *   header                   JSON: rank, host...; see record.c. If events come from a ring: segment, the number of
 *                            files before this one, and segment_bytes
 *   u64                      XXH3 of everything before it
 *   blocks                   each an ls__event_file_block and its payload
 *
 * all little-endian. Blocks have checksums, so a truncated file, or one that is still being written, can be read up to its last
 * complete block. Events of a payload are, as LEB128 numbers: kind, thread, time since the event before (zigzag; since the block's
 * `time` for the first), a, b. Names are: kind, index, length, bytes.
 *
 * Metadata, clock and names are kept, also before a file is started, and written at the beginning of each segment. Files are not
 * synced, because that would cost more than a record is worth. One thread at a time. */
#ifndef LS_RECORD_EVENT_FILE_H
#define LS_RECORD_EVENT_FILE_H

#include <stdbool.h>
#include "record/ring.h"

#define LS__EVENT_FILE_MAGIC       "LSEVENTS"
#define LS__EVENT_FILE_VERSION     1u
#define LS__EVENT_FILE_BLOCK_MAGIC 0x4245534cu /* "LSEB" */
#define LS__EVENT_FILE_BLOCK_BYTES (1u << 16)  /* payload of a block, at most */
#define LS__EVENT_FILE_SEGMENT     (32u << 20) /* bytes of a file */
#define LS__EVENT_FILE_HEAD        (1u << 16)  /* bytes of a head, at most */
/* What a head may contain, for writer and reader: the number of ranks or of a node, and segment_bytes. */
#define LS__EVENT_FILE_MAX_RANKS   (1 << 16)
#define LS__EVENT_FILE_MAX_SEGMENT ((size_t)1 << 40)

typedef enum ls__event_file_content { LS__EVENT_FILE_EVENTS = 0, LS__EVENT_FILE_NAMES = 1 } ls__event_file_content;

typedef struct ls__event_file_block {
    uint64_t sum; /* XXH3 of the fields after it and the payload */
    uint32_t magic;
    uint32_t content;
    uint32_t bytes; /* of the payload */
    uint32_t count; /* of events or names */
    int64_t time;   /* ls_now(); the first event's time is relative to it */
} ls__event_file_block;

typedef struct ls__event_file ls__event_file;

/* Without a file yet. The ring must outlive it; NULL: events come from ls__event_file_add() only. Returns NULL if memory runs out. */
ls__event_file *ls__event_file_new(const ls__ring *ring);
/* Starts the file of `rank` in `folder`, which is created; existing files are replaced. `head` is a JSON object. Events that
 * are in the ring and in no earlier file are written, too. `segment_bytes`: 0: LS__EVENT_FILE_SEGMENT. */
LS_MUST_CHECK ls_status ls__event_file_start(ls__event_file *f, const char *folder, int rank, const char *head,
                                             size_t segment_bytes);
/* Whether a file is being written: started, not stopped, and no write failed. */
bool ls__event_file_is_open(const ls__event_file *f);
/* Reads all events of the ring, and writes them if they fill a block, or if `now`. After a failed write, which is logged once, later
 * calls write nothing. */
void ls__event_file_drain(ls__event_file *f, bool now);
/* Adds an event of any time, which the file's own events (its end, metadata) then have, too. For records that do not come from a
 * ring. */
void ls__event_file_add(ls__event_file *f, const ls_event *e);
/* The same if the ring is at least a quarter full, for steps with many events. */
void ls__event_file_drain_if_full(ls__event_file *f);
/* Skips the events that are in the ring now. */
void ls__event_file_skip(ls__event_file *f);
void ls__event_file_metadata(ls__event_file *f, ls_metadata_kind kind, double value);
void ls__event_file_clock(ls__event_file *f, int64_t ahead, int64_t uncertainty);
void ls__event_file_name(ls__event_file *f, ls_name_kind kind, uint32_t index, const char *text);
/* Writes the rest and closes. False: no file was open, or not all was written. */
bool ls__event_file_stop(ls__event_file *f);
/* Stops and frees. Accepts NULL. */
void ls__event_file_free(ls__event_file **f);

#endif

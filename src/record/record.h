/* The record of a rank: its ring's events, streamed to a file.
 *
 *   FOLDER/rank-R.bin        the newest events
 *   FOLDER/rank-R.old.bin    those before; when rank-R.bin is full it takes this name
 *
 * So a rank's record is never larger than twice LS__RECORD_SEGMENT, however long it runs. A file is
 *
 *   "LSEVENTS"               8 bytes
 *   u32, u32                 version (1), length of the head
 *   head                     JSON: who wrote it; see ls__record_open()
 *   u64                      XXH3 of all before
 *   blocks                   each an ls__record_block and its payload
 *
 * all little-endian. A block has a checksum, so a file that was cut off, or is still being written, is read up to there. Events
 * of a payload are, as LEB128 numbers: kind, thread, time since the event before (zigzag; since the block's `time` for the
 * first), a, b. Names are: kind, index, length, bytes.
 *
 * Facts, clocks and names are written again at the head of each segment. Nothing is synced: a record is worth less than the
 * time that would take. One thread at a time. */
#ifndef LS_RECORD_RECORD_H
#define LS_RECORD_RECORD_H

#include "record/ring.h"

#define LS__RECORD_MAGIC       "LSEVENTS"
#define LS__RECORD_VERSION     1u
#define LS__RECORD_BLOCK_MAGIC 0x4245534cu /* "LSEB" */
#define LS__RECORD_BLOCK_BYTES (1u << 16)  /* payload of a block, at most */
#define LS__RECORD_SEGMENT     (32u << 20) /* bytes of a file */
#define LS__RECORD_HEAD        (1u << 16)  /* bytes of a head, at most */

typedef enum ls__record_content { LS__RECORD_EVENTS = 0, LS__RECORD_NAMES = 1 } ls__record_content;
typedef enum ls__name_kind { LS__NAME_SPAN = 0, LS__NAME_OPERATION = 1, LS__NAME_THREAD = 2 } ls__name_kind;

typedef struct ls__record_block {
    uint64_t sum; /* XXH3 of the fields behind it and the payload */
    uint32_t magic;
    uint32_t content;
    uint32_t bytes; /* of the payload */
    uint32_t count; /* of events or names */
    int64_t time;   /* ls_now() that the first event's time counts from */
} ls__record_block;

typedef struct ls__record ls__record;

/* Starts the record of `rank` in `folder`, which is made; what was there is gone. `head` is a JSON object. Events
 * that are in the ring already are taken, too. `segment_bytes`: 0: LS__RECORD_SEGMENT. The ring must outlive the record. */
LS_MUST_CHECK ls_status ls__record_open(ls__record **out, const char *folder, int rank, const char *head,
                                        const ls__ring *ring, size_t segment_bytes);
/* Takes what is in the ring, and writes it when there is a block of it, or if `now`. A disk that is full or gone stops the
 * record, not the program: it is logged once, and later calls do nothing. */
void ls__record_drain(ls__record *r, int now);
/* Takes what is in the ring if that is a quarter of what it holds: within steps that make many events. */
void ls__record_relieve(ls__record *r);
/* What is in the ring now is not recorded. */
void ls__record_skip(ls__record *r);
void ls__record_fact(ls__record *r, ls__fact_kind fact, double value);
void ls__record_clock(ls__record *r, int64_t ahead, int64_t uncertainty);
void ls__record_name(ls__record *r, ls__name_kind kind, uint32_t index, const char *text);
/* Writes the rest and closes. Takes NULL. */
void ls__record_close(ls__record **r);

#endif

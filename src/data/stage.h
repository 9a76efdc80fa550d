/* Staging, the parts: the folder of copies and its locks, and the copying of one file. */
#ifndef LS_DATA_STAGE_H
#define LS_DATA_STAGE_H

#include "data/source.h"
#include "lockstep/data.h"

/* This user's private subfolder of `folder`, to be freed; both are created if they do not exist. One that other users can access or
 * own is LS_EINVAL. On failure *out is NULL. */
LS_MUST_CHECK ls_status ls__stage_folder(const char *folder, char **out);

/* A copy in the folder. Its files are KEY.data (the copy), KEY.meta (what it is of, and its checksum), KEY.part (while it
 * is made) and KEY.lock. */
typedef struct ls__copy {
    const char *folder;
    char key[33];             /* hash of path and identity */
    const _Atomic bool *stop; /* give up waiting and copying */
    int lock;                 /* descriptor that holds the lock; -1: none */
} ls__copy;

void ls__copy_name(ls__copy *c, const char *real_path, const ls__identity *id);

/* "FOLDER/KEY.suffix", to be freed; NULL: no memory. */
char *ls__copy_path(const ls__copy *c, const char *suffix);

/* Takes the copy's lock, shared (it is being read) or exclusive (it is being made or removed), waiting until it is
 * free. One that is held already is changed. An exclusive one does not wait for readers for long: LS_EIO. */
LS_MUST_CHECK ls_status ls__copy_lock(ls__copy *c, bool exclusive);
void ls__copy_unlock(ls__copy *c);

/* Whether the copy exists and is complete; `verify` reads it and compares checksums. The lock is held when called. */
bool ls__copy_valid(const ls__copy *c, const ls__identity *id, bool verify);

/* Opens KEY.part with `bytes` set aside for it; other copies are removed if they must be. The lock is held, exclusive. */
LS_MUST_CHECK ls_status ls__copy_make_room(ls__copy *c, uint64_t bytes, uint64_t limit, int *part);

/* What copying one file measured. */
typedef struct ls__copy_times {
    double read_seconds;   /* the original */
    double verify_seconds; /* the copy */
} ls__copy_times;

/* Copies `fd` into `part`, which it closes, checks the copy and puts it in its place. LS_PENDING: the original was
 * changed meanwhile; nothing is kept. `done` is called with the bytes, for progress. The lock is held, exclusive. */
LS_MUST_CHECK ls_status ls__copy_make(ls__copy *c, const char *path, int fd, const ls__identity *id, int part,
                                      void (*done)(void *user, uint64_t bytes), void *user, ls__copy_times *times);

/* Reads `bytes` of a file and hashes them; the hash as 32 hexadecimal digits. */
LS_MUST_CHECK ls_status ls__copy_hash(int fd, uint64_t bytes, const _Atomic bool *stop, char hash[33]);

#endif

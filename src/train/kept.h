/* An elastic run: its state outlives its ranks, in kept memory (comm/kept.h).
 *
 * Weights, optimizer state and the sums of the gradients are there, and no rank has anything else that the run needs: data order
 * and dropout are functions of step and slot. A step is a transaction:
 *
 *   gather  gradients are computed and summed. Nothing that is kept changes but the sums. A death: the ranks of the next generation
 *           compute the slots that no rank had finished (kept_rest.c).
 *   apply   weights and state are updated in place, block by block. Before a rank changes a block it copies it to its undo slot;
 *           after that it notes the step in the block's version. A death: the next generation restores blocks that were being
 *           changed, and updates those whose version is still the old one, from the same sums, with the same learning rate.
 *   finish  the first rank evaluates, writes the line of metrics and starts a checkpoint. A death: done again.
 *
 * Which of them the run is in follows from three marks: begun, done and finished. */
#ifndef LS_TRAIN_KEPT_H
#define LS_TRAIN_KEPT_H

#include <stdbool.h>
#include "comm/kept.h"
#include "lockstep/train.h"

/* Numbered points at which tests kill ranks: see ls__kept_point(). */
enum {
    LS__POINT_OPENING = 1,
    LS__POINT_OPENED, /* before the state is ready */
    LS__POINT_STEP,   /* before gradients are computed */
    LS__POINT_GATHERED,
    LS__POINT_BEFORE_UNDO,
    LS__POINT_UNDO_EMPTY,
    LS__POINT_UNDO_SET,
    LS__POINT_HALF_UPDATED,
    LS__POINT_UPDATED, /* a block, before its version */
    LS__POINT_VERSION_SET,
    LS__POINT_APPLIED,
    LS__POINT_DONE, /* the mark is set; before evaluation, metrics and checkpoint */
    LS__POINT_EVALUATED,
    LS__POINT_LINE_WRITTEN,
    LS__POINT_CHECKPOINT,
    LS__POINT_FINISHED,
    LS__POINT_RECOVERY, /* before torn blocks are restored */
    LS__POINT_RESTORED,
    LS__POINT_COMPLETED,  /* an interrupted update was completed */
    LS__POINT_SAVING,     /* the final model */
    LS__POINT_SLOT_ADDED, /* a slot is in a sum, before that is noted */
    LS__POINT_SLOT_NOTED,
    LS__POINT_REST_COMPUTED, /* of an interrupted step: before all sums are added up */
    LS__POINT_REST_SUMMED,
    LS__POINTS,
};

struct ls__train_kept;

/* Whether the run is elastic. Then takes what the first generation has decided from kept memory: slots, run folder, and whether to
 * resume. */
LS_MUST_CHECK ls_status ls__train_kept_join(ls_train *t);
/* Notes what the first generation has decided. */
void ls__train_kept_note_shape(ls_train *t);
void ls__train_kept_note_run_dir(const ls_train *t);
/* All ranks: makes room for the state in the first generation, and maps it. */
LS_MUST_CHECK ls_status ls__train_kept_open(ls_train *t);
void ls__train_kept_close(ls_train *t);
/* Where weights, state and sums are. */
float *ls__train_kept_values(const ls_train *t);
float *ls__train_kept_state(const ls_train *t);
float *ls__train_kept_sums(const ls_train *t);
struct ls__update_marks *ls__train_kept_marks(const ls_train *t);
/* Whether this is not the run's first generation. */
bool ls__train_kept_is_continued(const ls_train *t);
/* Whether an earlier generation has left a state. */
bool ls__train_kept_is_ready(const ls_train *t);
/* All ranks, once model and optimizer are there: restores and completes what was interrupted; then the run is at a step's end. */
LS_MUST_CHECK ls_status ls__train_kept_resume(ls_train *t);
/* The step whose line of metrics was written last. */
int64_t ls__train_kept_finished(const ls_train *t);
/* All ranks, at the end of opening: finishes the last step if that was interrupted. Then the state is ready. */
LS_MUST_CHECK ls_status ls__train_kept_start(ls_train *t);

/* Once the reducer is there: gets places for this rank's sums, and notes from now on what is there. */
LS_MUST_CHECK ls_status ls__train_kept_open_sums(ls_train *t);
/* Before the first micro-batch of a step: where the losses and tokens of this rank's slots will be. */
void ls__train_kept_begin(ls_train *t, const double *losses, const double *tokens);
/* Whether an interrupted step is to be completed: then ls__train_kept_run_rest() computes and sums what is missing of it, in place of all
 * micro-batches. shares[LS__TOKENS]: of what was computed now. */
bool ls__train_kept_has_rest(const ls_train *t);
LS_MUST_CHECK ls_status ls__train_kept_run_rest(ls_train *t, ls_train_metrics *m, double *shares, double *weight);
/* Whether the sums of this step, and their squares, are complete already. */
bool ls__train_kept_is_summed(const ls_train *t);
/* Before this rank's gradients are freed: what it has summed of the next step is no longer there. */
void ls__train_kept_forget_sums(ls_train *t);

/* First rank, before it arrives at the update: what the update needs, should others have to complete it. */
void ls__train_kept_note_step(ls_train *t, float lr, float grad_scale, const ls_train_metrics *m);
/* Updates elements [begin, end), those of them that are not updated yet. */
void ls__train_kept_update(ls_train *t, size_t begin, size_t end, float lr, float grad_scale);
/* The step was skipped: all ranks, after the last one has read the sums. */
void ls__train_kept_skip(ls_train *t);
/* First rank: the step is finished. */
void ls__train_kept_finish(ls_train *t);

/* Ranks that want to leave, for the sum over the ranks; on the first rank, also whether a resize was requested. */
double ls__train_kept_change(ls_train *t);
/* The sum over the ranks: the generation ends after this step if it is not 0. */
void ls__train_kept_agree(ls_train *t, double sum);

/* This rank got SIGTERM: it leaves after the step, and the others continue. May be called from a signal handler. */
void ls__train_leave_job(ls_train *t);
/* The generation ends, and the run does not. */
bool ls__train_is_changing(const ls_train *t);

#endif

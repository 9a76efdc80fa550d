/* Figures that reports show. Each is computed here and nowhere else, so that text, page and JSON agree. */
#include <math.h>
#include "measure/limits.h"
#include "measure/model.h"

/* The mean of a number over the counted steps of one rank, or of all (rank < 0). */
static double mean_of(const ls_run *run, int rank, double (*of)(const ls_step_rank *s, int phase), int phase)
{
    double sum = 0, count = 0;
    if (rank >= run->ranks || phase < 0 || phase >= LS_PHASE_COUNT) return 0;
    for (size_t i = run->first_counted; i < run->n_steps; i++)
        for (int r = rank < 0 ? 0 : rank; r < (rank < 0 ? run->ranks : rank + 1); r++)
            if (run->steps[i].rank[r].present) sum += of(&run->steps[i].rank[r], phase), count++;
    return count > 0 ? sum / count : 0;
}

static double phase_ns(const ls_step_rank *s, int phase)
{
    return (double)s->ns[phase];
}
static double wall_ns(const ls_step_rank *s, int phase)
{
    (void)phase;
    return (double)(s->end - s->begin);
}
static double overlapped_ns(const ls_step_rank *s, int phase)
{
    (void)phase;
    return (double)s->overlapped;
}

static double unscheduled_ns(const ls_step_rank *s, int phase)
{
    return (double)s->sched_delay[phase] + (double)s->steal[phase];
}

double ls_run_mean(const ls_run *run, int rank, ls_phase phase)
{
    return mean_of(run, rank, phase_ns, (int)phase);
}

void ls__run_set_step(ls_run *run)
{
    run->step_mean = mean_of(run, -1, wall_ns, 0);
    for (int r = 0; r < run->ranks && !(run->tokens > 0); r++)
        if (run->rank[r].present && run->rank[r].metadata[LS_METADATA_TOKENS] > 0)
            run->tokens = run->rank[r].metadata[LS_METADATA_TOKENS];
}

double ls_run_overlapped(const ls_run *run, int rank)
{
    return mean_of(run, rank, overlapped_ns, 0);
}

double ls_run_unscheduled(const ls_run *run, int rank, ls_phase phase)
{
    return mean_of(run, rank, unscheduled_ns, (int)phase);
}

ls_comm_mean ls_run_get_comm_mean(const ls_run *run, const ls_comm_row *c)
{
    double n = (double)(run->n_steps - run->first_counted), busy = (double)c->busy;
    int members = 0;
    for (int r = 0; r < run->ranks; r++) members += run->rank[r].present;
    if (!(n > 0)) n = 1;
    return (ls_comm_mean){
        .count = (double)c->count / n,
        .bytes = (double)c->bytes / n,
        .busy = busy / n,
        .exposed = (double)c->exposed / n,
        .waited = (double)c->waited / n / (members ? members : 1),
        .hidden = busy > 0 ? 1 - fmin(1, (double)c->exposed / busy) : (double)NAN,
        .rate = busy > 0 && c->bytes >= LS__LATENCY_BYTES * c->count ? (double)(c->network ? c->wire : c->bytes) / busy
                                                                     : (double)NAN,
        .of_peak = busy > 0 && c->bound > 0 ? (double)c->bound / busy : (double)NAN,
    };
}

ls_run_loading ls_run_get_loading(const ls_run *run, int rank)
{
    double steps = 0, wall = 0, batches = 0, missed = 0, queue = 0, build = 0, data = 0, read = 0,
           workers = run->rank[rank].metadata[LS_METADATA_WORKERS];
    for (size_t i = run->first_counted; i < run->n_steps; i++) {
        const ls_step_rank *s = &run->steps[i].rank[rank];
        if (!s->present) continue;
        steps++;
        wall += (double)(s->end - s->begin);
        batches += s->batches;
        missed += s->batches_missed;
        queue += s->batches_ready;
        build += (double)s->batch_ns;
        data += (double)s->ns[LS_PHASE_DATA];
        read += (double)s->read_bytes;
    }
    if (!run->rank[rank].present || !(batches > 0)) return (ls_run_loading){ 0 };
    return (ls_run_loading){
        .batches = batches / steps,
        .build = build / batches,
        .waited = data / steps,
        .ready = 1 - missed / batches,
        .queue = queue / batches,
        .workers = workers >= 0 ? workers : (double)NAN,
        .busy = workers >= 1 && wall > 0 ? fmin(1, build / wall / workers) : (double)NAN,
        .read_bytes = read / steps,
    };
}

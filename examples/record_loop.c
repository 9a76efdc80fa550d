/* Records a loop that uses no collective of lockstep, and explains where its time went.
 *
 *     cc record_loop.c -o record_loop $(pkg-config --cflags --libs lockstep)
 *     ./record_loop loop/events 2        # two processes; then: lockstep report loop */
#include <lockstep/measure.h>
#include <lockstep/record.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void compute(int64_t us)
{
    for (int64_t end = ls_now() + 1000 * us; ls_now() < end;) {
    }
}

/* One process: rank `rank` of `ranks`. Its data comes slowly from somewhere. */
static ls_status work(const char *folder, int rank, int ranks)
{
    ls_record *record;
    ls_status status = ls_record_open(&record, folder, &(ls_record_options){ .rank = rank, .ranks = ranks });
    if (status) return status;
    ls_record_metadata(record, LS_METADATA_TOKENS, 1000 * ranks);
    for (int step = 1; step <= 50; step++) {
        ls_record_step(record, step);
        ls_record_begin(record, LS_PHASE_DATA);
        nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
        ls_record_end(record, LS_PHASE_DATA);
        ls_record_begin(record, LS_PHASE_FORWARD);
        compute(500);
        ls_record_end(record, LS_PHASE_FORWARD);
    }
    ls_record_free(&record);
    return LS_OK;
}

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : "events";
    int ranks = argc > 2 ? atoi(argv[2]) : 1;
    for (int rank = 0; rank < ranks; rank++)
        if (fork() == 0) _exit(work(folder, rank, ranks) ? 1 : 0);
    while (wait(NULL) > 0) {
    }
    ls_run *run;
    if (ls_run_open(&run, folder, NULL)) {
        fprintf(stderr, "record_loop: %s\n", ls_error());
        return 1;
    }
    printf("%zu steps, %.3f ms each\n", run->n_steps, run->step_mean / 1e6);
    for (int p = 0; p < LS_PHASE_COUNT; p++)
        if (ls_run_mean(run, -1, p) > 0) printf("%8.3f ms %s\n", ls_run_mean(run, -1, p) / 1e6, ls_phase_name(p));
    for (size_t i = 0; i < run->n_findings; i++)
        printf("finding: %s in %s, rank %d, costs %.3f ms per step\n", ls_finding_name(run->findings[i].kind),
               ls_phase_name(run->findings[i].phase), run->findings[i].rank, (double)run->findings[i].cost / 1e6);
    ls_run_free(&run);
    return 0;
}

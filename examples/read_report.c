/* Reads the record of a run and prints the numbers that `lockstep report` shows.
 *
 *     cc read_report.c -o read_report $(pkg-config --cflags --libs lockstep)
 *     lockstep train -n 2 --steps 20 --run-dir runs/a
 *     ./read_report runs/a
 *
 * The run may be from `lockstep train` or from a program that records (mlp.c); it may still be running. */
#include <stdio.h>
#include <lockstep/measure.h>

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: read_report RUN\n");
        return 2;
    }
    ls_run *run = NULL;
    if (ls_run_open(&run, argv[1], NULL)) {
        fprintf(stderr, "read_report: %s\n", ls_error());
        return 1;
    }
    printf("%d ranks, %zu steps, %.3f ms per step\n", run->ranks, run->n_steps, run->step_mean / 1e6);
    for (int p = 0; p < LS_PHASE_COUNT; p++) {
        double mean = ls_run_mean(run, -1, (ls_phase)p); /* of all ranks */
        if (mean > 0) printf("  %-14s %8.3f ms\n", ls_phase_name((ls_phase)p), mean / 1e6);
    }
    for (size_t i = 0; i < run->n_findings; i++) { /* most expensive first; `lockstep report` has the sentences */
        const ls_finding *f = &run->findings[i];
        printf("finding: %s, %s", ls_finding_name(f->kind), ls_phase_name(f->phase));
        if (f->rank >= 0) printf(", rank %d", f->rank);
        printf(": costs %.3f ms per step, seen in %lld steps\n", (double)f->cost / 1e6, (long long)f->steps);
    }
    ls_run_free(&run);
    return 0;
}

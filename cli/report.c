/* lockstep report RUN: where the time went. */
#include <stdio.h>
#include "cli/commands.h"
#include "cli/options.h"
#include "lockstep/measure.h"

static const char intro[] = "usage: lockstep report RUN [OPTIONS]\n";

int report_command(int argc, char **argv)
{
    const option_row rows[] = { { OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, NULL } };
    const char *path = NULL;
    int code = options_read("report", intro, rows, &path, argc, argv);
    if (code >= 0) return code;
    ls_run *run;
    if (ls_run_open(&run, path ? path : "runs/last", NULL)) {
        fprintf(stderr, "lockstep report: %s\n", ls_error());
        return EXIT_FAILED;
    }
    for (size_t i = 0; i < run->n_notes; i++) printf("note: %s\n", run->notes[i]);
    printf("%zu steps, %zu meetings, step %.3f ms\n", run->n_steps, run->n_meetings, ls_run_step_mean(run) / 1e6);
    for (int r = 0; r < run->ranks; r++) {
        double sum = 0;
        printf("rank %d:", r);
        for (int p = 0; p < LS_PHASES; p++) {
            printf(" %s %.3f", ls_phase_name((ls_phase)p), ls_run_mean(run, r, (ls_phase)p) / 1e6);
            sum += ls_run_mean(run, r, (ls_phase)p) / 1e6;
        }
        printf(" sum %.3f; events %zu pieces %zu\n", sum, run->rank[r].n_events, run->rank[r].n_pieces);
    }
    ls_run_free(&run);
    return EXIT_DONE;
}

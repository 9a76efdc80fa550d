/* The generations of an elastic run (RUN/generations.jsonl), for report and top. */
#ifndef LS_CLI_GENERATIONS_H
#define LS_CLI_GENERATIONS_H

#include <jansson.h>
#include "cli/report.h"

/* An array of the file's objects, the oldest first; NULL: the run is not elastic, or the file cannot be read. The caller frees it. */
json_t *generations_read(const char *run);
/* What happened to the ranks, printed after the title. */
void generations_report(const ls_run *run, const report_form *form);
/* "3 ranks since step 52: rank 1 was killed..."; "" if the number of ranks has never changed. */
void generations_newest(const char *run, char *out, size_t bytes);

#endif

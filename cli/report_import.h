/* What an import noted about its files and devices (RUN/import.json), for the report. */
#ifndef LS_CLI_REPORT_IMPORT_H
#define LS_CLI_REPORT_IMPORT_H

#include <jansson.h>
#include "cli/report.h"

/* RUN/import.json; NULL: the run was not imported, or it cannot be read. The caller frees it. */
json_t *report_import_read(const char *run);
/* Its notes, printed after the title. */
void report_import_notes(const ls_run *run, const report_form *form);
/* What GPUs did, printed after the tables. */
void report_import_devices(const ls_run *run, const report_form *form);
/* If the host lets a device wait for its launches, or for data, in a twentieth of the time or more: where that is most, what to
 * change and what it can gain. `ranks`: of import.json. */
bool report_import_idle(const json_t *ranks, bool data, char *out, size_t bytes);
/* If RUN holds dumps of the Flight Recorder: what they show of a job that hangs. False: it does not. */
bool report_flight(const char *run, const report_form *form, bool json);

#endif

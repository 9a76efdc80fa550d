/* Findings: what the files that make them share. A finding is numbers and enums; cli/findings_text.c has the sentences. */
#ifndef LS_MEASURE_FINDINGS_H
#define LS_MEASURE_FINDINGS_H

#include "measure/model.h"
#include "record/data_stall.h"

/* Adds a finding about all ranks, seen in all counted steps, that costs `cost` ns of a step; NULL: no memory, or too many. */
ls_finding *ls__finding_add(ls_run *run, ls_finding_kind kind, ls_phase phase, ls_remedy remedy, double cost);

/* comm.c: collectives by kind, with the least time that they could take. */
LS_MUST_CHECK ls_status ls__sum_comm(ls_run *run);
/* stragglers.c: ranks that make others wait, by phase; slow cores; and contention. */
LS_MUST_CHECK ls_status ls__find_stragglers(ls_run *run);
/* job_findings.c: what all ranks lose alike: data, checkpoints, evaluation, steal, imbalance, and what comm_findings.c finds. */
LS_MUST_CHECK ls_status ls__find_for_job(ls_run *run);
/* comm_findings.c: buckets, overlap, exposed communication. */
LS_MUST_CHECK ls_status ls__find_in_comm(ls_run *run);

/* job_findings.c: the mean time of a phase on the rank that has least of it: what all ranks spend. */
double ls__common(const ls_run *run, ls_phase phase);
/* What rank r loaded, per counted step. */
ls__data_load ls__data_load_of(const ls_run *run, int rank);
/* Metadata of the first rank that is present. */
double ls__metadata(const ls_run *run, ls_metadata_kind kind);

#endif

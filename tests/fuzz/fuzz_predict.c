/* Predictions from records that say anything: steps, metadata and the set-up are made of the bytes. Whatever is predicted are numbers
 * that add up. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "record/event_file.h"
#include "lockstep/predict.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct input {
    const uint8_t *at, *end;
} input;

static uint64_t take(input *in, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++) value = value << 8 | (in->at < in->end ? *in->at++ : 1);
    return value;
}

/* Any bits, or a number that a record may have. */
static double take_number(input *in)
{
    uint64_t bits = take(in, 1), n;
    double x;
    if (bits & 1) return (double)take(in, 2) / (double)(1 + (bits >> 2));
    n = take(in, 8);
    memcpy(&x, &n, sizeof x);
    return x;
}

typedef struct writer {
    ls__event_file *file;
    int64_t time;
} writer;

static void add(writer *w, ls_event_kind kind, uint64_t a, uint64_t b)
{
    ls__event_file_add(w->file, &(ls_event){ .time = w->time, .kind = kind, .a = a, .b = b });
}

static void add_phase(writer *w, input *in, ls_phase phase)
{
    uint64_t spans = phase == LS_PHASE_BACKWARD ? 3 : 0;
    add(w, LS_EVENT_PHASE_BEGIN, phase, 0);
    for (uint64_t i = 0; i < spans; i++) {
        w->time += (int64_t)take(in, 2) << 4;
        add(w, LS_EVENT_SPAN_READY, i, take(in, take(in, 1) & 8 ? 8 : 3) << 16 | (take(in, 1) & 3));
    }
    w->time += (int64_t)take(in, 2) << (take(in, 1) & 15);
    add(w, LS_EVENT_PHASE_END, phase, 0);
}

static void add_step(writer *w, input *in, uint64_t step)
{
    add(w, LS_EVENT_STEP, step, 0);
    for (uint64_t slots = 1 + take(in, 1) % 4; slots > 0; slots--) {
        add_phase(w, in, LS_PHASE_DATA);
        add(w, LS_EVENT_BATCH, take(in, 3), take(in, 2));
        add_phase(w, in, LS_PHASE_FORWARD);
        add(w, LS_EVENT_SEGMENT, take(in, 3), take(in, 8));
        add_phase(w, in, LS_PHASE_BACKWARD);
    }
    uint64_t call = step << 2 | 1;
    add(w, LS_EVENT_COLL_START, call, take(in, 4));
    w->time += (int64_t)take(in, 2);
    add(w, LS_EVENT_COLL_DONE, call, take(in, 2));
    add(w, LS_EVENT_BLOCKED, call, take(in, 2));
    add(w, LS_EVENT_SAMPLE, LS_SAMPLE_BUSY, take(in, 4));
    add(w, LS_EVENT_SAMPLE, LS_SAMPLE_CPU, take(in, 4));
    add_phase(w, in, LS_PHASE_UPDATE);
}

static void write_rank(const char *folder, input *in, int rank, int ranks, uint64_t steps)
{
    char head[200];
    writer w = { .file = ls__event_file_new(NULL), .time = 1000000 };
    snprintf(head, sizeof head, "{\"rank\":%d,\"ranks\":%d,\"node\":%d,\"host\":\"h\",\"threads\":1,\"start\":1}", rank,
             ranks, (int)(take(in, 1) & 1));
    if (!w.file || ls__event_file_start(w.file, folder, rank, head, 0)) abort();
    for (int i = 0; i < LS_METADATA_COUNT; i++)
        if (take(in, 1) & 3) ls__event_file_metadata(w.file, (ls_metadata_kind)i, take_number(in));
    for (uint32_t i = 0; i < 3; i++) ls__event_file_name(w.file, LS_NAME_SPAN, i, "g");
    for (uint64_t s = 1; s <= steps; s++) add_step(&w, in, s);
    add(&w, LS_EVENT_STEP, steps + 1, 0);
    ls__event_file_free(&w.file);
}

static void check(const ls_predictor *p, const ls_setup *s)
{
    ls_prediction out;
    double sum = 0;
    if (ls_predict(p, s, &out)) return;
    for (int i = 0; i < LS_TERM_COUNT; i++) sum += out.term[i];
    if (!isfinite(out.step) || !(out.low <= out.step && out.step <= out.high) || !isfinite(sum) ||
        fabs(sum - out.step) > 1e-6 * fabs(out.step) + 1 || out.efficiency != out.efficiency)
        __builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char folder[] = "/tmp/lockstep-fuzz-XXXXXX", path[96];
    input in = { data, data + size };
    int ranks = 1 + (int)(take(&in, 1) % 3);
    uint64_t steps = 8 + take(&in, 1) % 16;
    ls_setup setup = { .ranks = (int)take(&in, 2), .nodes = (int)take(&in, 1), .slots = (int)take(&in, 3) };
    setup.bucket_bytes = take(&in, 3);
    setup.wire_bytes = (int)(take(&in, 1) & 3) * 2;
    setup.overlap = (ls_overlap)(take(&in, 1) & 3);
    setup.link_rate = take_number(&in);
    setup.link_latency = take_number(&in);
    setup.workers = (int)take(&in, 1) - 1;
    setup.prefetch = (int)take(&in, 1);
    setup.slow_rank = take_number(&in);
    setup.cores = take_number(&in);
    if (!mkdtemp(folder)) abort();
    for (int r = 0; r < ranks; r++) write_rank(folder, &in, r, ranks, steps);
    ls_run *run;
    ls_predictor *p;
    if (!ls_run_open(&run, folder, NULL)) {
        if (!ls_predictor_open(&p, run)) {
            check(p, NULL);
            check(p, &setup);
            setup.cores = setup.slow_rank = 0;
            check(p, &setup);
            check(p, &(ls_setup){ .ranks = 5, .slots = 9, .nodes = 2, .link_rate = 1 });
            ls_predictor_free(&p);
        }
        ls_run_free(&run);
    }
    for (int r = 0; r < ranks; r++) {
        snprintf(path, sizeof path, "%s/rank-%d.bin", folder, r);
        unlink(path);
    }
    rmdir(folder);
    return 0;
}

/* Predictions: a replay of the recorded set-up shows what the model leaves unexplained; a replay of the other set-up, many times
 * with compute times drawn from the recorded ones, gives its steps. See lockstep/predict.h and docs/PREDICT.md. */
#include "lockstep/predict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "measure/stats.h"
#include "predict/profile.h"
#include "predict/replay.h"

enum {
    DRAWS = 400, /* steps that are replayed */
    MAX_RANKS = 10000000,
};

/* How far a change of a term may be off, as a share of the change. docs/PREDICT.md describes how they were found. */
static const double doubt[LS_TERM_COUNT] = {
    [LS_TERM_DATA] = 0.20, [LS_TERM_COMPUTE] = 0.03, [LS_TERM_SHARING] = 0.12, [LS_TERM_IMBALANCE] = 0.5,
    [LS_TERM_COMM] = 0.30, [LS_TERM_UPDATE] = 0.20,  [LS_TERM_OTHER] = 1,
};
/* The same set-up, run twice on a quiet machine, differs by this share of a step at least. */
static const double LEAST_REPEAT = 0.02;
static const double LONGEST_NS = 1e18; /* 30 years; doubles add up exactly enough below that */
static const double MOST_SLOW = 1e6;   /* times as long as the others */
static const double NORMAL_95 = 1.645; /* 95% of a normal distribution is below so many deviations */

struct ls_predictor {
    ls__step_profile profile;
    ls_setup recorded;
    double term[LS_TERM_COUNT]; /* of the recorded step */
    double comm_factor, data_base, other;
    double band;
};

const char *ls_term_name(ls_term term)
{
    static const char *const names[LS_TERM_COUNT] = {
#define X(name, value, text) [value] = text,
        LS_TERM_LIST(X)
#undef X
    };
    return (unsigned)term < LS_TERM_COUNT ? names[term] : "?";
}

/* ---- The recorded set-up. */

static void set_recorded(ls_predictor *p)
{
    const ls__step_profile *x = &p->profile;
    p->recorded = (ls_setup){ .ranks = x->ranks,
                              .nodes = x->nodes,
                              .slots = x->slots,
                              .threads = x->threads,
                              .cores = x->speed.cores,
                              .bucket_bytes = x->bucket_bytes ? x->bucket_bytes : (size_t)4 << 20,
                              .wire_bytes = x->wire_bytes,
                              .overlap = x->overlap ? LS_OVERLAP_ON : LS_OVERLAP_OFF,
                              .link_rate = x->link_rate,
                              .workers = x->workers > 0 ? x->workers : -1,
                              .prefetch = x->prefetch };
}

/* What the model leaves unexplained: of communication and data as a factor and an amount of theirs, of the rest as a constant. */
static ls_status calibrate(ls_predictor *p)
{
    ls__replay r;
    double sum, recorded_comm = p->profile.comm;
    ls_status status = ls__replay_open(&r, &p->profile, &p->recorded);
    p->comm_factor = 1;
    if (!status) {
        sum = ls__replay_step(&r, &(ls__noise_draw){ 1, 1 }, 0, p->term);
        p->data_base = fmax(0, p->profile.data - ls__replay_stall(&r, sum / r.each));
        if (p->term[LS_TERM_COMM] > 0 && recorded_comm > 0 && p->recorded.nodes == 1 && !p->profile.beside)
            p->comm_factor = fmin(10, fmax(0.1, recorded_comm / p->term[LS_TERM_COMM]));
        r.comm_factor = p->comm_factor;
        r.data_base = p->data_base;
        /* The waiting that noise causes is a term of its own; see predict(). */
        p->other = 0;
        sum = ls__replay_step(&r, &(ls__noise_draw){ 1, 1 }, 0, p->term);
    }
    ls__replay_close(&r);
    return status;
}

/* ---- Draws. */

/* Of what the model does not explain: most of it comes from slots. */
static double other_share(const ls_predictor *p, const ls__replay *r)
{
    int had = ls__slots_of(p->profile.slots, p->profile.ranks, 0);
    return fmin(1, (double)r->each / had);
}

/* The replayed steps, sorted, and the terms of the median one. */
static double draw_steps(const ls_predictor *p, const ls__replay *r, double *steps, double term[LS_TERM_COUNT])
{
    const ls_setup *s = &r->setup;
    const ls__noise *noise = &p->profile.noise;
    double unused[LS_TERM_COUNT], slowest[DRAWS], other = p->other * other_share(p, r);
    for (uint64_t i = 0; i < DRAWS; i++) {
        ls__noise_draw draw = ls__noise_draw_step(noise, s->ranks, s->nodes, r->each, i + 1);
        slowest[i] = draw.slowest;
        steps[i] = ls__replay_step(r, &draw, i + 1, unused) + other;
    }
    ls__sort(steps, DRAWS);
    double middle = (steps[DRAWS / 2 - 1] + steps[DRAWS / 2]) / 2;
    double sum = ls__replay_step(r, &(ls__noise_draw){ 1, ls__median(slowest, DRAWS) }, 0, term);
    term[LS_TERM_OTHER] = other;
    term[LS_TERM_IMBALANCE] += middle - sum - other; /* what varies from step to step, and turns on shared cores */
    return middle;
}

/* ---- Set-ups. */

/* What the record of a run of PyTorch does not show. */
static ls_status check_torch(const ls_predictor *p, const ls_setup *s)
{
    const ls__step_profile *x = &p->profile;
    int local = (s->ranks + s->nodes - 1) / s->nodes;
    if (!x->beside) return LS_OK;
    if (local > x->local)
        return ls__fail(
            LS_EUNSUPPORTED,
            "the record does not show how many cores or devices a node has, so only up to the %d rank%s per "
            "node that it has can be predicted; state more nodes",
            x->local, x->local == 1 ? "" : "s");
    if (s->ranks > 1 && x->ranks == 1)
        return ls__fail(LS_EUNSUPPORTED, "the record is of one rank, so nothing is known of communication");
    if (s->nodes == 1 && x->nodes > 1 && s->ranks > 1)
        return ls__fail(LS_EUNSUPPORTED, "the run was on %d nodes, so nothing is known of communication within one",
                        x->nodes);
    if (s->bucket_bytes < x->bucket_bytes)
        return ls__fail(
            LS_EUNSUPPORTED,
            "the record has buckets of up to %.1f MiB and not the gradients in them, so smaller ones cannot be "
            "predicted",
            (double)x->bucket_bytes / (1 << 20));
    if (x->no_slots && (int64_t)s->slots * x->ranks != (int64_t)x->slots * s->ranks)
        return ls__fail(LS_EUNSUPPORTED,
                        "the record does not show the micro-batches of a step, since %s: only set-ups in which a rank "
                        "does as much in a step as it did can be predicted; set slots=%d",
                        x->no_slots, s->ranks);
    if (s->workers != p->recorded.workers && !(x->build > 0))
        return ls__fail(LS_EUNSUPPORTED, "the record does not show how long a batch takes to build, so the loader's "
                                         "workers cannot be predicted");
    return LS_OK;
}

/* Numbers that no set-up can have, by name. */
static ls_status check_fields(const ls_setup *s)
{
    const struct {
        const char *name;
        int value;
    } counts[] = { { "ranks", s->ranks },     { "nodes", s->nodes },       { "slots", s->slots },
                   { "threads", s->threads }, { "prefetch", s->prefetch }, { "wire_bytes", s->wire_bytes } };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (counts[i].value < 0)
            return ls__fail(LS_EINVAL, "predict: %s is %d; must not be negative (0: as recorded)", counts[i].name,
                            counts[i].value);
    if (s->workers < -1)
        return ls__fail(LS_EINVAL, "predict: workers is %d; must be at least -1 (-1: none, 0: as recorded)",
                        s->workers);
    if ((unsigned)s->overlap > LS_OVERLAP_OFF)
        return ls__fail(LS_EINVAL, "predict: overlap is %d; must be a value of ls_overlap, from 0 to %d",
                        (int)s->overlap, (int)LS_OVERLAP_OFF);
    if (s->slow_rank != 0 && !(s->slow_rank >= 1 && s->slow_rank <= MOST_SLOW))
        return ls__fail(LS_EINVAL, "predict: slow_rank is %g; must be from 1 to %.0f (0: no rank is slower)",
                        s->slow_rank, MOST_SLOW);
    if (!(s->link_rate >= 0 && isfinite(s->link_rate)))
        return ls__fail(LS_EINVAL,
                        "predict: link_rate is %g; must be a positive number of bytes per ns (0: as recorded)",
                        s->link_rate);
    if (!(s->link_latency >= 0 && isfinite(s->link_latency)))
        return ls__fail(LS_EINVAL, "predict: link_latency is %g; must be a number of ns, at least 0", s->link_latency);
    return LS_OK;
}

static ls_status fill_in(const ls_predictor *p, const ls_setup *asked, ls_setup *s)
{
    const ls_setup *had = &p->recorded;
    *s = asked ? *asked : (ls_setup){ 0 };
    ls_status status = check_fields(s);
    if (status) return status;
    if (!s->ranks) s->ranks = had->ranks;
    if (!s->nodes) s->nodes = had->nodes < s->ranks ? had->nodes : s->ranks;
    if (!s->slots) s->slots = had->slots;
    if (!s->threads) s->threads = had->threads;
    if (s->cores == 0) s->cores = had->cores;
    if (!s->bucket_bytes) s->bucket_bytes = had->bucket_bytes;
    if (!s->wire_bytes) s->wire_bytes = had->wire_bytes;
    if (!s->overlap) s->overlap = had->overlap;
    if (!s->workers) s->workers = had->workers;
    if (!s->prefetch) s->prefetch = had->prefetch;
    if (s->ranks > MAX_RANKS) return ls__fail(LS_EINVAL, "predict: %d ranks; at most %d", s->ranks, (int)MAX_RANKS);
    if (s->ranks > s->slots)
        return ls__fail(LS_EINVAL,
                        "predict: %d ranks need at least as many slots, but there are %d; set slots=%d or more",
                        s->ranks, s->slots, s->ranks);
    if (s->threads != had->threads)
        return ls__fail(
            LS_EUNSUPPORTED,
            "the run had %d thread%s per rank, and the effect of %d cannot be predicted; record a run with that many",
            had->threads, had->threads == 1 ? "" : "s", s->threads);
    if (!(s->cores > 0))
        return ls__fail(LS_EINVAL, "predict: cores is %g; must be above 0, and at most the %g of the recorded node",
                        s->cores, had->cores);
    if (s->cores > had->cores)
        return ls__fail(LS_EUNSUPPORTED,
                        "cores is %g, but the run was recorded on a node with %g cores, so how fast more of them are "
                        "together is not known; record a run on such a node",
                        s->cores, had->cores);
    if (s->nodes > s->ranks)
        return ls__fail(LS_EINVAL, "predict: %d nodes for %d rank%s; a node needs at least one", s->nodes, s->ranks,
                        s->ranks == 1 ? "" : "s");
    if (s->wire_bytes != 4 && s->wire_bytes != 2)
        return ls__fail(LS_EINVAL, "predict: wire_bytes is %d; must be 4 (float32) or 2 (bfloat16)", s->wire_bytes);
    if (s->nodes > 1 && !(s->link_rate > 0)) {
        s->link_rate = had->link_rate;
        if (!(s->link_rate > 0))
            return ls__fail(LS_EUNSUPPORTED, "the run was on one node, so the link between nodes is unknown; state it "
                                             "(link_rate, link_latency; --link)");
    }
    return check_torch(p, s);
}

/* Nobody waits for the slowest rank less than not at all, and one rank waits for nobody: what replaying leaves there is not explained. A
 * slower rank that is alone computes as long as it does. */
static void settle_imbalance(ls_prediction *out)
{
    double *t = out->term, left = t[LS_TERM_IMBALANCE], slower = 0;
    if (left >= 0 && out->setup.ranks > 1) return;
    if (out->setup.ranks == 1 && out->setup.slow_rank > 1)
        slower = fmax(0, fmin(left, (out->setup.slow_rank - 1) * (t[LS_TERM_COMPUTE] + t[LS_TERM_SHARING])));
    t[LS_TERM_COMPUTE] += slower;
    t[LS_TERM_OTHER] += left - slower;
    t[LS_TERM_IMBALANCE] = 0;
}

static ls_term bottleneck(const ls_prediction *out)
{
    ls_term most = LS_TERM_COMPUTE;
    for (int i = 0; i < LS_TERM_COUNT; i++)
        if (out->term[i] > out->term[most]) most = (ls_term)i;
    return most;
}

/* The band of the median step: what a repetition is off, and what the changed terms may be. */
static double half_band(const ls_predictor *p, const ls_prediction *out)
{
    double repeat = NORMAL_95 * fmax(p->profile.repeat, LEAST_REPEAT) * out->step, square = repeat * repeat;
    for (int i = 0; i < LS_TERM_COUNT; i++) {
        double change = doubt[i] * (out->term[i] - p->term[i]);
        square += change * change;
    }
    return sqrt(square) * p->band;
}

static ls_status predict(const ls_predictor *p, const ls_setup *setup, ls_prediction *out)
{
    ls__replay r;
    double steps[DRAWS];
    ls_status status = ls__replay_open(&r, &p->profile, setup);
    if (!status) {
        r.comm_factor = p->comm_factor;
        r.data_base = p->data_base;
        out->setup = *setup;
        out->step = draw_steps(p, &r, steps, out->term);
        out->slow_step = steps[DRAWS * 95 / 100];
        double sum = 0;
        for (int i = 0; i < LS_TERM_COUNT; i++) sum += out->term[i];
        if (!(out->step > 0 && out->slow_step < LONGEST_NS) || !isfinite(sum))
            status =
                ls__fail(LS_EINVAL,
                         "predict: the step would take %g s, which is not possible: a number of the set-up (slots, "
                         "slow_rank, link_rate, link_latency) or of the record is far too large or too small",
                         out->step / 1e9);
    }
    ls__replay_close(&r);
    return status;
}

/* ---- The public functions. */

ls_status ls_predictor_open(ls_predictor **out, const ls_run *run)
{
    LS__NEED(out, "out");
    *out = NULL;
    LS__NEED(run, "run");
    if (run->ranks < 1 || !run->rank || !run->path)
        return ls__fail(LS_EINVAL, "predict: the run has no ranks; it must be one that ls_run_open() has read");
    ls_predictor *p = calloc(1, sizeof *p);
    ls_prediction self = { 0 };
    if (!p) return ls__fail(LS_ENOMEM, "predict: out of memory");
    p->band = 1;
    ls_status status = ls__step_profile_read(&p->profile, run);
    if (status) goto fail;
    set_recorded(p);
    if ((status = calibrate(p))) goto fail;
    if ((status = predict(p, &p->recorded, &self))) goto fail;
    p->other = p->profile.step - self.step;
    memcpy(p->term, self.term, sizeof p->term);
    p->term[LS_TERM_OTHER] = p->other;
    *out = p;
    return LS_OK;
fail:
    ls_predictor_free(&p);
    return status;
}

void ls_predictor_free(ls_predictor **predictor)
{
    if (!predictor || !*predictor) return;
    ls__step_profile_free(&(*predictor)->profile);
    free(*predictor);
    *predictor = NULL;
}

double ls_predictor_recorded_step(const ls_predictor *predictor)
{
    return predictor->profile.step;
}

void ls_predictor_set_band(ls_predictor *predictor, double factor)
{
    if (factor > 0 && factor < 1e6) predictor->band = factor;
}

ls_status ls_predict(const ls_predictor *p, const ls_setup *setup, ls_prediction *out)
{
    LS__NEED(p, "predictor");
    LS__NEED(out, "out");
    ls_setup full;
    *out = (ls_prediction){ 0 };
    ls_status status = fill_in(p, setup, &full);
    if (!status) status = predict(p, &full, out);
    if (status) return status;
    double half = half_band(p, out);
    settle_imbalance(out); /* after the band, in which it is a doubt of its own */
    double tokens = p->profile.tokens / p->profile.slots * full.slots;
    out->low = fmax(0, out->step - half);
    out->high = out->step + half;
    out->tokens_per_s = tokens > 0 ? tokens / out->step * 1e9 : (double)NAN;
    out->efficiency =
        (double)full.slots / full.ranks / out->step / ((double)p->profile.slots / p->profile.ranks / p->profile.step);
    out->bottleneck = bottleneck(out);
    return LS_OK;
}

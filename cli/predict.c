/* lockstep predict: step times of set-ups that were not run, from one recorded run. */
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"
#include "cli/amount.h"
#include "cli/commands.h"
#include "cli/escape.h"
#include "cli/last_run.h"
#include "cli/option_names.h"
#include "cli/options.h"
#include "cli/predict_table.h"
#include "cli/prediction_log.h"
#include "lockstep/predict.h"

static const char intro[] =
    "usage: lockstep predict [RUN] [--ranks N,...] [OPTIONS]\n"
    "       lockstep predict [RUN] --check OTHER\n\n"
    "Predicts the step time of set-ups that were not run, from the record of one run "
    "(runs/last), with a band that should hold\n"
    "in 9 of 10 cases. Options that are not given are as recorded. A list gives one row for each value.\n"
    "--check compares the prediction for the set-up of another run with what that run "
    "recorded, and later bands follow\n"
    "from such comparisons. For another model, batch size, sequence length or number of threads no record helps: "
    "--probe\n"
    "first runs a few steps with these options, and predicts from them.\n\n";

enum { MAX_LIST = 64, MAX_ROWS = 512 };

static const char *const wires[] = { "as-recorded", "float32", "bfloat16", NULL };

typedef struct asked {
    const char *run, *ranks, *nodes, *buckets, *slots, *link, *check, *html, *probe;
    int wire, workers, prefetch, per_node;
    bool no_overlap, explain, json;
    double slow_rank, cores;
} asked;

typedef struct number_list {
    double value[MAX_LIST];
    size_t count;
} number_list;

/* "1,2,8": numbers from `low` to `high`. An absent text is one 0. */
static bool read_list(const char *option, const char *text, double low, double high, bool whole, number_list *out)
{
    out->count = 0;
    if (!text) {
        out->value[out->count++] = 0;
        return true;
    }
    for (const char *item = text;; item++) {
        char number[64];
        size_t length = strcspn(item, ",");
        double x = 0;
        bool fits = length < sizeof number && out->count < MAX_LIST;
        if (fits) {
            uint64_t integer = 0;
            char *end = number;
            snprintf(number, sizeof number, "%.*s", (int)length, item);
            if (whole) {
                fits = options_parse_size(number, &integer);
                x = (double)integer;
            } else {
                x = strtod(number, &end);
                fits = end != number && !*end;
            }
            fits = fits && x >= low && x <= high;
        }
        if (!fits) {
            fprintf(stderr,
                    "lockstep predict: %s %s: must be %s from %.15g to %.15g, separated by commas, at most %d\n",
                    option, *text ? printable(text) : "''", whole ? "integers" : "numbers", low, high, (int)MAX_LIST);
            return false;
        }
        out->value[out->count++] = x;
        item += length;
        if (!*item) return true;
    }
}

/* "10Gbit,30us": rate and latency of a link; the latency may be left out. */
static bool read_link(const char *text, ls_setup *s)
{
    static const struct {
        const char *name;
        double bytes_per_ns;
    } rates[] = { { "bit", 1 / 8e9 }, { "kbit", 1e3 / 8e9 }, { "Mbit", 1e6 / 8e9 }, { "Gbit", 1e9 / 8e9 } };
    static const struct {
        const char *name;
        double ns;
    } times[] = { { "ns", 1 }, { "us", 1e3 }, { "µs", 1e3 }, { "ms", 1e6 }, { "s", 1e9 } };
    char *end;
    if (!text) return true;
    double rate = strtod(text, &end), latency = 0;
    bool known = false;
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        size_t n = strlen(rates[i].name);
        if (known || strncasecmp(end, rates[i].name, n)) continue;
        known = true;
        rate *= rates[i].bytes_per_ns;
        end += n;
        if (!strncmp(end, "/s", 2)) end += 2;
    }
    if (known && *end == ',') {
        latency = strtod(end + 1, &end);
        known = false;
        for (size_t i = 0; i < sizeof times / sizeof *times && !known; i++)
            if (!strcmp(end, times[i].name)) known = true, latency *= times[i].ns, end += strlen(end);
    }
    s->link_rate = rate;
    s->link_latency = latency;
    if (known && !*end && rate > 0 && isfinite(rate) && latency >= 0 && isfinite(latency)) return true;
    fprintf(
        stderr,
        "lockstep predict: --link %s: must be RATE or RATE,LATENCY as in 10Gbit,30us, with a rate above 0 (bit, kbit, "
        "Mbit, Gbit) and a latency in ns, us, ms or s\n",
        printable(text));
    return false;
}

/* ---- What was asked for: pages of different questions must not look alike. */

static void add_asked(predict_table *t, const char *key, json_t *value, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static void add_asked(predict_table *t, const char *key, json_t *value, const char *format, ...)
{
    size_t n = strlen(t->asked), room = sizeof t->asked - n;
    va_list arguments;
    json_object_set_new(t->asked_json, key, value);
    if (n && room > 2) n += (size_t)snprintf(t->asked + n, room, "; ");
    va_start(arguments, format);
    vsnprintf(t->asked + n, sizeof t->asked - n, format, arguments);
    va_end(arguments);
}

/* All that holds for every row and stands in none; `slots` and `mb`: 0 if rows have their own, or they are as recorded. */
static void state_asked(predict_table *t, const asked *a, const ls_setup *s, double slots, double mb)
{
    t->asked_json = json_object();
    if (a->probe) add_asked(t, "probe", json_string(a->probe), "a run with %s", printable(a->probe));
    if (slots > 0) add_asked(t, "slots", json_integer((json_int_t)slots), "%.0f slot%s", slots, slots > 1 ? "s" : "");
    if (mb > 0)
        add_asked(t, "bucket_bytes", json_integer((json_int_t)(mb * (1 << 20))), "buckets of %s",
                  amount_bytes(mb * (1 << 20)).text);
    if (a->link) {
        add_asked(t, "link_rate", json_real(s->link_rate), "link %s, %s", amount_rate(s->link_rate, true).text,
                  s->link_latency > 0 ? amount_ns(s->link_latency).text : "no latency");
        json_object_set_new(t->asked_json, "link_latency", json_real(s->link_latency));
    }
    if (a->wire) add_asked(t, "wire_bytes", json_integer(s->wire_bytes), "%s gradients", wires[a->wire]);
    if (a->no_overlap) add_asked(t, "overlap", json_false(), "no overlap");
    if (a->workers) add_asked(t, "workers", json_integer(a->workers), "%d worker%s", a->workers, ls__s(a->workers));
    if (a->prefetch)
        add_asked(t, "prefetch", json_integer(a->prefetch), "%d batch%s built ahead", a->prefetch,
                  a->prefetch == 1 ? "" : "es");
    if (a->cores > 0)
        add_asked(t, "cores", json_real(a->cores), "%g core%s per node", a->cores, a->cores == 1 ? "" : "s");
    if (a->slow_rank > 0) add_asked(t, "slow_rank", json_real(a->slow_rank), "a rank %g times as slow", a->slow_rank);
}

/* ---- Rows. */

static bool add_row(predict_table *t, const ls_predictor *p, const ls_setup *s)
{
    predict_row *more = realloc(t->rows, (t->count + 1) * sizeof *more);
    if (!more) return false;
    t->rows = more;
    predict_row *r = &t->rows[t->count++];
    *r = (predict_row){ 0 };
    if (ls_predict(p, s, &r->p)) {
        r->refused = strdup(words_of_program(ls_error()));
        r->p.setup = *s; /* what was asked for; the rest is not known */
    }
    return true;
}

/* All combinations. */
static int make_rows(predict_table *t, const ls_predictor *p, const asked *a)
{
    number_list ranks, nodes, buckets, slots;
    ls_setup s = { .wire_bytes = a->wire == 0   ? 0
                                 : a->wire == 1 ? 4
                                                : 2,
                   .overlap = a->no_overlap ? LS_OVERLAP_OFF : LS_OVERLAP_AS_RECORDED,
                   .workers = a->workers,
                   .prefetch = a->prefetch,
                   .slow_rank = a->slow_rank,
                   .cores = a->cores };
    if (!read_list("--ranks", a->ranks, 1, 1e7, true, &ranks) ||
        !read_list("--nodes", a->nodes, 1, 1e7, true, &nodes) ||
        !read_list("--bucket-mb", a->buckets, 1e-3, 1e5, false, &buckets) ||
        !read_list("--slots", a->slots, 1, 1e9, true, &slots) || !read_link(a->link, &s))
        return EXIT_USAGE;
    if (a->nodes && a->per_node) {
        fprintf(stderr, "lockstep predict: --nodes and --per-node: give one of them\n");
        return EXIT_USAGE;
    }
    t->nodes = nodes.count > 1;
    t->slots = slots.count > 1;
    t->buckets = buckets.count > 1;
    state_asked(t, a, &s, t->slots ? 0 : slots.value[0], t->buckets ? 0 : buckets.value[0]);
    if (ranks.count * nodes.count * buckets.count * slots.count > MAX_ROWS) {
        fprintf(stderr, "lockstep predict: more than %d combinations; give shorter lists\n", (int)MAX_ROWS);
        return EXIT_USAGE;
    }
    for (size_t n = 0; n < nodes.count; n++)
        for (size_t v = 0; v < slots.count; v++)
            for (size_t b = 0; b < buckets.count; b++)
                for (size_t r = 0; r < ranks.count; r++) {
                    s.ranks = (int)ranks.value[r];
                    s.nodes = (int)nodes.value[n];
                    if (a->per_node && s.ranks) s.nodes = (s.ranks - 1) / a->per_node + 1;
                    if (ranks.count > 1 && nodes.count > 1 && s.nodes > s.ranks) continue; /* nobody means these */
                    s.slots = (int)slots.value[v];
                    s.bucket_bytes = (size_t)(buckets.value[b] * (1 << 20));
                    if (!add_row(t, p, &s)) return EXIT_FAILED;
                }
    return EXIT_DONE;
}

/* The set-up with the least product of time and ranks' time: twice the ranks must make the step more than 1.4 times as fast. */
const predict_row *predict_best_value(const predict_table *t)
{
    const predict_row *best = NULL;
    double least = 0;
    for (size_t i = 0; i < t->count; i++) {
        const predict_row *r = &t->rows[i];
        double each = r->p.step / r->p.setup.slots, cost = each * each * r->p.setup.ranks;
        if (r->refused || (best && cost >= least)) continue;
        best = r;
        least = cost;
    }
    return best;
}

static void print_bar(double share)
{
    enum { WIDTH = 14 };
    int n = (int)(share * WIDTH + 0.5);
    for (int i = 0; i < WIDTH && i < n; i++) putchar('#');
}

static void print_row(const predict_table *t, const predict_row *r, double most, bool marked)
{
    const ls_setup *s = &r->p.setup;
    if (s->nodes)
        printf("%7d %6d ", s->ranks, s->nodes);
    else
        printf("%7d %6s ", s->ranks, "-");
    if (t->slots) printf("%6d ", s->slots);
    if (t->buckets) printf("%s ", amount_field(amount_bytes((double)s->bucket_bytes), 9).text);
    if (r->refused) {
        printf("  no prediction: %s\n", printable(r->refused));
        return;
    }
    printf("%9s  %s - %-9s %9s %5.0f%%%s %-13s ", amount_field(amount_ns(r->p.step), 9).text,
           amount_field(amount_ns(r->p.low), 9).text, amount_ns(r->p.high).text,
           isfinite(r->p.tokens_per_s) ? amount_count(r->p.tokens_per_s).text : "", 100 * r->p.efficiency,
           marked ? "*" : " ", ls_term_name(r->p.bottleneck));
    print_bar(isfinite(r->p.tokens_per_s) && most > 0 ? r->p.tokens_per_s / most : 0);
    printf("\n");
}

setup_text predict_setup_text(const ls_setup *s)
{
    setup_text t;
    int n = snprintf(t.text, sizeof t.text, "%d rank%s", s->ranks, ls__s(s->ranks));
    /* What is 0 was not asked for, and the set-up was refused before it was known. */
    if (s->nodes) n += snprintf(t.text + n, sizeof t.text - (size_t)n, " on %d node%s", s->nodes, ls__s(s->nodes));
    if (s->slots) n += snprintf(t.text + n, sizeof t.text - (size_t)n, ", %d slot%s", s->slots, ls__s(s->slots));
    if (s->bucket_bytes)
        snprintf(t.text + n, sizeof t.text - (size_t)n, ", buckets of %s", amount_bytes((double)s->bucket_bytes).text);
    return t;
}

static void print_terms(const ls_prediction *from, const predict_row *r)
{
    printf("\n%s: %s\n", predict_setup_text(&r->p.setup).text, amount_ns(r->p.step).text);
    for (int i = 0; i < LS_TERM_COUNT; i++) {
        double change = r->p.term[i] - from->term[i];
        printf("  %-14s %s  %c%s\n", ls_term_name((ls_term)i), amount_field(amount_ns(r->p.term[i]), 10).text,
               change < 0 ? '-' : '+', amount_ns(fabs(change)).text);
    }
}

static void print_table(const predict_table *t, const ls_prediction *recorded, const asked *a)
{
    const predict_row *best = t->count > 1 ? predict_best_value(t) : NULL;
    double most = 0;
    for (size_t i = 0; i < t->count; i++)
        if (!t->rows[i].refused && t->rows[i].p.tokens_per_s > most) most = t->rows[i].p.tokens_per_s;
    printf("recorded: %s per step on %d rank%s, %d slots\n", amount_ns(t->recorded).text, recorded->setup.ranks,
           recorded->setup.ranks == 1 ? "" : "s", recorded->setup.slots);
    if (*t->asked) printf("asked: %s\n", t->asked);
    printf("\n  ranks  nodes %s%s     step     5-95%% band of the median  tokens/s  eff.  largest term%s\n",
           t->slots ? " slots " : "", t->buckets ? "  buckets " : "", most > 0 ? "  tokens/s (bar)" : "");
    for (size_t i = 0; i < t->count; i++) print_row(t, &t->rows[i], most, &t->rows[i] == best);
    if (best)
        printf("\n*: least step time x step time x ranks. eff.: work per rank and second, relative to the recorded "
               "run.\n");
    for (size_t i = 0; a->explain && i < t->count; i++)
        if (!t->rows[i].refused) print_terms(recorded, &t->rows[i]);
    if (a->explain) printf("\nThe last column is the difference from the recorded set-up.\n");
}

/* ---- JSON. */

json_t *prediction_json(const ls_prediction *p)
{
    const ls_setup *s = &p->setup;
    json_t *terms = json_object();
    for (int i = 0; i < LS_TERM_COUNT; i++) json_object_set_new(terms, ls_term_name((ls_term)i), json_real(p->term[i]));
    return json_pack("{s:i, s:i, s:i, s:I, s:i, s:b, s:f, s:f, s:f, s:f, s:o, s:f, s:s, s:o}", "ranks", s->ranks,
                     "nodes", s->nodes, "slots", s->slots, "bucket_bytes", (json_int_t)s->bucket_bytes, "wire_bytes",
                     s->wire_bytes, "overlap", s->overlap != 2, "step", p->step, "low", p->low, "high", p->high,
                     "slow_step", p->slow_step, "tokens_per_s",
                     isfinite(p->tokens_per_s) ? json_real(p->tokens_per_s) : json_null(), "efficiency", p->efficiency,
                     "bottleneck", ls_term_name(p->bottleneck), "terms", terms);
}

static int print_json(const predict_table *t)
{
    json_t *rows = json_array(), *out = json_pack("{s:f, s:O, s:o}", "recorded_step", t->recorded, "asked",
                                                  t->asked_json, "predictions", rows);
    for (size_t i = 0; i < t->count; i++) {
        const predict_row *r = &t->rows[i];
        json_t *j = r->refused ? json_pack("{s:i, s:i, s:s}", "ranks", r->p.setup.ranks, "nodes", r->p.setup.nodes,
                                           "refused", r->refused)
                               : prediction_json(&r->p);
        json_array_append_new(rows, j ? j : json_null());
    }
    bool failed = !out || json_dumpf(out, stdout, JSON_INDENT(2));
    printf("\n");
    json_decref(out);
    return failed ? EXIT_FAILED : EXIT_DONE;
}

/* ---- All of it. */

static int answer(ls_predictor *p, const asked *a, const predict_source *source)
{
    predict_table t = { .recorded = ls_predictor_recorded_step(p) };
    ls_prediction recorded;
    double factor = prediction_log_band(a->run);
    ls_predictor_set_band(p, factor);
    if (a->check) return predict_check(p, source, a->check, factor, a->json);
    ls_status status = ls_predict(p, NULL, &recorded);
    if (status) return exit_failure("predict", status);
    int code = make_rows(&t, p, a);
    for (size_t i = 0; i < t.count; i++) {
        ls_setup *s = &t.rows[i].p.setup; /* of a refused one only what was asked for is known */
        if (!s->ranks) s->ranks = recorded.setup.ranks;
        if (!s->nodes) s->nodes = recorded.setup.nodes < s->ranks ? recorded.setup.nodes : s->ranks;
    }
    if (code == EXIT_DONE && a->json)
        code = print_json(&t);
    else if (code == EXIT_DONE && a->html)
        code =
            (status = predict_page_write(&t, &recorded, a->run, a->html)) ? exit_failure("predict", status) : EXIT_DONE;
    else if (code == EXIT_DONE)
        print_table(&t, &recorded, a);
    size_t refused = 0;
    for (size_t i = 0; i < t.count; i++) {
        refused += t.rows[i].refused != NULL;
        free(t.rows[i].refused);
    }
    free(t.rows);
    json_decref(t.asked_json);
    return code == EXIT_DONE && refused && refused == t.count ? EXIT_USAGE : code;
}

/* --check predicts the set-up of the other run. Returns -1 if nothing else was asked. */
static int refuse_with_check(const asked *a)
{
    const struct {
        const char *name;
        bool given;
    } others[] = { { "--ranks", a->ranks },       { "--nodes", a->nodes },
                   { "--per-node", a->per_node }, { "--link", a->link },
                   { "--slots", a->slots },       { "--bucket-mb", a->buckets },
                   { "--wire", a->wire },         { "--no-overlap", a->no_overlap },
                   { "--workers", a->workers },   { "--prefetch", a->prefetch },
                   { "--cores", a->cores > 0 },   { "--slow-rank", a->slow_rank > 0 },
                   { "--html", a->html } };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i].given) {
            fprintf(
                stderr,
                "lockstep predict: --check and %s exclude each other: --check predicts the set-up of %s, and prints "
                "text or, with --json, JSON\n",
                others[i].name, printable(a->check));
            return EXIT_USAGE;
        }
    return -1;
}

/* Options of train that change the work of a slot. */
static const char *const needs_a_run[] = { "--threads", "--batch-size", "--seq-len", "--layers", "--width",
                                           "--heads",   "--vocab-size", "--model",   "--update" };

int predict_command(int argc, char **argv)
{
    asked a = { 0 };
    const option_row rows[] = {
        { OPTION_TEXT, "--ranks", &a.ranks, "LIST", "numbers of ranks: 1,2,8", 0, 0, NULL },
        { OPTION_TEXT, "--nodes", &a.nodes, "LIST", "numbers of nodes for these ranks", 0, 0, NULL },
        { OPTION_INT, "--per-node", &a.per_node, "N", "ranks of a node; --ranks then says how many nodes", 1, 1 << 20,
          NULL },
        { OPTION_TEXT, "--link", &a.link, "RATE,LATENCY", "link of each node: 10Gbit,30us", 0, 0, NULL },
        { OPTION_TEXT, "--slots", &a.slots, "LIST", "micro-batches per step over all ranks", 0, 0, NULL },
        { OPTION_TEXT, "--bucket-mb", &a.buckets, "LIST", "gradient bucket sizes in MiB", 0, 0, NULL },
        { OPTION_CHOICE, "--wire", &a.wire, "TYPE", "gradient communication dtype: {}", 0, 0, wires },
        { OPTION_FLAG, "--no-overlap", &a.no_overlap, NULL, "disable overlap of communication and backward", 0, 0,
          NULL },
        { OPTION_INT, "--workers", &a.workers, "N", "loader threads per rank", 1, 1024, NULL },
        { OPTION_INT, "--prefetch", &a.prefetch, "N", "batches built ahead", 1, 1 << 20, NULL },
        { OPTION_DOUBLE, "--slow-rank", &a.slow_rank, "X", "one rank takes X times as long to compute", 1, 1e6, NULL },
        { OPTION_DOUBLE, "--cores", &a.cores, "X", "cores that the ranks of a node share", 0.01, 1e6, NULL },
        { OPTION_TEXT, "--probe", &a.probe, "OPTIONS",
          "predict from a short run with these options of 'lockstep train': '--batch-size 8'", 0, 0, NULL },
        { OPTION_FLAG, "--explain", &a.explain, NULL, "print the terms of each step and how they differ", 0, 0, NULL },
        { OPTION_TEXT, "--check", &a.check, "OTHER", "compare with what another run recorded", 0, 0, NULL },
        { OPTION_TEXT, "--html", &a.html, "FILE", "write a page with a chart; -: to the standard output", 0, 0, NULL },
        { OPTION_FLAG, "--json", &a.json, NULL, "print JSON; times in ns", 0, 0, NULL },
        { OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, NULL },
    };
    for (int i = 1; i < argc; i++)
        for (size_t k = 0; k < sizeof needs_a_run / sizeof *needs_a_run; k++)
            if (!strcmp(argv[i], needs_a_run[k])) {
                fprintf(stderr,
                        "lockstep predict: %s: no record tells what that changes; --probe '%s ...' makes a short run "
                        "with it "
                        "to predict from\n",
                        argv[i], argv[i]);
                return EXIT_USAGE;
            }
    int code = options_read("predict", intro, rows, &a.run, argc, argv);
    if (code >= 0) return code;
    if (a.json && a.html) {
        fprintf(stderr, "lockstep predict: --json and --html exclude each other\n");
        return EXIT_USAGE;
    }
    if (a.check && (code = refuse_with_check(&a)) >= 0) return code;
    if (!(a.run = last_run_or(a.run, "predict"))) return EXIT_USAGE;
    ls_run *run;
    ls_predictor *p;
    predict_source source = { 0 };
    char *probe = NULL;
    ls_status status = a.probe ? predict_probe(a.run, a.probe, a.json || a.html, &probe) : LS_OK;
    if (probe) a.run = probe;
    if (!status) status = ls_run_open(&run, a.run, NULL);
    if (!status) {
        status = ls_predictor_open(&p, run);
        source = predict_source_of(run, a.run);
        ls_run_free(&run);
    }
    code = status ? exit_failure("predict", status) : answer(p, &a, &source);
    if (!status) ls_predictor_free(&p);
    free(probe);
    return code;
}

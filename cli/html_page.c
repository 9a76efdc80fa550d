/* The report as one self-contained page: head, key figures, findings, and then the parts. See html.h.
 *
 * Charts are SVG made here; a small script shows numbers under the pointer and does nothing else. The page says by its own
 * policy that it fetches nothing. All text that comes from files is escaped. */
#include "cli/html.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/file.h"
#include "base/ring.h"
#include "base/status.h"
#include "cli/amount.h"
#include "cli/escape.h"
#include "cli/html_style.h"

const ls_phase html_phases[LS_PHASES] = { LS_PHASE_DATA,   LS_PHASE_FORWARD,    LS_PHASE_BACKWARD,
                                          LS_PHASE_UPDATE, LS_PHASE_WAIT,       LS_PHASE_COMM,
                                          LS_PHASE_EVAL,   LS_PHASE_CHECKPOINT, LS_PHASE_OTHER };

bool html_has_phase(const ls_run *run, ls_phase phase)
{
    return ls_run_mean(run, -1, phase) > 0;
}

void html_card(const page *p, const char *id, const char *class_name, const char *title, const char *words)
{
    fprintf(p->to, "<section class=\"card %s\" id=\"%s\"><h2>%s</h2>", class_name, id, title);
    if (words) fprintf(p->to, "<p>%s</p>", words);
    fputc('\n', p->to);
}

void html_card_end(const page *p)
{
    fputs("</section>\n", p->to);
}

void html_chart(const page *p, bool half, draw_fn draw)
{
    static const struct {
        const char *class_name;
        double width;
    } full[] = { { "s", 330 }, { "m", 690 }, { "l2", 1130 } }, halves[] = { { "s", 330 }, { "l2", 540 } };
    fprintf(p->to, "<div class=\"chart %s\">", half ? "half" : "full");
    for (int i = 0; i < (half ? 2 : 3); i++) {
        fprintf(p->to, "<div class=\"%s\">", half ? halves[i].class_name : full[i].class_name);
        draw(p, half ? halves[i].width : full[i].width);
        fputs("</div>", p->to);
    }
    fputs("</div>\n", p->to);
}

void html_legend(const page *p, const char *const *more)
{
    fputs("<div class=\"legend\">", p->to);
    for (int i = 0; i < LS_PHASES; i++) {
        if (!html_has_phase(p->run, html_phases[i])) continue;
        const char *name = ls_phase_name(html_phases[i]);
        fprintf(p->to, "<span><i class=\"%s\"></i>%s</span>", name, name);
    }
    for (; more && more[0]; more += 2) fprintf(p->to, "<span><i class=\"%s\"></i>%s</span>", more[0], more[1]);
    fputs("</div>\n", p->to);
}

/* ---- Head */

static const char *base_name(const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    while (n && path[n - 1] != '/') n--;
    return path + n;
}

/* "GPT-2 of 0.43M parameters, 2 layers, width 128; 16 x 64 tokens a step", as far as run.json tells. */
static void put_model(const page *p)
{
    char path[4096], *text = NULL;
    size_t bytes;
    snprintf(path, sizeof path, "%s/run.json", p->run->path);
    if (ls__file_read(path, 1 << 20, &text, &bytes)) return;
    json_t *root = json_loads(text, 0, NULL), *model = json_object_get(root, "model"),
           *batch = json_object_get(root, "batch");
    double parameters = json_number_value(json_object_get(model, "parameters"));
    if (parameters > 0)
        fprintf(p->to, " \u00b7 %s parameters, %lld layers, width %lld", amount_count(parameters).text,
                (long long)json_integer_value(json_object_get(model, "layers")),
                (long long)json_integer_value(json_object_get(model, "width")));
    if (batch)
        fprintf(p->to, " \u00b7 %lld micro-batches of %lld \u00d7 %lld tokens a step",
                (long long)json_integer_value(json_object_get(batch, "slots")),
                (long long)json_integer_value(json_object_get(batch, "batch_size")),
                (long long)json_integer_value(json_object_get(batch, "seq_len")));
    json_decref(root);
    free(text);
}

static const ls_run_rank *first_present(const ls_run *run)
{
    for (int r = 0; r < run->ranks; r++)
        if (run->rank[r].present) return &run->rank[r];
    return NULL;
}

static void put_head(const page *p)
{
    const ls_run *run = p->run;
    const ls_run_rank *r = first_present(run);
    fputs("<header><h1>Run ", p->to);
    put_html(p->to, base_name(run->path));
    fprintf(p->to, "</h1><p class=\"lead\">%d rank%s", run->ranks, run->ranks == 1 ? "" : "s");
    if (r) {
        int nodes = 1;
        for (int i = 0; i < run->ranks; i++)
            if (run->rank[i].present && run->rank[i].node >= nodes) nodes = run->rank[i].node + 1;
        double own = r->facts[LS_FACT_THREADS]; /* what may run, if nobody said what does */
        int threads = own >= 1 && own < 1e6 ? (int)own : r->threads;
        fprintf(p->to, " of %d thread%s on ", threads, threads == 1 ? "" : "s");
        if (nodes > 1)
            fprintf(p->to, "%d machines", nodes);
        else
            put_html(p->to, r->host);
        put_model(p);
        time_t start =
            r->start_time > 0 && r->start_time < 1e11 ? (time_t)r->start_time : 0; /* a record may claim anything */
        struct tm local;
        char text[64] = "";
        if (start > 0 && localtime_r(&start, &local)) strftime(text, sizeof text, "%d %B %Y, %H:%M", &local);
        if (*text) fprintf(p->to, " \u00b7 started %s", text);
        if (!r->closed) fputs(" \u00b7 <b>still running, or cut off</b>", p->to);
    }
    fputs("</p></header>\n", p->to);
}

/* ---- Key figures */

static void put_tile(const page *p, const char *value, const char *words)
{
    fprintf(p->to, "<div class=\"tile\"><b>%s</b><span>%s</span></div>", value, words);
}

static void put_tiles(const page *p)
{
    const ls_run *run = p->run;
    const ls_run_rank *r = first_present(run);
    double step = ls_run_step_mean(run);
    if (!r || !(step > 0)) return;
    char words[160];
    size_t n;
    counted(p, &n);
    double hidden = ls_run_overlapped(run, -1), mfu = ls_run_mfu(run), resident = 0, most = 0, cpu = 0, wall = 0;
    for (int k = 0; k < run->ranks; k++) {
        const ls_run_use *u = &run->rank[k].use;
        if (!run->rank[k].present || !(u->wall > 0)) continue;
        cpu += u->cpu;
        wall += u->wall;
        resident += u->resident;
        most = fmax(most, u->resident);
    }
    double compute = 0, wait = ls_run_mean(run, -1, LS_PHASE_WAIT), comm = ls_run_mean(run, -1, LS_PHASE_COMM);
    for (int i = LS_PHASE_FORWARD; i <= LS_PHASE_UPDATE; i++) compute += ls_run_mean(run, -1, (ls_phase)i);
    fputs("<div class=\"tiles\">", p->to);
    snprintf(words, sizeof words, "a step, mean of %zu", n);
    put_tile(p, amount_ns(step).text, words);
    if (r->facts[LS_FACT_TOKENS] > 0)
        put_tile(p, amount_count(r->facts[LS_FACT_TOKENS] / step * 1e9).text, "tokens a second");
    put_tile(p, amount_share(compute / step).text, "of the step is forward, backward and update");
    snprintf(words, sizeof words, "waiting for other ranks, %s a step", amount_ns(wait).text);
    put_tile(p, amount_share(wait / step).text, words);
    if (comm + hidden > 0)
        snprintf(words, sizeof words, "exposed communication; %s more hidden behind backward", amount_ns(hidden).text);
    else
        snprintf(words, sizeof words, "exposed communication");
    put_tile(p, amount_share(comm / step).text, words);
    if (isfinite(mfu)) put_tile(p, amount_share(mfu).text, "MFU (% of measured SGEMM)");
    if (cpu > 0) {
        char value[32];
        snprintf(value, sizeof value, "%.2f", cpu / wall);
        snprintf(words, sizeof words, "cores busy on a rank, of %d", r->threads);
        put_tile(p, value, words);
    }
    if (resident > 0) {
        snprintf(words, sizeof words, "memory at most on a rank, %s on all", amount_bytes(resident).text);
        put_tile(p, amount_bytes(most).text, words);
    }
    fputs("</div>\n", p->to);
}

/* ---- Findings and notes */

/* Names of options are not broken at their hyphens. */
static void put_words(FILE *to, const char *text)
{
    char *copy = strdup(text), *rest = copy;
    for (const char *word; rest && (word = strsep(&rest, " "));) {
        bool option = !strncmp(word, "--", 2);
        if (option) fputs("<span class=\"o\">", to);
        put_html(to, word);
        fputs(option && rest ? "</span> " : option ? "</span>" : rest ? " " : "", to);
    }
    free(copy);
}

static void put_line(const page *p, const char *class_name, const char *text)
{
    if (!*text) return;
    fprintf(p->to, "<span class=\"%s\">", class_name);
    put_words(p->to, text);
    fputs("</span>", p->to);
}

static void put_finding(const page *p, const ls_finding *f)
{
    double step = ls_run_step_mean(p->run);
    fputs("<li><b>", p->to);
    put_html(p->to, f->what);
    fputs("</b>", p->to);
    put_line(p, "why", f->evidence);
    put_line(p, "do", f->change);
    if (f->expected > 0 && (double)f->expected < 0.99 * step)
        fprintf(p->to, "<span class=\"gain\">step %s \u2192 %s expected</span>", amount_ns(step).text,
                amount_ns((double)f->expected).text);
    fputs("</li>", p->to);
}

/* The first few, and the rest folded away. */
static void put_findings(const page *p)
{
    enum { OPEN = 5, MOST = 24 };
    const ls_run *run = p->run;
    size_t n = run->n_findings < MOST ? run->n_findings : MOST;
    html_card(p, "findings", "", "What to change", n ? "Dearest first." : NULL);
    if (!n)
        fputs(
            "<p>Nothing stands out: no rank holds the others up, and neither data nor communication is in the way.</p>",
            p->to);
    if (n) fputs("<ol class=\"findings\">", p->to);
    for (size_t i = 0; i < n && i < OPEN; i++) put_finding(p, &run->findings[i]);
    if (n) fputs("</ol>", p->to);
    if (n > OPEN) {
        fprintf(p->to, "<details><summary>%zu more, which cost less</summary><ol class=\"findings\">", n - OPEN);
        for (size_t i = OPEN; i < n; i++) put_finding(p, &run->findings[i]);
        fputs("</ol></details>", p->to);
    }
    if (run->n_notes) {
        fputs("<div class=\"sub\">What is missing or odd</div><ul class=\"notes\">", p->to);
        for (size_t i = 0; i < run->n_notes && i < 40; i++) {
            fputs("<li>", p->to);
            put_html(p->to, run->notes[i]);
            fputs("</li>", p->to);
        }
        fputs("</ul>", p->to);
    }
    html_card_end(p);
}

/* ---- All of it */

static void put_page(const page *p)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
          "script-src 'unsafe-inline'; img-src data:\">"
          "<link rel=\"icon\" href=\"data:,\"><title>",
          p->to);
    put_html(p->to, base_name(p->run->path));
    fprintf(p->to, " \u00b7 lockstep report</title><style>%s</style></head><body><main>\n", html_style);
    put_head(p);
    if (p->run->n_steps) {
        put_tiles(p);
        put_findings(p);
        html_compare(p);
        html_breakdown(p);
        html_over_time(p);
        html_timeline(p);
        html_waits(p);
    } else {
        put_findings(p);
    }
    html_curves(p);
    if (p->run->n_steps) html_tables(p);
    html_profile(p);
    fprintf(p->to,
            "<footer>Made by lockstep %s from what the ranks recorded. Phases of a rank add up to the step. "
            "<i>Waiting</i>: standing in a "
            "call before the last rank came; <i>communication</i>: the rest of the time in calls, when the rank did "
            "nothing "
            "else.</footer>\n</main><div id=\"tip\" role=\"status\"></div><script>%s</script></body></html>\n",
            ls_version(), html_script);
}

ls_status html_write(const ls_run *run, const ls_run *other, const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    page p = { .run = run, .other = other, .to = open_memstream(&text, &bytes) };
    if (!p.to) return ls__fail_errno("%s: memory for the page", path);
    ls_status status = metrics_read(&p.lines, run->path);
    if (!status) put_page(&p);
    if (fclose(p.to) && !status) status = ls__fail(LS_ENOMEM, "%s: no memory for the page", path);
    if (!status) status = ls__file_write(path, text, bytes);
    metrics_free(&p.lines);
    free(text);
    return status;
}

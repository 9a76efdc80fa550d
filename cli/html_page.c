/* The report as one self-contained page: head, the parts in their order, and what they share. See html.h.
 *
 * Charts are SVG made here; a small script shows numbers under the pointer and does nothing else. The page's own content security
 * policy forbids it to fetch anything. All text that comes from files is escaped. */
#include "cli/html.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/file.h"
#include "record/ring.h"
#include "base/status.h"
#include "base/text.h"
#include "cli/amount.h"
#include "cli/escape.h"
#include "cli/html_assets.h"
#include "cli/report.h"

const char html_unscheduled_words[] = "unscheduled (run-queue delay or steal)";

bool html_has_unscheduled(const ls_run *run)
{
    for (int r = 0; r < run->ranks; r++)
        if (run->rank[r].use.sched_delay + run->rank[r].use.steal > 0.002 * run->rank[r].use.wall) return true;
    return false;
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

void html_legend(const page *p, const ls_run *also, const char *const *more)
{
    fputs("<div class=\"legend\">", p->to);
    for (int i = 0; i < LS_PHASE_COUNT; i++) {
        if (!report_has_phase(p->run, report_phase(i)) && !(also && report_has_phase(also, report_phase(i)))) continue;
        const char *name = ls_phase_name(report_phase(i));
        fprintf(p->to, "<span><i class=\"%s\">%c</i>%s</span>", name, report_letter(report_phase(i)), name);
    }
    for (; more && more[0]; more += 2) fprintf(p->to, "<span><i class=\"%s\"></i>%s</span>", more[0], more[1]);
    fputs("</div>\n", p->to);
}

/* ---- Head */

const char *html_name(const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    while (n && path[n - 1] != '/') n--;
    return path + n;
}

/* " · 434 k parameters, 2 layers, width 128 · 2 micro-batches of 8 × 64 tokens per step", from run.json; nothing if it has none. */
static void put_model(const page *p)
{
    char path[4096], *text = NULL;
    size_t bytes;
    snprintf(path, sizeof path, "%s/run.json", p->run->path);
    if (ls__file_read(path, 1 << 20, &text, &bytes)) return;
    json_t *root = json_loads(text, 0, NULL), *settings = json_object_get(root, "settings");
    double parameters = json_number_value(json_object_get(root, "parameters"));
    long long layers = (long long)json_integer_value(json_object_get(settings, "layers")),
              slots = (long long)json_integer_value(json_object_get(settings, "slots"));
    if (parameters > 0 && settings)
        fprintf(
            p->to,
            " \u00b7 %s parameters, %lld layer%s, width %lld \u00b7 %lld micro-batch%s of %lld \u00d7 %lld tokens per "
            "step",
            amount_count(parameters).text, layers, ls__s(layers),
            (long long)json_integer_value(json_object_get(settings, "width")), slots, slots == 1 ? "" : "es",
            (long long)json_integer_value(json_object_get(settings, "batch-size")),
            (long long)json_integer_value(json_object_get(settings, "seq-len")));
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
    put_html(p->to, html_name(run->path));
    if (p->other) {
        fputs(" <span>compared with ", p->to);
        put_html(p->to, html_name(p->other->path));
        fputs("</span>", p->to);
    }
    fprintf(p->to, "</h1><p class=\"lead\">%d rank%s", run->ranks, run->ranks == 1 ? "" : "s");
    if (r) {
        int nodes = 1;
        for (int i = 0; i < run->ranks; i++)
            if (run->rank[i].present && run->rank[i].node >= nodes) nodes = run->rank[i].node + 1;
        double own = r->metadata[LS_METADATA_THREADS]; /* otherwise, the cores that it may use */
        int threads = own >= 1 && own < 1e6 ? (int)own : r->threads;
        if (threads > 0) fprintf(p->to, " of %d thread%s", threads, threads == 1 ? "" : "s");
        if (nodes > 1) {
            fprintf(p->to, " on %d nodes", nodes);
        } else if (strcmp(r->host, "-")) { /* "-": an imported trace without the host's name */
            fputs(" on ", p->to);
            put_html(p->to, r->host);
        }
        if (run->ranks > 1) {
            fputs(" (", p->to);
            put_html(p->to, r->transport);
            fputs(")", p->to);
        }
        put_model(p);
        time_t start =
            r->start_time > 0 && r->start_time < 1e11 ? (time_t)r->start_time : 0; /* the file is untrusted */
        struct tm local;
        char text[64] = "";
        if (start > 0 && localtime_r(&start, &local)) strftime(text, sizeof text, "%d %B %Y, %H:%M", &local);
        if (*text) fprintf(p->to, " \u00b7 started %s", text);
        if (report_end(run)) fprintf(p->to, " \u00b7 <b>%s</b>", report_end(run));
    }
    fputs("</p></header>\n", p->to);
}

/* ---- All of it */

void html_open(FILE *to, const char *name, const char *command)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
          "script-src 'unsafe-inline'; img-src data:\">"
          "<link rel=\"icon\" href=\"data:,\"><title>",
          to);
    put_html(to, name);
    fprintf(to, " \u00b7 lockstep %s</title><style>%s</style></head><body>%s<main>\n", command, html_style,
            html_patterns);
}

void html_close(FILE *to)
{
    fprintf(to, "</main><div id=\"tip\" role=\"status\"></div><script>%s</script></body></html>\n", html_script);
}

ls_status html_save(FILE *to, char **text, const size_t *bytes, const char *path)
{
    ls_status status = fclose(to) ? ls__fail(LS_ENOMEM, "%s: no memory for the page", path) : LS_OK;
    if (!status && !strcmp(path, "-"))
        fwrite(*text, 1, *bytes, stdout); /* errors are found when it is closed */
    else if (!status)
        status = ls__file_write_named(path, *text, *bytes);
    free(*text);
    return status;
}

static void put_page(const page *p)
{
    html_open(p->to, html_name(p->run->path), "report");
    put_head(p);
    if (p->run->n_steps > p->run->first_counted) html_verdict(p);
    html_findings(p);
    html_generations(p);
    if (p->run->n_steps > p->run->first_counted) {
        html_compare(p);
        html_breakdown(p);
        html_over_time(p);
        html_timeline(p);
        html_waits(p);
    }
    html_curves(p);
    if (p->run->n_steps > p->run->first_counted) html_tables(p);
    html_import(p);
    html_profile(p);
    fprintf(p->to, "<footer>Made by lockstep %s from what the ranks recorded. The phases of a rank add up to the step.",
            ls_version());
    if (p->run->ranks > 1)
        fputs(" <i>Waiting</i>: in a collective before the last rank arrived; <i>communication</i>: the rest of the "
              "time in collectives, when the rank did nothing else.",
              p->to);
    fputs("</footer>\n", p->to);
    html_close(p->to);
}

ls_status html_write(const ls_run *run, const ls_run *other, const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    page p = { .run = run, .other = other, .to = open_memstream(&text, &bytes) };
    if (!p.to) return ls__fail_errno("%s: memory for the page", path);
    ls_status status = metrics_read(&p.lines, run->path);
    if (!status) put_page(&p);
    ls_status saved = status ? (fclose(p.to), free(text), status) : html_save(p.to, &text, &bytes, path);
    metrics_free(&p.lines);
    return saved;
}

/* What an import knows beyond the record (RUN/import.json): devices, their kernels, and collectives by size. */
#include <math.h>
#include <string.h>
#include "cli/amount.h"
#include "cli/escape.h"
#include "cli/html.h"
#include "cli/report_import.h"

enum { MOST_ROWS = 64, MOST_KERNELS = 12 };

static double number_of(const json_t *o, const char *key)
{
    double x = json_number_value(json_object_get(o, key));
    return isfinite(x) && x > 0 ? x : 0;
}

static void put_text(const page *p, const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));
    put_html(p->to, text ? printable(text) : "");
}

static void put_share(const page *p, double part, double whole)
{
    fprintf(p->to, "<td>%s", whole > 0 ? amount_share(part / whole).text : "-");
}

static void put_devices(const page *p, const json_t *ranks)
{
    size_t i;
    int shown = 0;
    const json_t *rank;
    json_array_foreach(ranks, i, rank)
    {
        const json_t *d = json_object_get(rank, "device");
        double span = number_of(d, "span_ms"), host = number_of(d, "idle_host_ms"), data = number_of(d, "idle_data_ms");
        if (!(span > 0) || shown >= MOST_ROWS) continue;
        if (!shown++) {
            html_card(
                p, "gpus", "", "Devices",
                "From the first kernel to the last. <i>Overlap</i>: share of communication while a kernel computes. "
                "<i>Idle</i>: no kernel at all, because none was launched yet (<i>host-bound</i>), the host loaded "
                "<i>data</i>, or one was launched and had to wait (<i>blocked</i>).");
            fputs(
                "<div class=\"scroll\"><table><tr><th>rank<th>compute<th>overlap<th>exposed<th>copies<th>idle<th>host-"
                "bound<th>data<th>blocked</tr>",
                p->to);
        }
        fprintf(p->to, "<tr><td>%lld", (long long)json_integer_value(json_object_get(rank, "rank")));
        put_share(p, number_of(d, "compute_ms"), span);
        put_share(p, number_of(d, "overlap_ms"), number_of(d, "comm_ms"));
        put_share(p, number_of(d, "exposed_ms"), span);
        put_share(p, number_of(d, "copies_ms"), span);
        put_share(p, number_of(d, "idle_ms"), span);
        put_share(p, fmax(0, host - data), span);
        put_share(p, data, span);
        put_share(p, number_of(d, "idle_gap_ms") + number_of(d, "idle_other_ms"), span);
        fputs("</tr>", p->to);
    }
    if (!shown) return;
    fputs("</table></div>", p->to);
    char advice[400];
    for (int data = 0; data < 2; data++)
        if (report_import_idle(ranks, data, advice, sizeof advice)) {
            fputs("<p>", p->to);
            put_html(p->to, advice);
            fputs("</p>", p->to);
        }
    html_card_end(p);
}

/* Kernels of templates have names that are longer than a page is wide: all of it is shown where the pointer rests. */
static void put_name(const page *p, const char *name)
{
    enum { WIDE = 60 };
    char start[WIDE + 1];
    int n = WIDE;
    const char *text = printable(name ? name : "");
    if (strlen(text) <= WIDE) {
        put_html(p->to, text);
        return;
    }
    while (n && ((unsigned char)text[n] & 0xc0) == 0x80) n--; /* a character stays whole */
    snprintf(start, sizeof start, "%.*s", n, text);
    fputs("<span title=\"", p->to);
    put_html(p->to, text);
    fputs("\">", p->to);
    put_html(p->to, start);
    fputs("\u2026</span>", p->to);
}

static void put_kernels(const page *p, const json_t *ranks)
{
    const json_t *kernels = json_object_get(json_object_get(json_array_get(ranks, 0), "device"), "kernels"), *k;
    size_t i;
    if (!json_array_size(kernels)) return;
    html_card(p, "kernels", "", "Kernels that take longest", "Of the first rank.");
    fputs("<div class=\"scroll\"><table><tr><th class=\"l\">kernel<th class=\"l\">class<th>calls<th>time</tr>", p->to);
    json_array_foreach(kernels, i, k)
    {
        if (i >= MOST_KERNELS) break;
        fputs("<tr><td class=\"l\">", p->to);
        put_name(p, json_string_value(json_object_get(k, "name")));
        fputs("<td class=\"l\">", p->to);
        put_text(p, k, "class");
        fprintf(p->to, "<td>%lld<td>%s</tr>", (long long)json_integer_value(json_object_get(k, "calls")),
                amount_ns(number_of(k, "ms") * 1e6).text);
    }
    fputs("</table></div>", p->to);
    html_card_end(p);
}

static void put_sizes(const page *p, const json_t *rows)
{
    size_t i;
    const json_t *row;
    if (!json_array_size(rows)) return;
    html_card(p, "sizes", "", "Collectives by size",
              "Means. <i>Transfer</i>: the least of the ranks, since the last to arrive does not wait. "
              "<i>Bandwidth</i>: size / "
              "transfer. <i>Bus</i>: what each rank's link carries of it, as nccl-tests count it.");
    fputs("<div class=\"scroll\"><table><tr><th class=\"l\">collective<th>calls<th>size<th>transfer<th>bandwidth<th>bus"
          "</tr>",
          p->to);
    json_array_foreach(rows, i, row)
    {
        if (i >= MOST_ROWS) break;
        fputs("<tr><td class=\"l\">", p->to);
        put_text(p, row, "kind");
        fprintf(p->to, "<td>%lld<td>%s<td>%s<td>%s<td>%s</tr>",
                (long long)json_integer_value(json_object_get(row, "count")),
                amount_bytes(number_of(row, "mean_bytes")).text, amount_ns(number_of(row, "mean_ms") * 1e6).text,
                amount_rate(number_of(row, "gbit_per_s") / 8, true).text,
                amount_rate(number_of(row, "bus_gbit_per_s") / 8, true).text);
    }
    fputs("</table></div>", p->to);
    html_card_end(p);
}

void html_import(const page *p)
{
    json_t *root = report_import_read(p->run->path);
    const json_t *ranks = json_object_get(root, "ranks");
    put_devices(p, ranks);
    put_kernels(p, ranks);
    put_sizes(p, json_object_get(root, "communication"));
    json_decref(root);
}

/* How the ranks of an elastic run changed: a table of its generations. */
#include "cli/amount.h"
#include "cli/escape.h"
#include "cli/generations.h"
#include "cli/html.h"

enum { MOST_ROWS = 200 };

void html_generations(const page *p)
{
    json_t *all = generations_read(p->run->path);
    size_t n = json_array_size(all);
    if (n > 1) {
        html_card(p, "generations", "", "Changes of ranks",
                  "When ranks or machines were lost, left or joined, why, and the time from that to the next finished "
                  "step. The other parts of this page show the newest ranks only.");
        fputs("<div class=\"scroll\"><table><tr><th>since step<th>ranks<th class=\"l\">why<th>took</tr>", p->to);
    }
    for (size_t i = n > MOST_ROWS ? n - MOST_ROWS : 0; n > 1 && i < n; i++) {
        const json_t *o = json_array_get(all, i);
        const char *why = json_string_value(json_object_get(o, "why"));
        double ms = json_number_value(json_object_get(o, "recovery_ms"));
        fprintf(p->to, "<tr><td>%lld<td>%lld<td class=\"l\">",
                (long long)json_integer_value(json_object_get(o, "step")),
                (long long)json_integer_value(json_object_get(o, "ranks")));
        put_html(p->to, why ? why : "?");
        fprintf(p->to, "<td>%s</tr>", ms > 0 ? amount_ns(ms * 1e6).text : "");
    }
    if (n > 1) {
        fputs("</table></div>\n", p->to);
        html_card_end(p);
    }
    json_decref(all);
}

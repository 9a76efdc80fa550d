/* See winograd.h. Weights are transformed and packed once. A task is some rows of tiles, perhaps of several images: their
 * transforms, 16 products (tiles, planes) (planes, to), and the transform of the results. */
#include "tensor/winograd.h"

#include <omp.h>
#include <string.h>
#include "kern/nn.h"
#include "tensor/rows.h"

enum {
    VALUES = 16, /* of a tile */
    LEAST_PLANES = 32,
    TASK_TILES = 64, /* about: enough rows for the products, few enough for the cache */
    SPARE = 16,      /* floats after the planes of a tile: rows of 2 KiB would fall into few sets of the L1 cache */
};

typedef struct tiling {
    int64_t across, down;            /* tiles of an image */
    int64_t rows, tiles;             /* rows of tiles of a task, and tiles */
    int64_t line;                    /* floats of a bordered line */
    size_t weights, in, out, border; /* floats: of all transformed weights; of a thread */
} tiling;

static tiling tile(const ls__sweep *p)
{
    tiling t = { .across = (p->cols + 1) / 2, .down = (p->rows + 1) / 2 };
    t.rows = (TASK_TILES + t.across - 1) / t.across;
    t.tiles = t.rows * t.across;
    t.line = (2 * t.across + 2) * p->planes;
    t.weights = (size_t)(VALUES * p->planes * p->to);
    t.in = (size_t)(VALUES * t.tiles * (p->planes + SPARE));
    t.out = (size_t)(VALUES * t.tiles * p->to);
    t.border = (size_t)(4 * t.line);
    return t;
}

bool ls__winograd_serves(const ls__sweep *p)
{
    return p->h == 3 && p->w == 3 && p->step == 1 && p->apart == 1 && p->planes % LS__PANEL == 0 &&
           p->to % LS__PANEL == 0 && p->planes >= LEAST_PLANES && p->to >= LEAST_PLANES && p->rows * p->cols >= VALUES;
}

size_t ls__winograd_floats(const ls_tape *t, const ls__sweep *p)
{
    tiling a = tile(p);
    return a.weights + (a.in + a.out + a.border) * (size_t)t->threads;
}

/* G g G^T of 16 channels of the result: g (9, 16) -> u (16, 16) */
static void transform_weights(float u[VALUES][LS__PANEL], float g[9][LS__PANEL])
{
    float t[4][3][LS__PANEL]; /* G g */
    for (int j = 0; j < 3; j++)
        for (int l = 0; l < LS__PANEL; l++) {
            float a = g[j][l], b = g[3 + j][l], c = g[6 + j][l];
            t[0][j][l] = a;
            t[1][j][l] = 0.5f * ((a + c) + b);
            t[2][j][l] = 0.5f * ((a + c) - b);
            t[3][j][l] = c;
        }
    for (int i = 0; i < 4; i++)
        for (int l = 0; l < LS__PANEL; l++) {
            float a = t[i][0][l], b = t[i][1][l], c = t[i][2][l];
            u[4 * i][l] = a;
            u[4 * i + 1][l] = 0.5f * ((a + c) + b);
            u[4 * i + 2][l] = 0.5f * ((a + c) - b);
            u[4 * i + 3][l] = c;
        }
}

/* Panel of 16 channels of the result: out[value][panel][plane][16] */
static void pack_panel(const ls__conv *s, const ls__sweep *p, bool back, const float *w, int64_t panel, float *out)
{
    int64_t plane_step = back ? s->in * 9 : 9, lane_step = back ? 9 : s->in * 9, all = p->planes * p->to;
    for (int64_t plane = 0; plane < p->planes; plane++) {
        const float *from = w + plane * plane_step + panel * LS__PANEL * lane_step;
        float g[9][LS__PANEL], u[VALUES][LS__PANEL];
        for (int64_t l = 0; l < LS__PANEL; l++)
            for (int tap = 0; tap < 9; tap++) g[tap][l] = from[l * lane_step + (back ? 8 - tap : tap)];
        transform_weights(u, g);
        float *to = out + (panel * p->planes + plane) * LS__PANEL;
        for (int v = 0; v < VALUES; v++) memcpy(to + v * all, u[v], sizeof u[v]);
    }
}

/* Lines [y, y + 4) of an image, from column `left` of it on, with zeros outside. */
static void copy_lines(const ls__sweep *p, const tiling *a, const float *image, int64_t y, float *out)
{
    int64_t width = 2 * a->across + 2, C = p->planes, zeros = p->left < 0 ? -p->left : 0;
    int64_t from = p->left > 0 ? p->left : 0, inner = ls__min(width - zeros, p->source_w - from);
    if (inner < 0) inner = 0;
    for (int64_t i = 0; i < 4; i++, out += a->line) {
        int64_t source = p->top + y + i;
        if (source < 0 || source >= p->source_h) {
            memset(out, 0, (size_t)a->line * sizeof *out);
            continue;
        }
        memset(out, 0, (size_t)(zeros * C) * sizeof *out);
        memcpy(out + zeros * C, image + (source * p->source_w + from) * C, (size_t)(inner * C) * sizeof *out);
        memset(out + (zeros + inner) * C, 0, (size_t)((width - zeros - inner) * C) * sizeof *out);
    }
}

/* Rows of tiles [first, first + rows), counted over all images. */
static void run_task(const ls__sweep *p, const tiling *a, const float *weights, int64_t first, int64_t rows,
                     const float *source, float *result, bool add, float *own)
{
    const ls__nn_kernels *k = ls__nn_kernels_best();
    int64_t tiles = rows * a->across, planes = p->planes, row = planes + SPARE, line = p->result_w * p->to;
    int64_t source_size = p->source_h * p->source_w * planes, result_size = p->rows * line;
    float *in = own, *out = own + a->in, *border = out + a->out;
    for (int64_t r = 0; r < rows; r++) {
        int64_t b = (first + r) / a->down, y = (first + r) % a->down * 2;
        copy_lines(p, a, source + b * source_size, y, border);
        for (int64_t x = 0; x < a->across; x++)
            k->winograd_in(in + (r * a->across + x) * row, (size_t)(tiles * row), border + 2 * x * planes, a->line,
                           (size_t)planes);
    }
    for (int v = 0; v < VALUES; v++) {
        ls__left left = { in + v * tiles * row, row, 1, k->rows * row };
        k->panel_product(out + v * tiles * p->to, p->to, &left, weights + v * planes * p->to, planes, tiles, p->to,
                         planes, false);
    }
    for (int64_t r = 0; r < rows; r++) {
        int64_t b = (first + r) / a->down, y = (first + r) % a->down * 2;
        for (int64_t x = 0; x < a->across; x++)
            k->winograd_out(result + b * result_size + y * line + 2 * x * p->to, line, p->rows - y < 2 ? 1 : 2,
                            p->cols - 2 * x < 2 ? 1 : 2, out + (r * a->across + x) * p->to, (size_t)(tiles * p->to),
                            (size_t)p->to, add);
    }
}

void ls__winograd_run(const ls_tape *t, const ls__conv *s, const ls__sweep *p, bool back, const float *w,
                      const float *source, float *result, bool add, float *memory)
{
    tiling a = tile(p);
    int64_t panels = p->to / LS__PANEL, all = s->B * a.down, tasks = (all + a.rows - 1) / a.rows;
    float *own = memory + a.weights;
    size_t each = a.in + a.out + a.border;
#pragma omp parallel for num_threads(t->threads) schedule(static) if (p->planes * p->to > 4096)
    for (int64_t i = 0; i < panels; i++) pack_panel(s, p, back, w, i, memory);
#pragma omp parallel for num_threads(t->threads) schedule(dynamic, 1)
    for (int64_t i = 0; i < tasks; i++)
        run_task(p, &a, memory, i * a.rows, ls__min(a.rows, all - i * a.rows), source, result, add,
                 own + each * (size_t)omp_get_thread_num());
}

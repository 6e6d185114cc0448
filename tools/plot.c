/* SPDX-License-Identifier: Apache-2.0
 * See plot.h.
 */
#include "tools/plot.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH = 960, LEFT = 78, RIGHT = 24, TOP = 54, PANEL = 300, BELOW = 62 };

struct scale {
	double lo, hi; /* x: as they are; y: decades */
};

void plot_panel_init(struct plot_panel *p)
{
	buf_init(&p->points, MEM_TOOL, 0);
	buf_init(&p->bands, MEM_TOOL, 0);
}

void plot_panel_finish(struct plot_panel *p)
{
	buf_finish(&p->points);
	buf_finish(&p->bands);
}

void plot_add(struct plot_panel *p, double x, double y, uint32_t series)
{
	const struct plot_point q = { x, y, series };

	if (y > 0 && isfinite(x) && isfinite(y))
		(void)buf_append(&p->points, &q, sizeof q);
}

void plot_shade(struct plot_panel *p, double from, double to, uint32_t kind)
{
	const struct plot_band b = { from, to, kind };

	(void)buf_append(&p->bands, &b, sizeof b);
}

static size_t n_points(const struct plot_panel *p) { return p->points.len / sizeof(struct plot_point); }
static size_t n_bands(const struct plot_panel *p) { return p->bands.len / sizeof(struct plot_band); }

static struct plot_point point(const struct plot_panel *p, size_t i)
{
	struct plot_point q;

	memcpy(&q, p->points.data + i * sizeof q, sizeof q);
	return q;
}

static struct plot_band band(const struct plot_panel *p, size_t i)
{
	struct plot_band b;

	memcpy(&b, p->bands.data + i * sizeof b, sizeof b);
	return b;
}

static struct scale fit_x(const struct plot_panel *panels, size_t n)
{
	struct scale s = { 0, 1 };

	for (size_t k = 0; k < n; k++) {
		for (size_t i = 0; i < n_points(&panels[k]); i++)
			s.hi = MAX_OF(s.hi, point(&panels[k], i).x);
		for (size_t i = 0; i < n_bands(&panels[k]); i++)
			s.hi = MAX_OF(s.hi, band(&panels[k], i).to);
	}
	return s;
}

/* Whole decades around all points. */
static struct scale fit_y(const struct plot_panel *panels, size_t n)
{
	struct scale s = { HUGE_VAL, -HUGE_VAL };

	for (size_t k = 0; k < n; k++)
		for (size_t i = 0; i < n_points(&panels[k]); i++) {
			s.lo = MIN_OF(s.lo, floor(log10(point(&panels[k], i).y)));
			s.hi = MAX_OF(s.hi, ceil(log10(point(&panels[k], i).y)));
		}
	if (s.lo > s.hi)
		return (struct scale){ 0, 1 };
	s.hi = MAX_OF(s.hi, s.lo + 1);
	return s;
}

static double at_x(struct scale s, double x)
{
	return LEFT + (x - s.lo) / (s.hi - s.lo) * (WIDTH - LEFT - RIGHT);
}
static double at_y(struct scale s, double y) { return TOP + (s.hi - log10(y)) / (s.hi - s.lo) * PANEL; }

void plot_text(struct buf *out, double x, double y, const char *attributes, const char *text)
{
	(void)buf_printf(out, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, attributes);
	for (; *text; text++) {
		if (*text == '<')
			(void)buf_puts(out, "&lt;");
		else if (*text == '&')
			(void)buf_puts(out, "&amp;");
		else
			(void)buf_putc(out, *text);
	}
	(void)buf_puts(out, "</text>\n");
}

static double nice_step(double span)
{
	double base = pow(10, floor(log10(span / 8)));

	return span / base <= 16 ? 2 * base : span / base <= 40 ? 5 * base : 10 * base;
}

static void put_x_axis(const struct plot_panel *p, struct scale x, struct buf *out)
{
	double step = nice_step(x.hi - x.lo);
	char text[32];

	for (double v = 0; v <= x.hi + step / 1e6; v += step) {
		(void)snprintf(text, sizeof text, "%g", v);
		plot_text(out, at_x(x, v), TOP + PANEL + 18, "text-anchor=\"middle\"", text);
	}
	plot_text(out, (LEFT + WIDTH - RIGHT) / 2.0, TOP + PANEL + 38, "text-anchor=\"middle\"", p->x_label);
}

static void put_y_axis(const struct plot_panel *p, struct scale y, struct buf *out)
{
	char text[32];

	for (double d = y.lo; d <= y.hi; d++) {
		for (int m = 1; m < 10 && (m == 1 || d < y.hi); m++)
			(void)buf_printf(out,
				"<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#000\" stroke-opacity=\"%s\"/>\n",
				LEFT, WIDTH - RIGHT, at_y(y, m * pow(10, d)), at_y(y, m * pow(10, d)),
				m == 1 ? "0.25" : "0.06");
		(void)snprintf(text, sizeof text, "%g", pow(10, d));
		plot_text(out, LEFT - 8, at_y(y, pow(10, d)) + 4, "text-anchor=\"end\"", text);
	}
	(void)buf_printf(out, "<g transform=\"translate(20 %.1f) rotate(-90)\">\n", TOP + PANEL / 2.0);
	plot_text(out, 0, 0, "text-anchor=\"middle\"", p->y_label);
	(void)buf_puts(out, "</g>\n");
}

static void put_mark(const struct plot_series *s, double x, double y, struct buf *out)
{
	if (s->mark == PLOT_CROSS)
		(void)buf_printf(out,
			"<path d=\"M%.1f %.1fl8 8m0 -8l-8 8\" stroke=\"%s\" stroke-width=\"1.6\"/>\n", x - 4,
			y - 4, s->color);
	else
		(void)buf_printf(out,
			"<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\" stroke=\"%s\" stroke-width=\"1.6\"/>\n",
			x, y, s->mark == PLOT_DOT ? s->color : "none", s->color);
}

/* What the marks and the shades mean, in a row under the title. */
static void put_key(const struct plot_panel *p, struct buf *out)
{
	double x = LEFT, y = TOP - 12;

	for (uint32_t i = 0; i < p->n_series; i++) {
		put_mark(&p->series[i], x + 5, y - 4, out);
		plot_text(out, x + 15, y, "", p->series[i].name);
		x += 32 + 6.6 * (double)strlen(p->series[i].name);
	}
	for (uint32_t i = 0; i < p->n_bands_kinds; i++) {
		(void)buf_printf(out,
			"<rect x=\"%.1f\" y=\"%.1f\" width=\"12\" height=\"12\" fill=\"%s\" stroke=\"#888\"/>\n",
			x, y - 10, p->band_color[i]);
		plot_text(out, x + 17, y, "", p->band_name[i]);
		x += 34 + 6.6 * (double)strlen(p->band_name[i]);
	}
}

static void put_panel(const struct plot_panel *p, struct scale x, struct scale y, struct buf *out)
{
	for (size_t i = 0; i < n_bands(p); i++) {
		struct plot_band b = band(p, i);

		if (b.kind < p->n_bands_kinds)
			(void)buf_printf(out,
				"<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\"/>\n",
				at_x(x, b.from), TOP, at_x(x, b.to) - at_x(x, b.from), PANEL,
				p->band_color[b.kind]);
	}
	plot_text(out, LEFT, 22, "font-size=\"15\" font-weight=\"bold\"", p->title);
	put_key(p, out);
	put_y_axis(p, y, out);
	put_x_axis(p, x, out);
	for (size_t i = 0; i < n_points(p); i++) {
		struct plot_point q = point(p, i);

		if (q.series < p->n_series)
			put_mark(&p->series[q.series], at_x(x, q.x), at_y(y, q.y), out);
	}
}

int plot_svg(const struct plot_panel *panels, size_t n, struct buf *out, struct error *e)
{
	const int each = TOP + PANEL + BELOW;
	struct scale x = fit_x(panels, n), y = fit_y(panels, n);
	bool failed = false;

	(void)buf_printf(out,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
		"font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
		WIDTH, each * (int)n, WIDTH, each * (int)n);
	for (size_t i = 0; i < n; i++) {
		failed |= panels[i].points.failed || panels[i].bands.failed;
		(void)buf_printf(out, "<g transform=\"translate(0 %d)\">\n", each * (int)i);
		put_panel(&panels[i], x, y, out);
		(void)buf_puts(out, "</g>\n");
	}
	(void)buf_puts(out, "</svg>\n");
	return failed || out->failed ? error_set(e, TENON_E_NOMEM, "plot: out of memory") : TENON_OK;
}

int plot_write(const struct plot_panel *panels, size_t n, const char *path, struct error *e)
{
	struct buf out;
	FILE *f;
	int rc;

	buf_init(&out, MEM_TOOL, 0);
	rc = plot_svg(panels, n, &out, e);
	if (!rc) {
		f = fopen(path, "we");
		if (!f || fwrite(out.data, 1, out.len, f) != out.len)
			rc = error_errno(e, TENON_E_IO, errno, "plot '%.200s'", path);
		if (f && fclose(f) && !rc)
			rc = error_errno(e, TENON_E_IO, errno, "plot '%.200s'", path);
	}
	buf_finish(&out);
	return rc;
}

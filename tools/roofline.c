/* SPDX-License-Identifier: Apache-2.0
 * roofline.h.
 */
#include "tools/roofline.h"
#include "tools/plot.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LEFT = 78, TOP = 48, PLOT_W = 600, PLOT_H = 480, KEY_X = 710, KEY_W = 520, ROW = 19, BELOW = 70 };

struct scale {
	double lo, hi; /* decades */
};

void roofline_add(struct roofline *r, struct roofline_point p)
{
	if (r->n_points < ROOFLINE_POINTS && p.intensity > 0 && p.gop_s > 0 && isfinite(p.intensity) &&
		isfinite(p.gop_s))
		r->point[r->n_points++] = p;
}

static void widen(struct scale *s, double v)
{
	if (v <= 0 || !isfinite(v))
		return;
	s->lo = MIN_OF(s->lo, floor(log10(v)));
	s->hi = MAX_OF(s->hi, ceil(log10(v)));
}

static double at_x(struct scale s, double v) { return LEFT + (log10(v) - s.lo) / (s.hi - s.lo) * PLOT_W; }
static double at_y(struct scale s, double v) { return TOP + (s.hi - log10(v)) / (s.hi - s.lo) * PLOT_H; }

/* Whole decades around the points and the corners of the roofs. */
static void fit(const struct roofline *r, struct scale *x, struct scale *y)
{
	*x = *y = (struct scale){ 0, 1 };
	if (r->n_points) {
		*x = (struct scale){ HUGE_VAL, -HUGE_VAL };
		*y = *x;
	}
	for (uint32_t i = 0; i < r->n_points; i++) {
		widen(x, r->point[i].intensity);
		widen(y, r->point[i].gop_s);
	}
	for (uint32_t i = 0; i < r->n_roofs; i++) {
		widen(y, r->roof_gop_s[i]);
		if (r->read_gb_s > 0)
			widen(x, r->roof_gop_s[i] / r->read_gb_s);
	}
	x->hi = MAX_OF(x->hi, x->lo + 1);
	y->hi = MAX_OF(y->hi, y->lo + 1);
}

static void put_line(struct buf *out, const char *class, double x1, double y1, double x2, double y2)
{
	(void)buf_printf(out, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", class,
		x1, y1, x2, y2);
}

static void put_axes(struct scale x, struct scale y, struct buf *out)
{
	char text[32];

	for (double d = x.lo; d <= x.hi; d++)
		for (int m = 1; m < 10 && (m == 1 || d < x.hi); m++)
			put_line(out, m == 1 ? "decade" : "grid", at_x(x, m * pow(10, d)), TOP,
				at_x(x, m * pow(10, d)), TOP + PLOT_H);
	for (double d = y.lo; d <= y.hi; d++)
		for (int m = 1; m < 10 && (m == 1 || d < y.hi); m++)
			put_line(out, m == 1 ? "decade" : "grid", LEFT, at_y(y, m * pow(10, d)),
				LEFT + PLOT_W, at_y(y, m * pow(10, d)));
	for (double d = x.lo; d <= x.hi; d++) {
		(void)snprintf(text, sizeof text, "%g", pow(10, d));
		plot_text(out, at_x(x, pow(10, d)), TOP + PLOT_H + 18, "text-anchor=\"middle\"", text);
	}
	for (double d = y.lo; d <= y.hi; d++) {
		(void)snprintf(text, sizeof text, "%g", pow(10, d));
		plot_text(out, LEFT - 8, at_y(y, pow(10, d)) + 4, "text-anchor=\"end\"", text);
	}
	plot_text(out, LEFT + PLOT_W / 2.0, TOP + PLOT_H + 40, "text-anchor=\"middle\"",
		"operations a byte (weights, keys and values, activations)");
	(void)buf_printf(out, "<g transform=\"translate(22 %.1f) rotate(-90)\">\n", TOP + PLOT_H / 2.0);
	plot_text(out, 0, 0, "text-anchor=\"middle\"", "GOP/s");
	(void)buf_puts(out, "</g>\n");
}

/* The slope ends at the highest roof; each roof begins at the slope. */
static void put_roofs(const struct roofline *r, struct scale x, struct scale y, struct buf *out)
{
	double x0 = pow(10, x.lo), x1 = pow(10, x.hi), y0 = pow(10, y.lo), top = 0;
	char text[96];

	for (uint32_t i = 0; i < r->n_roofs; i++) {
		double from = r->read_gb_s > 0 ? r->roof_gop_s[i] / r->read_gb_s : x0;

		top = MAX_OF(top, r->roof_gop_s[i]);
		if (r->roof_gop_s[i] <= 0 || from >= x1)
			continue;
		put_line(out, "roof", at_x(x, MAX_OF(from, x0)), at_y(y, r->roof_gop_s[i]), LEFT + PLOT_W,
			at_y(y, r->roof_gop_s[i]));
		(void)snprintf(text, sizeof text, "%.40s %.0f GOP/s", r->roof_name[i], r->roof_gop_s[i]);
		plot_text(out, LEFT + PLOT_W - 4, at_y(y, r->roof_gop_s[i]) - 5,
			"class=\"limit\" text-anchor=\"end\"", text);
	}
	if (r->read_gb_s <= 0)
		return;
	top = top > 0 ? top : pow(10, y.hi);
	x0 = MAX_OF(x0, y0 / r->read_gb_s);
	x1 = MIN_OF(x1, top / r->read_gb_s);
	if (x0 >= x1)
		return;
	put_line(out, "roof", at_x(x, x0), at_y(y, x0 * r->read_gb_s), at_x(x, x1),
		at_y(y, x1 * r->read_gb_s));
	(void)snprintf(text, sizeof text, "reading %.1f GB/s", r->read_gb_s);
	(void)buf_printf(out, "<g transform=\"translate(%.1f %.1f) rotate(%.1f)\">\n", at_x(x, x0) + 16,
		at_y(y, x0 * r->read_gb_s) - 18,
		-atan2(PLOT_H / (y.hi - y.lo), PLOT_W / (x.hi - x.lo)) * 180 / 3.14159265358979);
	plot_text(out, 0, 0, "class=\"limit\"", text);
	(void)buf_puts(out, "</g>\n");
}

static void put_point(struct buf *out, double x, double y, double radius, const char *class, uint32_t number)
{
	char text[16];

	(void)snprintf(text, sizeof text, "%u", number);
	(void)buf_printf(
		out, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"/>\n", class, x, y, radius);
	plot_text(out, x, y + 3.5, "class=\"number\" text-anchor=\"middle\"", text);
}

static void put_key_row(
	const struct roofline_point *p, uint32_t number, double y, const char *class, struct buf *out)
{
	char text[128];

	put_point(out, KEY_X + 9, y - 4, 8, class, number);
	(void)snprintf(text, sizeof text, "%.46s  %.1f GOP/s, %.0f %%", p->name, p->gop_s, 100 * p->share);
	plot_text(out, KEY_X + 24, y, "", text);
}

static void put_points(const struct roofline *r, struct scale x, struct scale y, struct buf *out)
{
	static const char *const class[2] = { "first", "second" };
	double row = TOP + 6;

	for (uint32_t s = 0; s < 2; s++) {
		bool any = false;

		for (uint32_t i = 0; i < r->n_points; i++)
			any |= r->point[i].series == s;
		if (!any)
			continue;
		plot_text(out, KEY_X, row, "font-weight=\"bold\"", r->series_name[s]);
		row += ROW;
		for (uint32_t i = 0; i < r->n_points; i++) {
			const struct roofline_point *p = &r->point[i];

			if (p->series != s)
				continue;
			put_point(out, at_x(x, p->intensity), at_y(y, p->gop_s),
				7 + 9 * sqrt(MAX_OF(0, MIN_OF(p->share, 1))), class[s], i + 1);
			put_key_row(p, i + 1, row, class[s], out);
			row += ROW;
		}
		row += ROW / 2.0;
	}
}

int roofline_svg(const struct roofline *r, struct buf *out, struct error *e)
{
	int height = MAX_OF(TOP + PLOT_H + BELOW, TOP + ROW * ((int)r->n_points + 5)), width = KEY_X + KEY_W;
	struct scale x, y;

	fit(r, &x, &y);
	(void)buf_printf(out,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
		"font-size=\"12\">\n",
		width, height, width, height);
	(void)buf_puts(out,
		"<style>.page{fill:#fff} text{fill:#1a1a1a} .grid{stroke:#000;stroke-opacity:.07} .decade{stroke:#000;stroke-opacity:.28} "
		".roof{stroke:#b3261e;stroke-width:2} .limit{fill:#b3261e} .first{fill:#1f6fb4;fill-opacity:.85} "
		".second{fill:#b86e00;fill-opacity:.85} .number{fill:#fff;font-size:10px;font-weight:bold}\n"
		"@media (prefers-color-scheme:dark){.page{fill:#15181c} text{fill:#e6e6e6} .grid,.decade{stroke:#fff} "
		".roof{stroke:#ff8a80} .limit{fill:#ff8a80} .first{fill:#2d7fc4} .second{fill:#c27a10} .number{fill:#fff}}</style>\n"
		"<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n");
	plot_text(out, LEFT, 26, "font-size=\"15\" font-weight=\"bold\"", r->title);
	put_axes(x, y, out);
	put_roofs(r, x, y, out);
	put_points(r, x, y, out);
	(void)buf_puts(out, "</svg>\n");
	return out->failed ? error_set(e, TENON_E_NOMEM, "roofline: out of memory") : TENON_OK;
}

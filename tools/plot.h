/* SPDX-License-Identifier: Apache-2.0
 * A figure as SVG: panels of points over time with shaded stretches and a key. Points are copied; any
 * failure shows when the plot is written. Single-threaded.
 */
#ifndef TOOLS_PLOT_H
#define TOOLS_PLOT_H
#include "base/base.h"

enum plot_mark { PLOT_DOT, PLOT_RING, PLOT_CROSS };
struct plot_series { const char *name, *color; enum plot_mark mark; }; /* strings borrowed */
struct plot_point { double x, y; uint32_t series; };
struct plot_band { double from, to; uint32_t kind; }; /* x */

struct plot_panel { /* zero-initialise */
	const char *title, *x_label, *y_label; /* borrowed */
	const struct plot_series *series;
	const char *const *band_name, *const *band_color;
	uint32_t n_series, n_bands_kinds;
	struct buf points, bands; /* of struct plot_point, struct plot_band */
};
void plot_panel_init(struct plot_panel *p);
void plot_panel_finish(struct plot_panel *p);
void plot_add(struct plot_panel *p, double x, double y, uint32_t series);
void plot_shade(struct plot_panel *p, double from, double to, uint32_t kind);
/* A text element at (x, y), what would be a tag in it escaped. */
void plot_text(struct buf *out, double x, double y, const char *attributes, const char *text);
/* Panels below each other with the same scales; y is logarithmic. */
int plot_svg(const struct plot_panel *panels, size_t n, struct buf *out, struct error *e);
int plot_write(const struct plot_panel *panels, size_t n, const char *path, struct error *e);
#endif

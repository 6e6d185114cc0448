/* SPDX-License-Identifier: Apache-2.0
 * A roofline as SVG: how much arithmetic a second against how much of it for each byte, both logarithmic; the machine's
 * limits as lines, operators as numbered points with their names beside. Follows light and dark settings. One thread.
 */
#ifndef TOOLS_ROOFLINE_H
#define TOOLS_ROOFLINE_H
#include "base/base.h"

enum { ROOFLINE_ROOFS = 4, ROOFLINE_POINTS = 64 };
struct roofline_point {
	const char *name;	 /* borrowed */
	double intensity, gop_s; /* operations a byte; points without either are left out */
	double share;		 /* of the time of its series: sizes the point */
	uint32_t series;
};
struct roofline { /* zero-initialise */
	const char *title;
	double read_gb_s; /* 0: not known */
	double roof_gop_s[ROOFLINE_ROOFS];
	const char *roof_name[ROOFLINE_ROOFS];
	uint32_t n_roofs;
	const char *series_name[2];
	struct roofline_point point[ROOFLINE_POINTS];
	uint32_t n_points;
};
/* Beyond ROOFLINE_POINTS none are taken. */
void roofline_add(struct roofline *r, struct roofline_point p);
int roofline_svg(const struct roofline *r, struct buf *out, struct error *e);
#endif

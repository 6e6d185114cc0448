/* SPDX-License-Identifier: Apache-2.0
 * Properties and case of code points (jinja_unicode.h). The tables list what general categories do not tell:
 * Other_Lowercase and its like, Numeric_Type, XID_Start and XID_Continue.
 */
#include "engine/jinja_unicode.h"
#include "engine/jinja_casing.h"
#include <utf8proc.h>

struct range {
	uint32_t first, last;
};

static const struct range other_lower[] = {
	{ 0xaa, 0xaa },
	{ 0xba, 0xba },
	{ 0x2b0, 0x2b8 },
	{ 0x2c0, 0x2c1 },
	{ 0x2e0, 0x2e4 },
	{ 0x345, 0x345 },
	{ 0x37a, 0x37a },
	{ 0x1d2c, 0x1d6a },
	{ 0x1d78, 0x1d78 },
	{ 0x1d9b, 0x1dbf },
	{ 0x2071, 0x2071 },
	{ 0x207f, 0x207f },
	{ 0x2090, 0x209c },
	{ 0x2170, 0x217f },
	{ 0x24d0, 0x24e9 },
	{ 0x2c7c, 0x2c7d },
	{ 0xa69c, 0xa69d },
	{ 0xa770, 0xa770 },
	{ 0xa7f8, 0xa7f9 },
	{ 0xab5c, 0xab5f },
	{ 0x10780, 0x10780 },
	{ 0x10783, 0x10785 },
	{ 0x10787, 0x107b0 },
	{ 0x107b2, 0x107ba },
};

static const struct range other_upper[] = {
	{ 0x2160, 0x216f },
	{ 0x24b6, 0x24cf },
	{ 0x1f130, 0x1f149 },
	{ 0x1f150, 0x1f169 },
	{ 0x1f170, 0x1f189 },
};

static const struct range other_digit[] = {
	{ 0xb2, 0xb3 },
	{ 0xb9, 0xb9 },
	{ 0x1369, 0x1371 },
	{ 0x19da, 0x19da },
	{ 0x2070, 0x2070 },
	{ 0x2074, 0x2079 },
	{ 0x2080, 0x2089 },
	{ 0x2460, 0x2468 },
	{ 0x2474, 0x247c },
	{ 0x2488, 0x2490 },
	{ 0x24ea, 0x24ea },
	{ 0x24f5, 0x24fd },
	{ 0x24ff, 0x24ff },
	{ 0x2776, 0x277e },
	{ 0x2780, 0x2788 },
	{ 0x278a, 0x2792 },
	{ 0x10a40, 0x10a43 },
	{ 0x10e60, 0x10e68 },
	{ 0x11052, 0x1105a },
	{ 0x1f100, 0x1f10a },
};

static const struct range other_numeric[] = {
	{ 0x3405, 0x3405 },
	{ 0x3483, 0x3483 },
	{ 0x382a, 0x382a },
	{ 0x3b4d, 0x3b4d },
	{ 0x4e00, 0x4e00 },
	{ 0x4e03, 0x4e03 },
	{ 0x4e07, 0x4e07 },
	{ 0x4e09, 0x4e09 },
	{ 0x4e5d, 0x4e5d },
	{ 0x4e8c, 0x4e8c },
	{ 0x4e94, 0x4e94 },
	{ 0x4e96, 0x4e96 },
	{ 0x4ebf, 0x4ec0 },
	{ 0x4edf, 0x4edf },
	{ 0x4ee8, 0x4ee8 },
	{ 0x4f0d, 0x4f0d },
	{ 0x4f70, 0x4f70 },
	{ 0x5104, 0x5104 },
	{ 0x5146, 0x5146 },
	{ 0x5169, 0x5169 },
	{ 0x516b, 0x516b },
	{ 0x516d, 0x516d },
	{ 0x5341, 0x5341 },
	{ 0x5343, 0x5345 },
	{ 0x534c, 0x534c },
	{ 0x53c1, 0x53c4 },
	{ 0x56db, 0x56db },
	{ 0x58f1, 0x58f1 },
	{ 0x58f9, 0x58f9 },
	{ 0x5e7a, 0x5e7a },
	{ 0x5efe, 0x5eff },
	{ 0x5f0c, 0x5f0e },
	{ 0x5f10, 0x5f10 },
	{ 0x62fe, 0x62fe },
	{ 0x634c, 0x634c },
	{ 0x67d2, 0x67d2 },
	{ 0x6f06, 0x6f06 },
	{ 0x7396, 0x7396 },
	{ 0x767e, 0x767e },
	{ 0x8086, 0x8086 },
	{ 0x842c, 0x842c },
	{ 0x8cae, 0x8cae },
	{ 0x8cb3, 0x8cb3 },
	{ 0x8d30, 0x8d30 },
	{ 0x9621, 0x9621 },
	{ 0x9646, 0x9646 },
	{ 0x964c, 0x964c },
	{ 0x9678, 0x9678 },
	{ 0x96f6, 0x96f6 },
	{ 0xf96b, 0xf96b },
	{ 0xf973, 0xf973 },
	{ 0xf978, 0xf978 },
	{ 0xf9b2, 0xf9b2 },
	{ 0xf9d1, 0xf9d1 },
	{ 0xf9d3, 0xf9d3 },
	{ 0xf9fd, 0xf9fd },
	{ 0x20001, 0x20001 },
	{ 0x20064, 0x20064 },
	{ 0x200e2, 0x200e2 },
	{ 0x20121, 0x20121 },
	{ 0x2092a, 0x2092a },
	{ 0x20983, 0x20983 },
	{ 0x2098c, 0x2098c },
	{ 0x2099c, 0x2099c },
	{ 0x20aea, 0x20aea },
	{ 0x20afd, 0x20afd },
	{ 0x20b19, 0x20b19 },
	{ 0x22390, 0x22390 },
	{ 0x22998, 0x22998 },
	{ 0x23b1b, 0x23b1b },
	{ 0x2626d, 0x2626d },
	{ 0x2f890, 0x2f890 },
};

static const struct range name_start_too[] = {
	{ 0x1885, 0x1886 },
	{ 0x2118, 0x2118 },
	{ 0x212e, 0x212e },
};

static const struct range name_start_not[] = {
	{ 0x37a, 0x37a },
	{ 0xe33, 0xe33 },
	{ 0xeb3, 0xeb3 },
	{ 0x2e2f, 0x2e2f },
	{ 0xfc5e, 0xfc63 },
	{ 0xfdfa, 0xfdfb },
	{ 0xfe70, 0xfe70 },
	{ 0xfe72, 0xfe72 },
	{ 0xfe74, 0xfe74 },
	{ 0xfe76, 0xfe76 },
	{ 0xfe78, 0xfe78 },
	{ 0xfe7a, 0xfe7a },
	{ 0xfe7c, 0xfe7c },
	{ 0xfe7e, 0xfe7e },
	{ 0xff9e, 0xff9f },
};

static const struct range name_part_too[] = {
	{ 0xb7, 0xb7 },
	{ 0x387, 0x387 },
	{ 0x1369, 0x1371 },
	{ 0x19da, 0x19da },
	{ 0x2118, 0x2118 },
	{ 0x212e, 0x212e },
};

static const struct range name_part_not[] = {
	{ 0x37a, 0x37a },
	{ 0x2e2f, 0x2e2f },
	{ 0xfc5e, 0xfc63 },
	{ 0xfdfa, 0xfdfb },
	{ 0xfe70, 0xfe70 },
	{ 0xfe72, 0xfe72 },
	{ 0xfe74, 0xfe74 },
	{ 0xfe76, 0xfe76 },
	{ 0xfe78, 0xfe78 },
	{ 0xfe7a, 0xfe7a },
	{ 0xfe7c, 0xfe7c },
	{ 0xfe7e, 0xfe7e },
};

static const struct range ignorable_too[] = {
	{ 0x27, 0x27 },
	{ 0x2e, 0x2e },
	{ 0x3a, 0x3a },
	{ 0xb7, 0xb7 },
	{ 0x387, 0x387 },
	{ 0x55f, 0x55f },
	{ 0x5f4, 0x5f4 },
	{ 0x2018, 0x2019 },
	{ 0x2024, 0x2024 },
	{ 0x2027, 0x2027 },
	{ 0xfe13, 0xfe13 },
	{ 0xfe52, 0xfe52 },
	{ 0xfe55, 0xfe55 },
	{ 0xff07, 0xff07 },
	{ 0xff0e, 0xff0e },
	{ 0xff1a, 0xff1a },
};

static bool in_ranges(const struct range *r, size_t n, uint32_t cp)
{
	size_t lo = 0, hi = n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (cp > r[mid].last)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < n && cp >= r[lo].first;
}
#define IN(table, cp) in_ranges(table, sizeof table / sizeof table[0], cp)

static utf8proc_category_t category(uint32_t cp) { return utf8proc_category((utf8proc_int32_t)cp); }

static const struct casing *casing_find(uint32_t cp)
{
	size_t lo = 0, hi = sizeof casings / sizeof casings[0];

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (casings[mid].cp < cp)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < sizeof casings / sizeof casings[0] && casings[lo].cp == cp ? &casings[lo] : NULL;
}

static size_t fold(uint32_t cp, uint32_t out[4])
{
	utf8proc_int32_t buf[8];
	int last = 0;
	utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)cp, buf, 8, UTF8PROC_CASEFOLD, &last);

	if (n < 1 || n > 4) {
		out[0] = cp;
		return 1;
	}
	for (utf8proc_ssize_t i = 0; i < n; i++)
		out[i] = (uint32_t)buf[i];
	return (size_t)n;
}

size_t junicode_case(enum junicode_case to, uint32_t cp, uint32_t out[4])
{
	const struct casing *c;

	if (cp < 0x80) {
		bool upper = to == JCASE_UPPER || to == JCASE_TITLE;

		out[0] = upper && cp >= 'a' && cp <= 'z'   ? cp - 32
			: !upper && cp >= 'A' && cp <= 'Z' ? cp + 32
							   : cp;
		return 1;
	}
	if (to == JCASE_FOLD)
		return fold(cp, out);
	if (to == JCASE_LOWER) {
		out[0] = cp == 0x130 ? 'i' : (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
		out[1] = 0x307; /* the only character whose lower case is longer: capital I with dot above */
		return cp == 0x130 ? 2 : 1;
	}
	c = casing_find(cp);
	if (c) {
		const uint32_t *from = to == JCASE_UPPER ? c->upper : c->title;
		size_t n = 0;

		while (n < 3 && from[n]) {
			out[n] = from[n];
			n++;
		}
		return n;
	}
	out[0] = (uint32_t)(to == JCASE_UPPER ? utf8proc_toupper((utf8proc_int32_t)cp)
					      : utf8proc_totitle((utf8proc_int32_t)cp));
	return 1;
}

bool junicode_is_space(uint32_t cp)
{
	if (cp < 0x80)
		return (cp >= 9 && cp <= 13) || (cp >= 28 && cp <= 32);
	return cp == 0x85 || cp == 0xa0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 ||
		cp == 0x2029 || cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

bool junicode_is_line_end(uint32_t cp)
{
	return (cp >= 10 && cp <= 13) || (cp >= 28 && cp <= 30) || cp == 0x85 || cp == 0x2028 || cp == 0x2029;
}

bool junicode_is_alpha(uint32_t cp)
{
	utf8proc_category_t c;

	if (cp < 0x80)
		return (cp | 32) >= 'a' && (cp | 32) <= 'z';
	c = category(cp);
	return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

bool junicode_is_upper(uint32_t cp)
{
	if (cp < 0x80)
		return cp >= 'A' && cp <= 'Z';
	return category(cp) == UTF8PROC_CATEGORY_LU || IN(other_upper, cp);
}

bool junicode_is_lower(uint32_t cp)
{
	if (cp < 0x80)
		return cp >= 'a' && cp <= 'z';
	return category(cp) == UTF8PROC_CATEGORY_LL || IN(other_lower, cp);
}

bool junicode_is_title(uint32_t cp) { return cp >= 0x80 && category(cp) == UTF8PROC_CATEGORY_LT; }

bool junicode_is_case_ignorable(uint32_t cp)
{
	utf8proc_category_t c = category(cp);

	return c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_ME || c == UTF8PROC_CATEGORY_CF ||
		c == UTF8PROC_CATEGORY_LM || c == UTF8PROC_CATEGORY_SK || IN(ignorable_too, cp);
}

/* Decimal digits come in whole runs from 0 to 9. */
int junicode_decimal(uint32_t cp)
{
	uint32_t first = cp;

	if (cp < 0x80)
		return cp >= '0' && cp <= '9' ? (int)cp - '0' : -1;
	if (category(cp) != UTF8PROC_CATEGORY_ND)
		return -1;
	while (category(first - 1) == UTF8PROC_CATEGORY_ND)
		first--;
	return (int)((cp - first) % 10);
}

bool junicode_is_digit(uint32_t cp)
{
	return junicode_decimal(cp) >= 0 || (cp >= 0x80 && IN(other_digit, cp));
}

bool junicode_is_numeric(uint32_t cp)
{
	utf8proc_category_t c;

	if (cp < 0x80)
		return cp >= '0' && cp <= '9';
	c = category(cp);
	return (c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO) || IN(other_numeric, cp);
}

bool junicode_is_printable(uint32_t cp)
{
	utf8proc_category_t c;

	if (cp < 0x80)
		return cp >= 32 && cp < 127;
	c = category(cp);
	return c != UTF8PROC_CATEGORY_CN && c < UTF8PROC_CATEGORY_ZS;
}

bool junicode_is_name_start(uint32_t cp)
{
	utf8proc_category_t c;

	if (cp < 0x80)
		return cp == '_' || junicode_is_alpha(cp);
	c = category(cp);
	return ((c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO) || c == UTF8PROC_CATEGORY_NL ||
		       IN(name_start_too, cp)) &&
		!IN(name_start_not, cp);
}

bool junicode_is_name_part(uint32_t cp)
{
	utf8proc_category_t c;

	if (cp < 0x80)
		return junicode_is_name_start(cp) || (cp >= '0' && cp <= '9');
	c = category(cp);
	return (junicode_is_name_start(cp) || IN(name_start_not, cp) || c == UTF8PROC_CATEGORY_MN ||
		       c == UTF8PROC_CATEGORY_MC || c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_PC ||
		       IN(name_part_too, cp)) &&
		!IN(name_part_not, cp);
}

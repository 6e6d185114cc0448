/* SPDX-License-Identifier: Apache-2.0
 * Table of filters; those for numbers, defaults and attributes.
 */
#include "engine/jinja_filters.h"
#include "engine/jinja_int.h"
#include <math.h>
#include <string.h>

bool jarg_bool(struct jinja *j, struct jval v, bool otherwise)
{
	return jarg_given(v) ? jval_truth(j, v) : otherwise;
}

bool jarg_flag(struct jinja *j, struct jval v, const char *what)
{
	return jarg_given(v) && jval_index(j, v, what) != 0;
}

int64_t jarg_int(struct jinja *j, struct jval v, int64_t otherwise, const char *what)
{
	return jarg_given(v) ? jval_index(j, v, what) : otherwise;
}

static JFILTER(abs)
{
	(void)argv;
	(void)call;
	if (self.kind == JV_FLOAT)
		return jval_float(fabs(self.u.f));
	if (!jval_is_int(self))
		jinja_fail(j, JFAIL_TYPE, "abs: a number is needed, not '%s'", jval_type_name(self));
	return jint_is_negative(self) ? jval_negate(j, self) : jval_plus(j, self);
}

static JFILTER(attr)
{
	struct jval v;

	(void)call;
	if (argv[0].kind != JV_STR)
		jinja_fail(j, JFAIL_TYPE, "attr: a name must be a string, not '%s'", jval_type_name(argv[0]));
	return jval_attribute(j, self, argv[0].u.s, &v) ? v
							: jval_undef_member(j, JUNDEF_ATTR, self, argv[0]);
}

static JFILTER(default)
{
	(void)call;
	if (self.kind == JV_UNDEFINED || (jarg_bool(j, argv[1], false) && !jval_truth(j, self)))
		return jarg_given(argv[0]) ? argv[0] : jval_str(jstr_lit(j, "", true));
	return self;
}

static JFILTER(float)
{
	double f;

	(void)call;
	jval_check_defined(j, self);
	if (jval_to_float(j, self, &f))
		return jval_float(f);
	return jarg_given(argv[0]) ? argv[0] : jval_float(0);
}

static JFILTER(int)
{
	struct jval v;
	double f;

	(void)call;
	jval_check_defined(j, self);
	if (self.kind == JV_FLOAT && isinf(self.u.f))
		jinja_fail(j, JFAIL_VALUE, "int: infinity is no integer");
	if (jval_to_int(j, self, jarg_int(j, argv[1], 10, "int: base"), &v))
		return v;
	if (jval_to_float(j, self, &f) && isfinite(f))
		return jint_from_double(j, f);
	return jarg_given(argv[0]) ? argv[0] : jval_int(0);
}

static JFILTER(length)
{
	(void)argv;
	(void)call;
	return jval_int(jval_len(j, self));
}

/* Rounds an integer half to even at 10^places. */
static struct jval round_int(struct jinja *j, struct jval v, int64_t places)
{
	struct jval unit, rem, twice, base;
	int c;

	if (places > JINT_MAX_DIGITS)
		return jval_int(0);
	unit = jint_pow(j, jval_int(10), (uint64_t)places);
	jint_divmod(j, v, unit, &base, &rem);
	twice = jint_add(j, rem, rem);
	c = jint_cmp(twice, unit);
	jint_divmod(j, base, jval_int(2), NULL, &rem);
	if (c > 0 || (c == 0 && !jint_is_zero(rem)))
		base = jint_add(j, base, jval_int(1));
	return jint_mul(j, base, unit);
}

static struct jval round_common(struct jinja *j, struct jval v, struct jval precision)
{
	bool whole = precision.kind == JV_NONE;
	int64_t digits = whole ? 0 : jarg_int(j, precision, 0, "round: precision");

	jval_check_defined(j, v);
	if (v.kind == JV_FLOAT) {
		if (whole && !isfinite(v.u.f))
			jinja_fail(j, JFAIL_VALUE, "round: not a finite number");
		return whole ? jint_from_double(j, jfloat_round(v.u.f, 0))
			     : jval_float(jfloat_round(v.u.f, digits));
	}
	if (!jval_is_int(v))
		jinja_fail(j, JFAIL_TYPE, "round: a number is needed, not '%s'", jval_type_name(v));
	return digits < 0 ? round_int(j, v, digits == INT64_MIN ? INT64_MAX : -digits) : jval_plus(j, v);
}

static JFILTER(round)
{
	bool ceiling = argv[1].kind == JV_STR && jstr_is(argv[1].u.s, "ceil");
	bool common = !jarg_given(argv[1]) || (argv[1].kind == JV_STR && jstr_is(argv[1].u.s, "common"));
	struct jval scale, v;

	(void)call;
	if (common)
		return round_common(j, self, argv[0]);
	if (!ceiling && (argv[1].kind != JV_STR || !jstr_is(argv[1].u.s, "floor")))
		jinja_fail(j, JFAIL_VALUE, "round: method must be common, ceil or floor");
	scale = jval_binary(j, JOP_POW, jval_int(10), jarg_given(argv[0]) ? argv[0] : jval_int(0));
	v = jval_binary(j, JOP_MUL, self, scale);
	if (v.kind == JV_FLOAT) {
		if (!isfinite(v.u.f))
			jinja_fail(j, JFAIL_VALUE, "round: not a finite number");
		v = jint_from_double(j, ceiling ? ceil(v.u.f) : floor(v.u.f));
	} else if (!jval_is_int(v)) {
		jinja_fail(j, JFAIL_TYPE, "round: a number is needed, not '%s'", jval_type_name(self));
	}
	return jval_binary(j, JOP_DIV, v, scale);
}

static const struct jbuiltin filters[] = {
	{ "abs", jfilter_abs, "/", 0 },
	{ "attr", jfilter_attr, "name", 1 },
	{ "batch", jfilter_batch, "linecount,fill_with", 1 },
	{ "capitalize", jfilter_capitalize, "", 0 },
	{ "center", jfilter_center, "width", 0 },
	{ "count", jfilter_length, "/", 0 },
	{ "d", jfilter_default, "default_value,boolean", 0 },
	{ "default", jfilter_default, "default_value,boolean", 0 },
	{ "dictsort", jfilter_dictsort, "case_sensitive,by,reverse", 0 },
	{ "e", jfilter_escape, "/", 0 },
	{ "escape", jfilter_escape, "/", 0 },
	{ "filesizeformat", jfilter_filesizeformat, "binary", 0 },
	{ "first", jfilter_first, "", 0 },
	{ "float", jfilter_float, "default", 0 },
	{ "forceescape", jfilter_forceescape, "", 0 },
	{ "format", jfilter_format, NULL, 0 },
	{ "groupby", jfilter_groupby, "attribute,default,case_sensitive", 1 },
	{ "indent", jfilter_indent, "width,first,blank", 0 },
	{ "int", jfilter_int, "default,base", 0 },
	{ "items", jfilter_items, "", 0 },
	{ "join", jfilter_join, "d,attribute", 0 },
	{ "last", jfilter_last, "", 0 },
	{ "length", jfilter_length, "/", 0 },
	{ "list", jfilter_list, "", 0 },
	{ "lower", jfilter_lower, "", 0 },
	{ "map", jfilter_map, NULL, 0 },
	{ "max", jfilter_max, "case_sensitive,attribute", 0 },
	{ "min", jfilter_min, "case_sensitive,attribute", 0 },
	{ "pprint", jfilter_pprint, "", 0 },
	{ "random", jfilter_random, "", 0 },
	{ "reject", jfilter_reject, NULL, 0 },
	{ "rejectattr", jfilter_rejectattr, NULL, 0 },
	{ "replace", jfilter_replace, "old,new,count", 2 },
	{ "reverse", jfilter_reverse, "", 0 },
	{ "round", jfilter_round, "precision,method", 0 },
	{ "safe", jfilter_safe, "", 0 },
	{ "select", jfilter_select, NULL, 0 },
	{ "selectattr", jfilter_selectattr, NULL, 0 },
	{ "slice", jfilter_slice, "slices,fill_with", 1 },
	{ "sort", jfilter_sort, "reverse,case_sensitive,attribute", 0 },
	{ "string", jfilter_string, "", 0 },
	{ "striptags", jfilter_striptags, "", 0 },
	{ "sum", jfilter_sum, "attribute,start", 0 },
	{ "title", jfilter_title, "", 0 },
	{ "tojson", jfilter_tojson, "ensure_ascii,indent,separators,sort_keys", 0 },
	{ "trim", jfilter_trim, "chars", 0 },
	{ "truncate", jfilter_truncate, "length,killwords,end,leeway", 0 },
	{ "unique", jfilter_unique, "case_sensitive,attribute", 0 },
	{ "upper", jfilter_upper, "", 0 },
	{ "urlencode", jfilter_urlencode, "", 0 },
	{ "wordcount", jfilter_wordcount, "", 0 },
	{ "wordwrap", jfilter_wordwrap, "width,break_long_words,wrapstring,break_on_hyphens", 0 },
	{ "xmlattr", jfilter_xmlattr, "autospace", 0 },
};

const struct jbuiltin *jfilter_find(const struct jstr *name)
{
	return jbuiltin_find(filters, sizeof filters / sizeof filters[0], name);
}

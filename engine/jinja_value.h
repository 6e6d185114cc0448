/* SPDX-License-Identifier: Apache-2.0
 * Values of the template interpreter, with Python's semantics: truth, equality, order, hash, iteration. Values
 * are small and copied; what they point to lies in an arena and never changes once a template can see it, except
 * namespaces, cyclers, joiners, loops and half-consumed iterators.
 */
#ifndef ENGINE_JINJA_VALUE_H
#define ENGINE_JINJA_VALUE_H
#include "engine/jinja_str.h"

enum jkind {
	JV_MISSING, /* no value at all: an argument not given, a variable not set; templates never see it */
	JV_UNDEFINED,
	JV_NONE,
	JV_BOOL,
	JV_INT,
	JV_BIG,
	JV_FLOAT,
	JV_STR,
	JV_BYTES,
	JV_LIST,
	JV_TUPLE,
	JV_DICT,
	JV_RANGE,
	JV_VIEW,
	JV_ITER,
	JV_NAMESPACE,
	JV_MACRO,
	JV_LOOP,
	JV_FUNC,
	JV_METHOD,
	JV_CYCLER,
	JV_JOINER,
	JV_SELF,
	JV_BLOCK,
	JV_N_KINDS
};

struct jval {
	uint8_t kind; /* enum jkind */
	uint8_t flag; /* JV_TUPLE: 1 for a groupby pair; JV_VIEW: enum jview */
	union {
		bool b;
		int64_t i;
		double f;
		struct jstr *s;	    /* JV_STR; JV_BYTES (any bytes) */
		struct jbig *big;   /* never a number that fits JV_INT */
		struct jlist *list; /* JV_LIST, JV_TUPLE */
		struct jdict *dict; /* JV_DICT, JV_VIEW, JV_NAMESPACE */
		struct jrange *range;
		struct jiter *iter;
		struct jundef *undef;
		struct jmacro *macro;
		struct jloop *loop;
		const struct jbuiltin *func;
		struct jmethod *method;
		struct jcycler *cycler;	    /* JV_CYCLER, JV_JOINER */
		struct jcontext *context;   /* JV_SELF */
		struct jblockref *blockref; /* JV_BLOCK */
	} u;
};

enum jview { JVIEW_KEYS, JVIEW_VALUES, JVIEW_ITEMS };

struct jlist {
	struct jval *v;
	size_t n, cap;
};

struct jentry {
	uint64_t hash;
	struct jval key, value;
};

struct jdict {		  /* insertion order; a key set again keeps its place */
	struct jentry *e; /* [n] */
	uint32_t *index;  /* [n_index] entry + 1, 0 free; NULL while n is small */
	uint32_t n, cap, n_index;
};

struct jrange {
	int64_t start, stop, step;
	int64_t n;
};

enum jundef_kind { JUNDEF_NAME, JUNDEF_ATTR, JUNDEF_ITEM, JUNDEF_HINT, JUNDEF_UNSAFE };
struct jundef { /* why a value is undefined, for the message when it is used */
	enum jundef_kind kind;
	enum jkind of;	 /* kind of the object whose member was asked for */
	struct jval key; /* the name or index */
	const char *hint;
};

struct jcycler { /* and joiner: `used` */
	struct jlist *items;
	struct jstr *sep;
	size_t at;
	bool used;
};

/* An iterator: a source walked by index, or a generator that `next` drives. Consumed once. */
struct jiter {
	struct jval source; /* what `at` walks */
	size_t at;	    /* index, or byte for strings */
	bool reverse;
	bool done;
	const char *shown; /* type name when printed; NULL: internal walk over source */
	/* generators: false at the end */
	bool (*next)(struct jinja *j, struct jiter *it, struct jval *out);
	void *state;
};

#define JV(k, member, val) ((struct jval){ .kind = (k), .u.member = (val) })
static inline struct jval jval_none(void) { return (struct jval){ .kind = JV_NONE }; }
static inline struct jval jval_missing(void) { return (struct jval){ .kind = JV_MISSING }; }
static inline struct jval jval_bool(bool b) { return JV(JV_BOOL, b, b); }
static inline struct jval jval_int(int64_t i) { return JV(JV_INT, i, i); }
static inline struct jval jval_float(double f) { return JV(JV_FLOAT, f, f); }
static inline struct jval jval_str(const struct jstr *s) { return JV(JV_STR, s, (struct jstr *)s); }
static inline struct jval jval_list(struct jlist *l) { return JV(JV_LIST, list, l); }
static inline struct jval jval_tuple(struct jlist *l) { return JV(JV_TUPLE, list, l); }
static inline struct jval jval_dict(struct jdict *d) { return JV(JV_DICT, dict, d); }
static inline struct jval jval_iter(struct jiter *it) { return JV(JV_ITER, iter, it); }

static inline bool jval_is_int(struct jval v)
{
	return v.kind == JV_INT || v.kind == JV_BIG || v.kind == JV_BOOL;
}
static inline bool jval_is_number(struct jval v) { return jval_is_int(v) || v.kind == JV_FLOAT; }
/* An int or bool that fits; false otherwise. */
static inline bool jval_small(struct jval v, int64_t *out)
{
	*out = v.kind == JV_BOOL ? v.u.b : v.u.i;
	return v.kind == JV_INT || v.kind == JV_BOOL;
}

struct jval jval_undef_name(struct jinja *j, struct jstr *name);
struct jval jval_undef_hint(struct jinja *j, const char *hint);
struct jval jval_undef_member(struct jinja *j, enum jundef_kind kind, struct jval obj, struct jval key);
_Noreturn void jval_undef_fail(
	struct jinja *j, struct jval v); /* "... is undefined", or what the sandbox says */
static inline void jval_check_defined(struct jinja *j, struct jval v)
{
	if (v.kind == JV_UNDEFINED)
		jval_undef_fail(j, v);
}

const char *jval_type_name(struct jval v); /* Python's: "str", "NoneType", "dict" ... */
const char *jkind_type_name(enum jkind k);

bool jval_truth(struct jinja *j, struct jval v);
bool jval_eq(struct jinja *j, struct jval a, struct jval b);
bool jval_same(struct jval a, struct jval b); /* identity, as far as values have one */
/* a OP b for <, <=, >, >=: fails when the types have no order. */
enum jorder { JORDER_LT, JORDER_LE, JORDER_GT, JORDER_GE };
bool jval_order(struct jinja *j, enum jorder op, struct jval a, struct jval b);
bool jval_contains(struct jinja *j, struct jval container, struct jval item);
uint64_t jval_hash(struct jinja *j, struct jval v); /* fails for unhashable values */
bool jval_has_len(struct jval v);
int64_t jval_len(struct jinja *j, struct jval v); /* fails if it has none */

struct jlist *jlist_new(struct jinja *j, size_t cap);
void jlist_push(struct jinja *j, struct jlist *l, struct jval v);
struct jlist *jlist_of(struct jinja *j, struct jval iterable); /* fresh list of all items */
void jlist_sort(
	struct jinja *j, struct jlist *l, const struct jlist *keys, bool reverse); /* stable, by keys[i] */

struct jdict *jdict_new(struct jinja *j);
void jdict_set(struct jinja *j, struct jdict *d, struct jval key, struct jval value);
struct jval *jdict_get(struct jinja *j, const struct jdict *d, struct jval key); /* NULL if absent */
struct jval *jdict_get_str(struct jinja *j, const struct jdict *d, struct jstr *key);
struct jdict *jdict_copy(struct jinja *j, const struct jdict *d);
struct jval jdict_item(struct jinja *j, const struct jdict *d, size_t i); /* (key, value) tuple */

bool jval_iterable(struct jval v);
struct jiter *jiter_of(struct jinja *j, struct jval v); /* fails if v cannot be iterated */
bool jiter_next(struct jinja *j, struct jiter *it, struct jval *out);
int64_t jrange_at(const struct jrange *r, int64_t i);

/* ---- text of values (jinja_repr.c) ---- */
struct jstr *jval_to_str(struct jinja *j, struct jval v); /* str(v); a string is itself */
struct jstr *jval_repr(struct jinja *j, struct jval v);
void jstr_repr_put(struct jinja *j, struct jtext *t, const struct jstr *s, bool ascii_only);
void jval_repr_put(struct jinja *j, struct jtext *t, struct jval v);
struct jstr *jstr_escape(struct jinja *j, const struct jstr *s); /* HTML; always markup */
struct jstr *jval_escape(struct jinja *j, struct jval v);

/* ---- numbers (jinja_int.c, jinja_float.c, jinja_num.c) ---- */
enum jop { JOP_ADD, JOP_SUB, JOP_MUL, JOP_DIV, JOP_FLOORDIV, JOP_MOD, JOP_POW };
struct jval jval_binary(struct jinja *j, enum jop op, struct jval a, struct jval b);
struct jval jval_negate(struct jinja *j, struct jval v);
struct jval jval_plus(struct jinja *j, struct jval v);
int jnum_cmp(
	struct jinja *j, struct jval a, struct jval b, bool *unordered); /* numbers only; NaN is unordered */
/* int(v): true with an int; false if v cannot be one (ValueError, TypeError of Python). */
bool jval_to_int(struct jinja *j, struct jval v, int64_t base, struct jval *out);
bool jval_to_float(struct jinja *j, struct jval v, double *out);
/* An index or count: an int that fits 64 bits, clamped; fails with a type error naming `what`. */
int64_t jval_index(struct jinja *j, struct jval v, const char *what);

size_t jfloat_repr(double f, char out[32]);		   /* shortest text that reads back the same */
bool jfloat_parse(const char *s, size_t len, double *out); /* Python's float(): spaces, _, inf, nan */
double jfloat_round(double f, int64_t digits);
#endif

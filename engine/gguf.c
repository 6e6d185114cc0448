/* SPDX-License-Identifier: Apache-2.0
 * GGUF reader. One pass over the header fills two tables (keys, tensors) that point into the map; afterwards
 * nothing is parsed again, getters only look up. Names are found through sorted indexes, not hash tables, so
 * that no choice of names in a hostile file makes opening slower than n log n.
 * Thread: any; the object does not change after open, apart from the digest, which is made once on demand.
 */
#include "engine/gguf.h"
#include "base/base.h"
#include "tenon/plugin.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sodium.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "GGUF values are read in place");

enum {
	MAX_KEYS = 65536,
	MAX_TENSORS = 65536,
	MAX_STRING_BYTES = 1 << 20,
	MIN_ALIGNMENT = 8,
	MAX_ALIGNMENT = 65536,
	DEFAULT_ALIGNMENT = 32,
	MIN_KEY_BYTES = 8 + 1 + 4 + 1,		  /* name length, name, kind, value     */
	MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8, /* name, rank, one dimension, type, offset */
	DIGEST_BYTES = 32,
	DIGEST_SAMPLE_BYTES = 256
};

struct key {
	struct gguf_str name;
	enum gguf_kind kind;
	const uint8_t *value; /* scalars */
	struct gguf_str str;
	struct gguf_array array;
	const uint8_t *end; /* behind the value */
};

struct name_ref { /* one line of a sorted index */
	struct gguf_str name;
	uint32_t at;
};

struct digest {
	pthread_mutex_t lock; /* guards the rest */
	bool made;
	uint8_t bytes[DIGEST_BYTES];
};

struct gguf {
	const uint8_t *map;
	uint64_t bytes, header_bytes; /* header_bytes: up to the end of the tensor table */
	int fd;
	bool mapped;
	struct timespec mtime;
	char *path;
	uint32_t version;
	struct key *keys;
	struct gguf_tensor *tensors;
	struct name_ref *key_index, *tensor_index; /* sorted by name */
	size_t n_keys, n_tensors;
	struct digest *digest;
};

struct reader {
	const uint8_t *base;
	uint64_t pos, end;
	struct error *e;
};

/* ---- types ------------------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	uint8_t elements, bytes; /* of a block; 256 elements are written as 0 */
} types[] = {
	[TNP_F32] = { "F32", 1, 4 },
	[TNP_F16] = { "F16", 1, 2 },
	[TNP_Q4_0] = { "Q4_0", 32, 18 },
	[TNP_Q4_1] = { "Q4_1", 32, 20 },
	[TNP_Q5_0] = { "Q5_0", 32, 22 },
	[TNP_Q5_1] = { "Q5_1", 32, 24 },
	[TNP_Q8_0] = { "Q8_0", 32, 34 },
	[TNP_Q2_K] = { "Q2_K", 0, 84 },
	[TNP_Q3_K] = { "Q3_K", 0, 110 },
	[TNP_Q4_K] = { "Q4_K", 0, 144 },
	[TNP_Q5_K] = { "Q5_K", 0, 176 },
	[TNP_Q6_K] = { "Q6_K", 0, 210 },
	[TNP_IQ4_NL] = { "IQ4_NL", 32, 18 },
	[TNP_I32] = { "I32", 1, 4 },
	[TNP_BF16] = { "BF16", 1, 2 },
};

bool gguf_type_block(uint32_t type, uint32_t *elements, uint32_t *bytes)
{
	if (type >= COUNT_OF(types) || !types[type].name)
		return false;
	*elements = types[type].elements ? types[type].elements : 256;
	*bytes = types[type].bytes;
	return true;
}

/* Names of types that exist in the format but not here serve the error text alone. */
const char *gguf_type_name(uint32_t type)
{
	static const char *const others[] = { [9] = "Q8_1",
		[15] = "Q8_K",
		[16] = "IQ2_XXS",
		[17] = "IQ2_XS",
		[18] = "IQ3_XXS",
		[19] = "IQ1_S",
		[21] = "IQ3_S",
		[22] = "IQ2_S",
		[23] = "IQ4_XS",
		[24] = "I8",
		[25] = "I16",
		[27] = "I64",
		[28] = "F64",
		[29] = "IQ1_M",
		[34] = "TQ1_0",
		[35] = "TQ2_0",
		[39] = "MXFP4" };

	if (type < COUNT_OF(types) && types[type].name)
		return types[type].name;
	return type < COUNT_OF(others) ? others[type] : NULL;
}

static const struct {
	const char *name;
	uint8_t bytes;
} kinds[GGUF_N_KINDS] = { { "u8", 1 }, { "i8", 1 }, { "u16", 2 }, { "i16", 2 }, { "u32", 4 }, { "i32", 4 },
	{ "f32", 4 }, { "bool", 1 }, { "string", 0 }, { "array", 0 }, { "u64", 8 }, { "i64", 8 },
	{ "f64", 8 } };

static bool kind_is_integer(enum gguf_kind k) { return k <= GGUF_I32 || k == GGUF_U64 || k == GGUF_I64; }

static bool kind_is_number(enum gguf_kind k) { return kind_is_integer(k) || k == GGUF_F32 || k == GGUF_F64; }

/* ---- reading ----------------------------------------------------------------------------------------- */

struct gguf_shown gguf_show(struct gguf_str n)
{
	struct gguf_shown out;
	size_t len = MIN_OF(n.len, sizeof out.s - 4);

	for (size_t i = 0; i < len; i++)
		out.s[i] = n.s[i] >= 0x20 && n.s[i] < 0x7f ? n.s[i] : '?';
	memcpy(out.s + len, n.len > len ? "..." : "", n.len > len ? 4 : 1);
	return out;
}

static int bad(const struct reader *r, const char *what, struct gguf_str name, const char *why)
{
	(void)error_set(r->e, TENON_E_FORMAT,
		"%s \"%s\" at byte %llu: %s; the file is damaged, fetch it again", what, gguf_show(name).s,
		(unsigned long long)r->pos, why);
	return TENON_E_FORMAT;
}

static int take(struct reader *r, uint64_t n, const char *what, const uint8_t **out)
{
	if (n > r->end - r->pos) {
		(void)error_set(r->e, TENON_E_FORMAT,
			"%s at byte %llu: the file ends inside it; the file is truncated, fetch it again",
			what, (unsigned long long)r->pos);
		return TENON_E_FORMAT;
	}
	*out = r->base + r->pos;
	r->pos += n;
	return TENON_OK;
}

static int take_u32(struct reader *r, const char *what, uint32_t *out)
{
	const uint8_t *p;
	int rc = take(r, sizeof *out, what, &p);

	if (!rc)
		memcpy(out, p, sizeof *out);
	return rc;
}

static int take_u64(struct reader *r, const char *what, uint64_t *out)
{
	const uint8_t *p;
	int rc = take(r, sizeof *out, what, &p);

	if (!rc)
		memcpy(out, p, sizeof *out);
	return rc;
}

static int take_str(struct reader *r, const char *what, struct gguf_str *out)
{
	uint64_t at = r->pos, len;
	const uint8_t *p;
	int rc = take_u64(r, what, &len);

	if (rc)
		return rc;
	if (len > MAX_STRING_BYTES) {
		(void)error_set(r->e, TENON_E_FORMAT,
			"%s at byte %llu: a string of %llu bytes is over the limit of %d; the file is damaged, fetch it again",
			what, (unsigned long long)at, (unsigned long long)len, MAX_STRING_BYTES);
		return TENON_E_FORMAT;
	}
	rc = take(r, len, what, &p);
	if (!rc)
		*out = (struct gguf_str){ (const char *)p, (size_t)len };
	return rc;
}

static int take_name(struct reader *r, const char *what, struct gguf_str *out)
{
	int rc = take_str(r, what, out);

	return rc || out->len ? rc : bad(r, what, *out, "the name is empty");
}

static int take_kind(struct reader *r, struct gguf_str name, enum gguf_kind *out)
{
	uint32_t kind;
	int rc = take_u32(r, "type of a key", &kind);

	if (rc)
		return rc;
	if (kind >= GGUF_N_KINDS)
		return bad(r, "key", name, "unknown value type");
	*out = (enum gguf_kind)kind;
	return TENON_OK;
}

static bool bools_valid(const uint8_t *p, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		if (p[i] > 1)
			return false;
	return true;
}

static int take_strings(struct reader *r, struct gguf_str name, struct gguf_array *a)
{
	struct gguf_str *strs;
	int rc = TENON_OK;

	if (a->n > (r->end - r->pos) / 8)
		return bad(r, "key", name, "the array is longer than the file");
	strs = mem_zalloc(MEM_ENGINE, a->n, sizeof *strs);
	if (!strs)
		return error_set(r->e, TENON_E_NOMEM, "key \"%s\": no memory for its strings", gguf_show(name).s);
	a->strs = strs;
	for (uint64_t i = 0; i < a->n && !rc; i++)
		rc = take_str(r, "string of an array", &strs[i]);
	return rc;
}

static int take_array(struct reader *r, struct gguf_str name, struct gguf_array *a)
{
	uint64_t bytes;
	int rc = take_kind(r, name, &a->kind);

	if (!rc)
		rc = take_u64(r, "length of an array", &a->n);
	if (rc)
		return rc;
	a->data = r->base + r->pos;
	if (a->kind == GGUF_ARRAY)
		return bad(r, "key", name, "arrays of arrays are not allowed");
	if (a->kind == GGUF_STRING)
		return take_strings(r, name, a);
	if (!checked_mul_u64(a->n, kinds[a->kind].bytes, &bytes) || bytes > r->end - r->pos)
		return bad(r, "key", name, "the array is longer than the file");
	r->pos += bytes;
	if (a->kind == GGUF_BOOL && !bools_valid(a->data, a->n))
		return bad(r, "key", name, "a truth value is neither 0 nor 1");
	return TENON_OK;
}

static int take_key(struct reader *r, struct key *k)
{
	int rc = take_name(r, "key", &k->name);

	if (!rc)
		rc = take_kind(r, k->name, &k->kind);
	if (rc)
		return rc;
	if (k->kind == GGUF_STRING)
		return take_str(r, "value of a key", &k->str);
	if (k->kind == GGUF_ARRAY)
		return take_array(r, k->name, &k->array);
	rc = take(r, kinds[k->kind].bytes, "value of a key", &k->value);
	if (!rc && k->kind == GGUF_BOOL && !bools_valid(k->value, 1))
		rc = bad(r, "key", k->name, "a truth value is neither 0 nor 1");
	return rc;
}

/* Dimensions, type and size; the offset stays relative to the data section. */
static int take_tensor(struct reader *r, struct gguf_tensor *t)
{
	uint64_t n = 1, dim[4] = { 1, 1, 1, 1 };
	uint32_t elements, bytes;
	int rc = take_name(r, "tensor", &t->name);

	if (!rc)
		rc = take_u32(r, "rank of a tensor", &t->rank);
	if (rc)
		return rc;
	if (t->rank < 1 || t->rank > 4)
		return bad(r, "tensor", t->name, "its rank is not 1 to 4");
	for (uint32_t i = 0; i < t->rank; i++) {
		rc = take_u64(r, "dimension of a tensor", &dim[i]);
		if (rc)
			return rc;
		if (!dim[i] || dim[i] > INT64_MAX || !checked_mul_u64(n, dim[i], &n))
			return bad(r, "tensor", t->name, "a dimension is zero or too large");
	}
	for (uint32_t i = 0; i < 4; i++)
		t->dim[i] = i < t->rank ? dim[t->rank - 1 - i] : 1;
	rc = take_u32(r, "type of a tensor", &t->type);
	if (!rc)
		rc = take_u64(r, "offset of a tensor", &t->offset);
	if (rc)
		return rc;
	if (!gguf_type_block(t->type, &elements, &bytes))
		return error_set(r->e, TENON_E_UNSUPPORTED,
			"tensor \"%s\": its type %u (%s) is not supported; take a file with another quantisation",
			gguf_show(t->name).s, t->type,
			gguf_type_name(t->type) ? gguf_type_name(t->type) : "unknown");
	if (dim[0] % elements)
		return error_set(r->e, TENON_E_FORMAT,
			"tensor \"%s\": its rows of %llu are not whole blocks of %s (%u each); the file is damaged, fetch it again",
			gguf_show(t->name).s, (unsigned long long)dim[0], gguf_type_name(t->type), elements);
	if (!checked_mul_u64(n / elements, bytes, &t->bytes))
		return bad(r, "tensor", t->name, "its size overflows");
	return TENON_OK;
}

/* ---- indexes ----------------------------------------------------------------------------------------- */

static int str_compare(struct gguf_str a, struct gguf_str b)
{
	int c = memcmp(a.s, b.s, MIN_OF(a.len, b.len));

	return c ? c : (a.len > b.len) - (a.len < b.len);
}

static int ref_compare(const void *a, const void *b)
{
	return str_compare(((const struct name_ref *)a)->name, ((const struct name_ref *)b)->name);
}

static int index_sort(const struct reader *r, struct name_ref *index, size_t n, const char *what)
{
	qsort(index, n, sizeof *index, ref_compare);
	for (size_t i = 1; i < n; i++)
		if (!str_compare(index[i - 1].name, index[i].name))
			return bad(r, what, index[i].name, "the name occurs twice");
	return TENON_OK;
}

/* Position in the table, or SIZE_MAX. */
static size_t index_find(const struct name_ref *index, size_t n, const char *name)
{
	struct gguf_str want = { name, strlen(name) };
	size_t lo = 0, hi = n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		int c = str_compare(index[mid].name, want);

		if (!c)
			return index[mid].at;
		if (c < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return SIZE_MAX;
}

/* ---- opening ----------------------------------------------------------------------------------------- */

static int read_header(struct gguf *g, struct reader *r, uint64_t *n_tensors, uint64_t *n_keys)
{
	const uint8_t *magic;
	int rc = take(r, 4, "magic number", &magic);

	if (rc)
		return rc;
	if (memcmp(magic, "GGUF", 4))
		return error_set(r->e, TENON_E_FORMAT,
			"model file: it does not begin with \"GGUF\"; give a GGUF file");
	rc = take_u32(r, "version", &g->version);
	if (rc)
		return rc;
	if (g->version != 2 && g->version != 3)
		return error_set(r->e, TENON_E_UNSUPPORTED,
			"model file: GGUF version %u is not supported; convert it to version 3 (little-endian)",
			g->version);
	rc = take_u64(r, "number of tensors", n_tensors);
	if (!rc)
		rc = take_u64(r, "number of keys", n_keys);
	if (rc)
		return rc;
	if (*n_tensors > MAX_TENSORS || *n_tensors > (r->end - r->pos) / MIN_TENSOR_BYTES)
		return error_set(r->e, TENON_E_FORMAT,
			"number of tensors at byte 8: %llu is more than the file holds or the limit of %d; fetch the file again",
			(unsigned long long)*n_tensors, MAX_TENSORS);
	if (*n_keys > MAX_KEYS || *n_keys > (r->end - r->pos) / MIN_KEY_BYTES)
		return error_set(r->e, TENON_E_FORMAT,
			"number of keys at byte 16: %llu is more than the file holds or the limit of %d; fetch the file again",
			(unsigned long long)*n_keys, MAX_KEYS);
	return TENON_OK;
}

static int read_keys(struct gguf *g, struct reader *r, uint64_t n)
{
	int rc = TENON_OK;

	g->keys = mem_zalloc(MEM_ENGINE, n, sizeof *g->keys);
	g->key_index = mem_zalloc(MEM_ENGINE, n, sizeof *g->key_index);
	if (!g->keys || !g->key_index)
		return error_set(
			r->e, TENON_E_NOMEM, "model file: no memory for %llu keys", (unsigned long long)n);
	g->n_keys = n;
	for (uint32_t i = 0; i < n && !rc; i++) {
		rc = take_key(r, &g->keys[i]);
		g->keys[i].end = r->base + r->pos;
		g->key_index[i] = (struct name_ref){ g->keys[i].name, i };
	}
	return rc ? rc : index_sort(r, g->key_index, n, "key");
}

static int read_tensors(struct gguf *g, struct reader *r, uint64_t n)
{
	int rc = TENON_OK;

	g->tensors = mem_zalloc(MEM_ENGINE, n, sizeof *g->tensors);
	g->tensor_index = mem_zalloc(MEM_ENGINE, n, sizeof *g->tensor_index);
	if (!g->tensors || !g->tensor_index)
		return error_set(
			r->e, TENON_E_NOMEM, "model file: no memory for %llu tensors", (unsigned long long)n);
	g->n_tensors = n;
	for (uint32_t i = 0; i < n && !rc; i++) {
		rc = take_tensor(r, &g->tensors[i]);
		g->tensor_index[i] = (struct name_ref){ g->tensors[i].name, i };
	}
	g->header_bytes = r->pos;
	return rc ? rc : index_sort(r, g->tensor_index, n, "tensor");
}

static int get_alignment(const struct gguf *g, const struct reader *r, uint64_t *align)
{
	int rc;

	*align = DEFAULT_ALIGNMENT;
	if (!gguf_has(g, "general.alignment"))
		return TENON_OK;
	rc = gguf_get_u64(g, "general.alignment", align, r->e);
	if (rc)
		return rc;
	if (*align < MIN_ALIGNMENT || *align > MAX_ALIGNMENT || (*align & (*align - 1)))
		return error_set(r->e, TENON_E_FORMAT,
			"key \"general.alignment\": %llu is not a power of two from %d to %d; the file is damaged, fetch it again",
			(unsigned long long)*align, MIN_ALIGNMENT, MAX_ALIGNMENT);
	return TENON_OK;
}

/* Turns offsets into file offsets; each tensor begins at or after the end of the one before. */
static int place_tensors(struct gguf *g, struct reader *r)
{
	uint64_t align, data, last;
	int rc = get_alignment(g, r, &align);

	if (rc || !g->n_tensors)
		return rc;
	if (!checked_align_up(r->pos, align, &data))
		return error_set(r->e, TENON_E_FORMAT, "model file: the tensor data begins past the end");
	last = data;
	for (size_t i = 0; i < g->n_tensors; i++) {
		struct gguf_tensor *t = &g->tensors[i];

		if (t->offset % align)
			return bad(r, "tensor", t->name, "its offset is not aligned");
		if (!checked_add_u64(data, t->offset, &t->offset) ||
			!checked_range(t->offset, t->bytes, g->bytes))
			return bad(r, "tensor", t->name, "its data lies past the end of the file");
		if (t->offset < last)
			return bad(r, "tensor", t->name, "its data overlaps what stands before it");
		last = t->offset + t->bytes;
	}
	return TENON_OK;
}

static int parse(struct gguf *g, struct error *e)
{
	struct reader r = { g->map, 0, g->bytes, e };
	uint64_t n_tensors = 0, n_keys = 0;
	int rc = read_header(g, &r, &n_tensors, &n_keys);

	if (!rc)
		rc = read_keys(g, &r, n_keys);
	if (!rc)
		rc = read_tensors(g, &r, n_tensors);
	return rc ? rc : place_tensors(g, &r);
}

static struct gguf *new_gguf(const char *path, struct error *e)
{
	struct gguf *g = mem_zalloc(MEM_ENGINE, 1, sizeof *g);

	if (g) {
		g->fd = -1;
		g->path = mem_strdup(MEM_ENGINE, path);
		g->digest = mem_zalloc(MEM_ENGINE, 1, sizeof *g->digest);
		if (g->digest)
			(void)pthread_mutex_init(&g->digest->lock, NULL);
	}
	if (!g || !g->path || !g->digest) {
		gguf_close(g);
		(void)error_set(e, TENON_E_NOMEM, "model file: no memory to open it");
		return NULL;
	}
	return g;
}

static int map_file(struct gguf *g, struct error *e)
{
	struct stat st;
	void *p;

	g->fd = open(g->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (g->fd < 0)
		return error_errno(e, errno == ENOENT ? TENON_E_NOT_FOUND : TENON_E_IO, errno, "%s", g->path);
	if (fstat(g->fd, &st))
		return error_errno(e, TENON_E_IO, errno, "%s", g->path);
	if (!S_ISREG(st.st_mode))
		return error_set(e, TENON_E_IO, "%s: not a regular file; give a GGUF file", g->path);
	if (st.st_size <= 0)
		return error_set(e, TENON_E_FORMAT, "%s: the file is empty; fetch it again", g->path);
	p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, g->fd, 0);
	if (p == MAP_FAILED)
		return error_errno(e, TENON_E_IO, errno, "%s: cannot be mapped", g->path);
	g->map = p;
	g->mapped = true;
	g->bytes = (uint64_t)st.st_size;
	g->mtime = st.st_mtim;
	return TENON_OK;
}

int gguf_open(const char *path, struct gguf **out, struct error *e)
{
	struct gguf *g = new_gguf(path, e);
	int rc;

	if (!g)
		return TENON_E_NOMEM;
	rc = map_file(g, e);
	if (!rc) {
		rc = parse(g, e);
		if (rc)
			error_prefix(e, "%s", path);
	}
	if (rc)
		gguf_close(g);
	else
		*out = g;
	return rc;
}

int gguf_open_memory(const void *data, size_t len, struct gguf **out, struct error *e)
{
	struct gguf *g = new_gguf("(memory)", e);
	int rc;

	if (!g)
		return TENON_E_NOMEM;
	g->map = data;
	g->bytes = len;
	rc = parse(g, e);
	if (rc)
		gguf_close(g);
	else
		*out = g;
	return rc;
}

void gguf_forget(const struct gguf *g)
{
	if (g->mapped)
		(void)madvise((void *)(uintptr_t)g->map, g->bytes, MADV_DONTNEED);
}

void gguf_close(struct gguf *g)
{
	if (!g)
		return;
	for (size_t i = 0; i < g->n_keys; i++)
		mem_free((void *)g->keys[i].array.strs);
	mem_free(g->keys);
	mem_free(g->tensors);
	mem_free(g->key_index);
	mem_free(g->tensor_index);
	if (g->mapped)
		(void)munmap((void *)g->map, g->bytes);
	if (g->fd >= 0)
		(void)close(g->fd);
	if (g->digest)
		(void)pthread_mutex_destroy(&g->digest->lock);
	mem_free(g->digest);
	mem_free(g->path);
	mem_free(g);
}

/* ---- the file ---------------------------------------------------------------------------------------- */

int gguf_check_unchanged(const struct gguf *g, struct error *e)
{
	struct stat st;

	if (g->fd < 0)
		return TENON_OK;
	if (fstat(g->fd, &st))
		return error_errno(e, TENON_E_IO, errno, "%s", g->path);
	if ((uint64_t)st.st_size != g->bytes || st.st_mtim.tv_sec != g->mtime.tv_sec ||
		st.st_mtim.tv_nsec != g->mtime.tv_nsec)
		return error_set(e, TENON_E_FORMAT,
			"%s: the file changed while it was in use; load the model again", g->path);
	return TENON_OK;
}

const void *gguf_map(const struct gguf *g, uint64_t *bytes)
{
	*bytes = g->bytes;
	return g->map;
}

int gguf_fd(const struct gguf *g) { return g->fd; }
const char *gguf_path(const struct gguf *g) { return g->path; }
uint32_t gguf_version(const struct gguf *g) { return g->version; }

/* Header and tensor table are equal for two fine-tunes of one model, so a sample from the middle of each tensor
 * goes in as well. */
static void make_digest(const struct gguf *g, uint8_t out[DIGEST_BYTES])
{
	crypto_generichash_state s;

	(void)crypto_generichash_init(&s, NULL, 0, DIGEST_BYTES);
	(void)crypto_generichash_update(&s, g->map, g->header_bytes);
	for (size_t i = 0; i < g->n_tensors; i++) {
		const struct gguf_tensor *t = &g->tensors[i];
		uint64_t n = MIN_OF(t->bytes, (uint64_t)DIGEST_SAMPLE_BYTES);

		(void)crypto_generichash_update(&s, g->map + t->offset + (t->bytes - n) / 2, n);
	}
	(void)crypto_generichash_final(&s, out, DIGEST_BYTES);
}

const uint8_t *gguf_digest(const struct gguf *g)
{
	struct digest *d = g->digest;

	(void)pthread_mutex_lock(&d->lock);
	if (!d->made)
		make_digest(g, d->bytes);
	d->made = true;
	(void)pthread_mutex_unlock(&d->lock);
	return d->bytes;
}

/* ---- keys -------------------------------------------------------------------------------------------- */

static int64_t scalar_i64(enum gguf_kind kind, const uint8_t *p)
{
	uint64_t u64 = 0;
	int32_t i32;
	int16_t i16;

	switch (kind) {
	case GGUF_I8:
		return (int8_t)*p;
	case GGUF_I16:
		memcpy(&i16, p, sizeof i16);
		return i16;
	case GGUF_I32:
		memcpy(&i32, p, sizeof i32);
		return i32;
	default:
		memcpy(&u64, p, kinds[kind].bytes);
		return (int64_t)u64;
	}
}

static double scalar_f64(enum gguf_kind kind, const uint8_t *p)
{
	double f64;
	float f32;

	if (kind == GGUF_F32) {
		memcpy(&f32, p, sizeof f32);
		return f32;
	}
	if (kind == GGUF_F64) {
		memcpy(&f64, p, sizeof f64);
		return f64;
	}
	return kind == GGUF_U64 ? (double)(uint64_t)scalar_i64(kind, p) : (double)scalar_i64(kind, p);
}

int64_t gguf_array_i64(const struct gguf_array *a, uint64_t i)
{
	return scalar_i64(a->kind, a->data + i * kinds[a->kind].bytes);
}

double gguf_array_f64(const struct gguf_array *a, uint64_t i)
{
	return scalar_f64(a->kind, a->data + i * kinds[a->kind].bytes);
}

size_t gguf_n_keys(const struct gguf *g) { return g->n_keys; }

struct gguf_str gguf_key_at(const struct gguf *g, size_t i, enum gguf_kind *kind)
{
	*kind = g->keys[i].kind;
	return g->keys[i].name;
}

const void *gguf_key_bytes(const struct gguf *g, size_t i, size_t *len)
{
	const uint8_t *from = (const uint8_t *)g->keys[i].name.s - sizeof(uint64_t);

	*len = (size_t)(g->keys[i].end - from);
	return from;
}

static const struct key *find_key(const struct gguf *g, const char *name)
{
	size_t i = index_find(g->key_index, g->n_keys, name);

	return i == SIZE_MAX ? NULL : &g->keys[i];
}

bool gguf_has(const struct gguf *g, const char *key) { return find_key(g, key) != NULL; }

static int get_key(const struct gguf *g, const char *name, const struct key **out, struct error *e)
{
	*out = find_key(g, name);
	if (!*out)
		return error_set(e, TENON_E_NOT_FOUND,
			"key \"%s\": not in the model file; take a complete GGUF file", name);
	return TENON_OK;
}

static int wrong_kind(const struct key *k, const char *name, const char *want, struct error *e)
{
	return error_set(e, TENON_E_FORMAT,
		"key \"%s\": it is of type %s, not %s; the model file is not usable", name,
		kinds[k->kind].name, want);
}

int gguf_get_u64(const struct gguf *g, const char *key, uint64_t *out, struct error *e)
{
	const struct key *k;
	int64_t v;
	int rc = get_key(g, key, &k, e);

	if (rc)
		return rc;
	if (!kind_is_integer(k->kind))
		return wrong_kind(k, key, "an integer", e);
	v = scalar_i64(k->kind, k->value);
	if (v < 0 && k->kind != GGUF_U64)
		return error_set(e, TENON_E_FORMAT,
			"key \"%s\": its %s value is negative; the model file is not usable", key,
			kinds[k->kind].name);
	*out = (uint64_t)v;
	return TENON_OK;
}

int gguf_get_f64(const struct gguf *g, const char *key, double *out, struct error *e)
{
	const struct key *k;
	double v;
	int rc = get_key(g, key, &k, e);

	if (rc)
		return rc;
	if (!kind_is_number(k->kind))
		return wrong_kind(k, key, "a number", e);
	v = scalar_f64(k->kind, k->value);
	if (!isfinite(v))
		return error_set(e, TENON_E_FORMAT,
			"key \"%s\": its %s value is not finite; the model file is not usable", key,
			kinds[k->kind].name);
	*out = v;
	return TENON_OK;
}

int gguf_get_bool(const struct gguf *g, const char *key, bool *out, struct error *e)
{
	const struct key *k;
	int rc = get_key(g, key, &k, e);

	if (rc)
		return rc;
	if (k->kind != GGUF_BOOL)
		return wrong_kind(k, key, "bool", e);
	*out = *k->value != 0;
	return TENON_OK;
}

int gguf_get_str(const struct gguf *g, const char *key, struct gguf_str *out, struct error *e)
{
	const struct key *k;
	int rc = get_key(g, key, &k, e);

	if (rc)
		return rc;
	if (k->kind != GGUF_STRING)
		return wrong_kind(k, key, "a string", e);
	*out = k->str;
	return TENON_OK;
}

int gguf_get_array(const struct gguf *g, const char *key, struct gguf_array *out, struct error *e)
{
	const struct key *k;
	int rc = get_key(g, key, &k, e);

	if (rc)
		return rc;
	if (k->kind != GGUF_ARRAY)
		return wrong_kind(k, key, "an array", e);
	*out = k->array;
	return TENON_OK;
}

/* ---- tensors ----------------------------------------------------------------------------------------- */

size_t gguf_n_tensors(const struct gguf *g) { return g->n_tensors; }
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i) { return &g->tensors[i]; }

const struct gguf_tensor *gguf_tensor_find(const struct gguf *g, const char *name)
{
	size_t i = index_find(g->tensor_index, g->n_tensors, name);

	return i == SIZE_MAX ? NULL : &g->tensors[i];
}

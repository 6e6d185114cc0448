/* SPDX-License-Identifier: Apache-2.0
 * The plugin that misbehaves on request: a shim in front of another plugin, whose answers it passes on until the
 * fault is due. For tests of the daemon, the worker and plugin-conform; never loaded where a crash would hurt.
 *
 * Config keys of plugin `fault`:
 *   inner   path of the shared object that does the work; default: the answers of plugin `null`
 *   at      start | dev_count | dev_info | dev_open | model_check | model_sizes | model_open | kv_open | batch | wait (default batch)
 *   call    on which call of that function, from 1 (default 1); "every": on each
 *   do      error | hang | slow | abort | segv | exit | tail | garbage | overrun | seq | bits (default error)
 *             tail: dev_info writes a whole record, whatever the room
 *             garbage: rows of NaN   overrun: writes past the end of a row   seq: every other sequence fails
 *             bits: the last bit of the first number of each row is flipped
 *   code    what `error` and `seq` answer: invalid unsupported nomem busy cancelled timeout device internal (default)
 *   ms      how long `slow` takes (default 100); in model_open it says first that a quarter is done
 *   once    a file: the fault comes only if it does not exist yet, and makes it, so that it comes once in all processes
 */
#include <tenon/plugin.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

extern const struct tnp_ops null_ops; /* plugins/null/null_ops.c */

enum place {
	AT_START,
	AT_DEV_COUNT,
	AT_DEV_INFO,
	AT_DEV_OPEN,
	AT_MODEL_CHECK,
	AT_MODEL_SIZES,
	AT_MODEL_OPEN,
	AT_KV_OPEN,
	AT_BATCH,
	AT_WAIT,
	N_PLACES
};
enum deed {
	DO_ERROR,
	DO_HANG,
	DO_SLOW,
	DO_ABORT,
	DO_SEGV,
	DO_EXIT,
	DO_TAIL,
	DO_GARBAGE,
	DO_OVERRUN,
	DO_SEQ,
	DO_BITS
};

/* What start read from the config; the ABI has no handle for the plugin itself. */
static struct {
	const struct tnp_host *host;
	const struct tnp_ops *inner;
	enum place at;
	enum deed deed;
	tnp_rc code;
	uint64_t call, calls[N_PLACES]; /* call 0: every */
	long ms;
	char once[1024];
} fault = { .inner = &null_ops };

/* The graph of the model opened last, for the rows it writes; one model at a time is enough for a test. */
static struct tnp_graph graph;

/* ---- reading the request ------------------------------------------------------------------------------------------ */
static const char *const place_names[N_PLACES] = { "start", "dev_count", "dev_info", "dev_open",
	"model_check", "model_sizes", "model_open", "kv_open", "batch", "wait" };
static const char *const deed_names[] = { "error", "hang", "slow", "abort", "segv", "exit", "tail", "garbage",
	"overrun", "seq", "bits" };
static const char *const code_names[] = { "ok", "invalid", "unsupported", "nomem", "busy", "cancelled",
	"timeout", "device", "internal" };

static int number_of(const char *const *names, size_t n, const char *name, int missing)
{
	for (size_t i = 0; name && i < n; i++)
		if (!strcmp(names[i], name))
			return (int)i;
	return missing;
}

#define NUMBER(names, value, missing) number_of(names, sizeof names / sizeof names[0], value, missing)

static const char *key(const struct tnp_host *h, const char *name)
{
	return TNP_HAS(h, struct tnp_host, config) && h->config ? h->config(h->ctx, name) : NULL;
}

static tnp_rc say(struct tnp_error *e, tnp_rc rc, const char *text)
{
	if (e && e->size >= sizeof *e) {
		e->rc = rc;
		(void)snprintf(e->text, sizeof e->text, "fault: %s", text);
	}
	return rc;
}

static tnp_rc inner_load(const char *path, struct tnp_error *e)
{
	tnp_entry_fn *entry = NULL;
	void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (so)
		*(void **)&entry = dlsym(so, TNP_ENTRY_NAME);
	fault.inner = entry ? entry(TNP_ABI_MAJOR, TNP_ABI_MAJOR) : NULL;
	if (fault.inner)
		return TNP_OK;
	fault.inner = &null_ops;
	return say(e, TNP_E_INVALID, "config key `inner` names no plugin");
}

static void request_read(const struct tnp_host *h)
{
	const char *call = key(h, "call"), *ms = key(h, "ms"), *once = key(h, "once");

	fault.at = (enum place)NUMBER(place_names, key(h, "at"), AT_BATCH);
	fault.deed = (enum deed)NUMBER(deed_names, key(h, "do"), DO_ERROR);
	fault.code = -(tnp_rc)NUMBER(code_names, key(h, "code"), -TNP_E_INTERNAL);
	fault.call = !call ? 1 : !strcmp(call, "every") ? 0 : strtoull(call, NULL, 10);
	fault.ms = ms ? strtol(ms, NULL, 10) : 100;
	(void)snprintf(fault.once, sizeof fault.once, "%s", once ? once : "");
	memset(fault.calls, 0, sizeof fault.calls);
}

/* ---- doing it --------------------------------------------------------------------------------------------------------- */
static int due(enum place at)
{
	int fd;

	if (at != fault.at || (++fault.calls[at] != fault.call && fault.call))
		return 0;
	if (!fault.once[0])
		return 1;
	fd = open(fault.once, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return 0;
	(void)close(fd);
	return 1;
}

static void nap_ms(long ms)
{
	struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };

	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

/* The deeds that any function can do. TNP_OK: go on as if nothing were. */
static tnp_rc commit(struct tnp_error *e)
{
	switch (fault.deed) {
	case DO_ERROR:
		return say(e, fault.code, "as configured");
	case DO_HANG:
		for (;;)
			nap_ms(1000);
	case DO_SLOW:
		nap_ms(fault.ms);
		return TNP_OK;
	case DO_ABORT:
		abort();
	case DO_SEGV:
		(void)raise(SIGSEGV);
		return TNP_OK;
	case DO_EXIT:
		_exit(3);
	default:
		return TNP_OK;
	}
}

static tnp_rc before(enum place at, struct tnp_error *e) { return due(at) ? commit(e) : TNP_OK; }

/* ---- the functions that can fail -------------------------------------------------------------------------------------- */
static tnp_rc fault_start(const struct tnp_host *h, struct tnp_error *e)
{
	const char *path;
	tnp_rc rc;

	fault.host = h;
	request_read(h);
	path = key(h, "inner");
	rc = path ? inner_load(path, e) : TNP_OK;
	if (!rc)
		rc = before(AT_START, e);
	return rc ? rc : fault.inner->start(h, e);
}

static tnp_rc fault_dev_count(uint32_t *n, struct tnp_error *e)
{
	tnp_rc rc = before(AT_DEV_COUNT, e);

	return rc ? rc : fault.inner->dev_count(n, e);
}

static tnp_rc fault_dev_open(uint32_t i, struct tnp_dev **o, struct tnp_error *e)
{
	tnp_rc rc = before(AT_DEV_OPEN, e);

	return rc ? rc : fault.inner->dev_open(i, o, e);
}

static tnp_rc fault_model_check(
	struct tnp_dev *d, const struct tnp_graph *g, struct tnp_verdict *v, struct tnp_error *e)
{
	tnp_rc rc = before(AT_MODEL_CHECK, e);

	return rc ? rc : fault.inner->model_check(d, g, v, e);
}

static tnp_rc fault_model_sizes(struct tnp_dev *d, const struct tnp_graph *g, const struct tnp_limits *l,
	struct tnp_sizes *o, struct tnp_error *e)
{
	tnp_rc rc = before(AT_MODEL_SIZES, e);

	return rc ? rc : fault.inner->model_sizes(d, g, l, o, e);
}

static tnp_rc fault_model_open(struct tnp_dev *d, const struct tnp_graph *g, const struct tnp_limits *l,
	struct tnp_model **o, struct tnp_error *e)
{
	int now = due(AT_MODEL_OPEN);
	tnp_rc rc;

	if (now && fault.deed == DO_SLOW && TNP_HAS(fault.host, struct tnp_host, progress))
		fault.host->progress(fault.host->ctx, g, 1, 4);
	rc = now ? commit(e) : TNP_OK;
	if (!rc)
		rc = fault.inner->model_open(d, g, l, o, e);
	if (!rc)
		graph = *g;
	return rc;
}

static tnp_rc fault_kv_open(
	struct tnp_model *m, const struct tnp_kv_spec *s, struct tnp_kv **o, struct tnp_error *e)
{
	tnp_rc rc = before(AT_KV_OPEN, e);

	return rc ? rc : fault.inner->kv_open(m, s, o, e);
}

/* ---- the step: also the deeds that spoil its rows ------------------------------------------------------------------------ */
static uint64_t width_of(const struct tnp_tensor *t)
{
	uint64_t n = 1;

	for (uint32_t i = 1; i < t->rank; i++)
		n *= (uint64_t)t->dim[i];
	return n;
}

static void flip_last_bit(float *x)
{
	uint32_t bits;

	memcpy(&bits, x, sizeof bits);
	bits ^= 1;
	memcpy(x, &bits, sizeof bits);
}

static void spoil_row(float *row, uint64_t width)
{
	if (fault.deed == DO_GARBAGE)
		for (uint64_t k = 0; k < width; k++)
			row[k] = NAN;
	else if (fault.deed == DO_OVERRUN)
		row[width] = 1;
	else if (fault.deed == DO_BITS)
		flip_last_bit(row);
}

static void spoil(const struct tnp_batch *b)
{
	for (uint32_t o = 0; o < graph.n_out; o++) {
		const struct tnp_tensor *t = &graph.tensors[graph.out[o]];
		uint32_t n = t->dim[0] == TNP_N_TOKENS ? b->n_tokens
			: t->dim[0] == TNP_N_SEQS      ? b->n_seqs
						       : b->n_out;

		for (uint32_t r = 0; r < n; r++)
			spoil_row(b->out[o].data + r * b->out[o].stride, width_of(t));
	}
	for (uint32_t s = 0; fault.deed == DO_SEQ && s < b->n_seqs; s += 2)
		b->seq_rc[s] = fault.code;
}

/* Spoiling waits for the rows, so the inner plugin's ticket is waited for first. */
static tnp_rc fault_batch(struct tnp_model *m, struct tnp_kv *k, const struct tnp_batch *b, uint64_t *ticket,
	struct tnp_error *e)
{
	int now = due(AT_BATCH);
	tnp_rc rc = now ? commit(e) : TNP_OK;

	if (!rc)
		rc = fault.inner->batch(m, k, b, ticket, e);
	if (!rc && now && fault.deed >= DO_GARBAGE)
		spoil(b);
	return rc;
}

static tnp_rc fault_wait(struct tnp_dev *d, uint64_t ticket, uint64_t timeout_ns, struct tnp_error *e)
{
	tnp_rc rc = before(AT_WAIT, e);

	return rc ? rc : fault.inner->wait(d, ticket, timeout_ns, e);
}

/* ---- the functions that only pass on ---------------------------------------------------------------------------------------- */
static tnp_rc fault_stop(struct tnp_error *e) { return fault.inner->stop(e); }

/* Features beyond the wrapped functions are taken away. */
static tnp_rc fault_dev_info(uint32_t i, struct tnp_device *o, struct tnp_error *e)
{
	int now = due(AT_DEV_INFO);
	tnp_rc rc = now ? commit(e) : TNP_OK;

	if (now && fault.deed == DO_TAIL)
		o->size = sizeof *o;
	if (!rc)
		rc = fault.inner->dev_info(i, o, e);
	if (!rc && TNP_HAS(o, struct tnp_device, features))
		o->features &= TNP_F_INVARIANT | TNP_F_KV_IO;
	return rc;
}

static void fault_dev_close(struct tnp_dev *d) { fault.inner->dev_close(d); }
static tnp_rc fault_dev_memory(struct tnp_dev *d, uint64_t *n, struct tnp_error *e)
{
	return fault.inner->dev_memory(d, n, e);
}
static tnp_rc fault_op_caps(struct tnp_dev *d, struct tnp_op_cap *rows, uint32_t *n, struct tnp_error *e)
{
	return fault.inner->op_caps(d, rows, n, e);
}
static tnp_rc fault_kv_caps(
	struct tnp_dev *d, uint64_t *types, uint32_t *lo, uint32_t *hi, struct tnp_error *e)
{
	return fault.inner->kv_caps(d, types, lo, hi, e);
}
static void fault_model_close(struct tnp_model *m) { fault.inner->model_close(m); }
static void fault_kv_close(struct tnp_kv *k) { fault.inner->kv_close(k); }
static tnp_rc fault_kv_copy(
	struct tnp_kv *k, uint32_t group, uint32_t from, uint32_t to, uint32_t n, struct tnp_error *e)
{
	return fault.inner->kv_copy(k, group, from, to, n, e);
}
static tnp_rc fault_kv_read(struct tnp_kv *k, uint32_t group, uint32_t page, void *out, struct tnp_error *e)
{
	return fault.inner->kv_read(k, group, page, out, e);
}
static tnp_rc fault_kv_write(
	struct tnp_kv *k, uint32_t group, uint32_t page, const void *in, struct tnp_error *e)
{
	return fault.inner->kv_write(k, group, page, in, e);
}

static const struct tnp_ops table = {
	.size = sizeof table,
	.abi_major = TNP_ABI_MAJOR,
	.abi_minor = TNP_ABI_MINOR,
	.name = "fault",
	.vendor = "Tenon",
	.version = "1",
	.start = fault_start,
	.stop = fault_stop,
	.dev_count = fault_dev_count,
	.dev_info = fault_dev_info,
	.dev_open = fault_dev_open,
	.dev_close = fault_dev_close,
	.dev_memory = fault_dev_memory,
	.op_caps = fault_op_caps,
	.kv_caps = fault_kv_caps,
	.model_check = fault_model_check,
	.model_sizes = fault_model_sizes,
	.model_open = fault_model_open,
	.model_close = fault_model_close,
	.kv_open = fault_kv_open,
	.kv_close = fault_kv_close,
	.kv_copy = fault_kv_copy,
	.batch = fault_batch,
	.wait = fault_wait,
	.kv_read = fault_kv_read,
	.kv_write = fault_kv_write,
};

__attribute__((visibility("default"))) tnp_entry_fn tnp_entry;

const struct tnp_ops *tnp_entry(uint32_t want_major, uint32_t least_major)
{
	return want_major >= TNP_ABI_MAJOR && least_major <= TNP_ABI_MAJOR ? &table : NULL;
}

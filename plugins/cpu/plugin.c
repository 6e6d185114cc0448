/* SPDX-License-Identifier: Apache-2.0
 * The CPU plugin's table: entry, devices, capabilities, and the helpers that every file uses. One device: all CPUs
 * this process may use. Keys of its config section: `threads` (number; default: what affinity mask and cgroup quota
 * allow), `pin` (true | false), `isa` (baseline | avx2 | avx512vnni; default: the best there is).
 */
#include "cpu.h"
#include "cpus.h"
#include "model.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { THREADS_LIMIT = 256, HUGE_BYTES = 2 << 20, PAGE_BYTES = 4096, ASK_BYTES = 64 << 20 };

static struct tnp_host host; /* what is known of the host's table, from start() to stop() */

const struct cpu_isa cpu_isa_base = { "baseline", &linear_base, &elem_base, &attn_base };
#if defined(__x86_64__)
const struct cpu_isa cpu_isa_avx2 = { "avx2", &linear_avx2, &elem_avx2, &attn_avx2 };
const struct cpu_isa cpu_isa_avxvnni = { "avxvnni", &linear_avxvnni, &elem_avx2, &attn_avx2 }; /* same bits */
const struct cpu_isa cpu_isa_vnni = { "avx512vnni", &linear_vnni, &elem_avx2, &attn_avx512 };  /* same bits */
#elif defined(__aarch64__)
const struct cpu_isa cpu_isa_neon = { "neon-dotprod", &linear_neon, &elem_neon, &attn_neon };
#endif

/* ---- helpers --------------------------------------------------------------------------------------- */
const char *cpu_config(const char *key) { return host.config ? host.config(host.ctx, key) : NULL; }
bool cpu_stopping(void) { return host.stopping && host.stopping(host.ctx); }
void cpu_progress(const struct tnp_graph *g, uint64_t done, uint64_t total)
{
	if (host.progress)
		host.progress(host.ctx, g, done, total);
}

tnp_rc cpu_fail(struct tnp_error *e, tnp_rc rc, uint32_t item, const char *text)
{
	size_t n = strlen(text);

	if (!e || !TNP_HAS(e, struct tnp_error, text))
		return rc;
	e->rc = rc;
	e->vendor_code = 0;
	e->item = item;
	n = n < sizeof e->text ? n : sizeof e->text - 1;
	memcpy(e->text, text, n);
	e->text[n] = '\0';
	return rc;
}

void cpu_give(void *theirs, const void *own, uint32_t own_size)
{
	uint32_t size;

	memcpy(&size, theirs, sizeof size);
	size = size < own_size ? size : own_size;
	if (size < sizeof size)
		return;
	memcpy(theirs, own, size);
	memcpy(theirs, &size, sizeof size);
}

tnp_rc cpu_take(void *own, uint32_t own_size, const void *theirs, struct tnp_error *e)
{
	const uint8_t *p = theirs;
	uint32_t size;

	memcpy(&size, theirs, sizeof size);
	if (size < sizeof size || size > 65536)
		return cpu_fail(e, TNP_E_INVALID, 0, "argument: its size member is not filled in");
	for (uint32_t i = own_size; i < size; i++)
		if (p[i])
			return cpu_fail(e, TNP_E_UNSUPPORTED, i,
				"argument: it uses members this plugin does not know");
	memset(own, 0, own_size);
	memcpy(own, theirs, size < own_size ? size : own_size);
	return TNP_OK;
}

bool cpu_type_info(uint32_t type, struct cpu_type *out)
{
	static const struct cpu_type types[] = { [TNP_F32] = { 1, 4 },
		[TNP_F16] = { 1, 2 },
		[TNP_BF16] = { 1, 2 },
		[TNP_Q4_0] = { 32, 18 },
		[TNP_Q4_1] = { 32, 20 },
		[TNP_Q5_0] = { 32, 22 },
		[TNP_Q5_1] = { 32, 24 },
		[TNP_Q8_0] = { 32, 34 },
		[TNP_Q2_K] = { 256, 84 },
		[TNP_Q3_K] = { 256, 110 },
		[TNP_Q4_K] = { 256, 144 },
		[TNP_Q5_K] = { 256, 176 },
		[TNP_Q6_K] = { 256, 210 },
		[TNP_IQ4_NL] = { 32, 18 } };

	if (type >= sizeof types / sizeof types[0] || !types[type].bytes)
		return false;
	*out = types[type];
	return true;
}

/* Large maps start and end at 2 MiB borders. The kernel promises more than there is, so very large ones are held
 * against the memory that is free. */
uint64_t cpu_map_bytes(uint64_t bytes)
{
	return bytes >= HUGE_BYTES ? cpu_round_up(bytes, HUGE_BYTES)
				   : cpu_round_up(bytes ? bytes : 1, PAGE_BYTES);
}

void *cpu_map(uint64_t bytes)
{
	uint64_t len = cpu_map_bytes(bytes), extra = len >= HUGE_BYTES ? HUGE_BYTES : 0, skip;
	uint8_t *p;

	if (len > ASK_BYTES && len > cpus_mem_free())
		return NULL;
	p = mmap(NULL, len + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
		0);

	if (p == MAP_FAILED)
		return NULL;
	if (!extra)
		return p;
	skip = cpu_round_up((uintptr_t)p, HUGE_BYTES) - (uintptr_t)p;
	if (skip)
		(void)munmap(p, skip);
	if (extra - skip)
		(void)munmap(p + skip + len, extra - skip);
	(void)madvise(p + skip, len, MADV_HUGEPAGE);
	return p + skip;
}

void cpu_unmap(void *p, uint64_t bytes)
{
	if (p)
		(void)munmap(p, cpu_map_bytes(bytes));
}

/* ---- life ------------------------------------------------------------------------------------------- */
static tnp_rc cpu_start(const struct tnp_host *h, struct tnp_error *e)
{
	struct tnp_host known;
	tnp_rc rc =
		h ? cpu_take(&known, sizeof known, h, e) : cpu_fail(e, TNP_E_INVALID, 0, "start: no host");

	if (rc)
		return rc;
	if (known.abi_major != TNP_ABI_MAJOR)
		return cpu_fail(e, TNP_E_INVALID, 0, "start: a host of another major");
	host = known;
	return TNP_OK;
}

static tnp_rc cpu_stop(struct tnp_error *e)
{
	(void)e;
	host = (struct tnp_host){ 0 };
	return TNP_OK;
}

/* Best first. */
static const struct isa_choice {
	const struct cpu_isa *isa;
	bool (*have)(void); /* NULL: any machine has it */
} choices[] = {
#if defined(__x86_64__)
	{ &cpu_isa_vnni, cpus_have_vnni },
	{ &cpu_isa_avxvnni, cpus_have_avxvnni },
	{ &cpu_isa_avx2, cpus_have_avx2 },
#elif defined(__aarch64__)
	{ &cpu_isa_neon, cpus_have_dotprod },
#endif
	{ &cpu_isa_base, NULL },
};

#if defined(__x86_64__)
#define ISA_NAMES "baseline, avx2, avxvnni, avx512vnni"
#elif defined(__aarch64__)
#define ISA_NAMES "baseline, neon-dotprod"
#else
#define ISA_NAMES "baseline"
#endif

static const struct cpu_isa *isa_choose(struct tnp_error *e)
{
	const char *want = cpu_config("isa");
	bool known = !want;

	for (uint32_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
		const struct isa_choice *c = &choices[i];
		bool named = want && !strcmp(want, c->isa->name);

		known |= named;
		if ((!want || named) && (!c->have || c->have()))
			return c->isa;
	}
	(void)cpu_fail(e, known ? TNP_E_UNSUPPORTED : TNP_E_INVALID, 0,
		known ? "config isa: this machine does not have it; leave the key out for the best there is"
		      : "config isa: unknown; one of " ISA_NAMES);
	return NULL;
}

/* 0 when the key's text is no number in range. */
static uint32_t threads_choose(void)
{
	const char *want = cpu_config("threads");
	unsigned long n;
	char *end;

	if (!want || !*want || !strcmp(want, "0") || !strcmp(want, "auto"))
		return cpus_usable() < THREADS_LIMIT ? cpus_usable() : THREADS_LIMIT;
	n = strtoul(want, &end, 10);
	return *end || n > THREADS_LIMIT ? 0 : (uint32_t)n;
}

static tnp_rc dev_count(uint32_t *n, struct tnp_error *e)
{
	if (!n)
		return cpu_fail(e, TNP_E_INVALID, 0, "device: NULL argument");
	*n = 1;
	return TNP_OK;
}

static tnp_rc dev_info(uint32_t i, struct tnp_device *o, struct tnp_error *e)
{
	struct tnp_device d = { .size = sizeof d,
		.kind = TNP_CPU,
		.uuid = "tenon-cpu-host",
		.driver = "tenon",
		.features = TNP_F_INVARIANT | TNP_F_KV_IO | TNP_F_PROFILE,
		.numa_node = -1 };
	const struct cpu_isa *isa;

	if (i || !o)
		return cpu_fail(e, TNP_E_INVALID, i, "device: there is only number 0");
	isa = isa_choose(e);
	if (!isa)
		return e ? e->rc : TNP_E_INVALID;
	cpus_name(d.name, sizeof d.name);
	memcpy(d.isa, isa->name, strlen(isa->name) + 1);
	d.mem_total = d.mem_max_alloc = cpus_mem_total();
	cpu_give(o, &d, sizeof d);
	return TNP_OK;
}

static void dev_close(struct tnp_dev *d)
{
	if (!d)
		return;
	pool_destroy(d->pool);
	free(d);
}

static tnp_rc dev_open(uint32_t i, struct tnp_dev **o, struct tnp_error *e)
{
	const char *pin = cpu_config("pin");
	uint32_t threads = threads_choose();
	const struct cpu_isa *isa;
	struct tnp_dev *d;
	int rc;

	if (i || !o)
		return cpu_fail(e, TNP_E_INVALID, i, "device: there is only number 0");
	if (!threads)
		return cpu_fail(e, TNP_E_INVALID, 0, "config threads: no number from 1 to 256");
	isa = isa_choose(e);
	if (!isa)
		return e ? e->rc : TNP_E_INVALID;
	d = calloc(1, sizeof *d);
	if (!d)
		return cpu_fail(e, TNP_E_NOMEM, 0, "device: no memory");
	d->isa = isa;
	rc = pool_create(threads, pin && !strcmp(pin, "true"), &d->pool);
	if (rc) {
		free(d);
		return cpu_fail(e, rc == ENOMEM || rc == EAGAIN ? TNP_E_NOMEM : TNP_E_INTERNAL, 0,
			"device: cannot start its threads");
	}
	*o = d;
	return TNP_OK;
}

static tnp_rc dev_memory(struct tnp_dev *d, uint64_t *free_bytes, struct tnp_error *e)
{
	if (!d || !free_bytes)
		return cpu_fail(e, TNP_E_INVALID, 0, "device: NULL argument");
	*free_bytes = cpus_mem_free();
	return TNP_OK;
}

/* ---- capabilities ----------------------------------------------------------------------------------- */
static uint64_t linear_types(const struct cpu_isa *isa)
{
	uint64_t types = 0;

	for (uint32_t t = 0; t < 64; t++)
		if (isa->linear->act_class(t, TNP_FAST, 32, 256) < ACT_N_CLASSES &&
			isa->linear->act_class(t, TNP_EXACT, 32, 256) < ACT_N_CLASSES)
			types |= TNP_TYPES(t);
	return types;
}

static uint64_t table_types(void)
{
	struct cpu_type info;
	uint64_t types = 0;

	for (uint32_t t = 0; t < 64; t++)
		types |= cpu_type_info(t, &info) ? TNP_TYPES(t) : 0;
	return types;
}

static tnp_rc op_caps(struct tnp_dev *d, struct tnp_op_cap *rows, uint32_t *n, struct tnp_error *e)
{
	static const uint32_t ops[] = { TNP_OP_EMBED, TNP_OP_LINEAR, TNP_OP_RMSNORM, TNP_OP_LAYERNORM,
		TNP_OP_ROPE, TNP_OP_ATTEND, TNP_OP_GLU, TNP_OP_ACT, TNP_OP_ADD, TNP_OP_MUL, TNP_OP_SCALE,
		TNP_OP_SOFTCAP, TNP_OP_SELECT, TNP_OP_POOL, TNP_OP_L2NORM, TNP_OP_MOE_ROUTE,
		TNP_OP_MOE_LINEAR, TNP_OP_MOE_SUM };
	const uint64_t vectors = TNP_TYPES(TNP_F32) | TNP_TYPES(TNP_F16) | TNP_TYPES(TNP_BF16);
	uint32_t room, have = sizeof ops / sizeof ops[0];

	if (!d || !n)
		return cpu_fail(e, TNP_E_INVALID, 0, "op_caps: NULL argument");
	room = rows ? *n : 0;
	*n = have;
	for (uint32_t i = 0; i < have && i < room; i++) {
		rows[i] = (struct tnp_op_cap){ .op = ops[i],
			.in_types = TNP_TYPES(TNP_F32),
			.out_types = TNP_TYPES(TNP_F32),
			.weight_types = vectors };
		if (ops[i] == TNP_OP_EMBED) {
			rows[i].in_types = TNP_TYPES(TNP_I32);
			rows[i].weight_types = table_types();
		}
		if (ops[i] == TNP_OP_LINEAR || ops[i] == TNP_OP_MOE_ROUTE || ops[i] == TNP_OP_MOE_LINEAR)
			rows[i].weight_types = linear_types(d->isa);
		if (ops[i] == TNP_OP_MOE_LINEAR)
			rows[i].in_types |= TNP_TYPES(TNP_I32);
		if (ops[i] == TNP_OP_MOE_ROUTE)
			rows[i].out_types |= TNP_TYPES(TNP_I32);
	}
	return TNP_OK;
}

static tnp_rc kv_caps(
	struct tnp_dev *d, uint64_t *types, uint32_t *page_min, uint32_t *page_max, struct tnp_error *e)
{
	if (!d || !types || !page_min || !page_max)
		return cpu_fail(e, TNP_E_INVALID, 0, "kv_caps: NULL argument");
	*types = TNP_TYPES(TNP_F32) | TNP_TYPES(TNP_F16) | TNP_TYPES(TNP_Q8_0) | TNP_TYPES(TNP_Q4_0);
	*page_min = 16;
	*page_max = 64;
	return TNP_OK;
}

/* Steps are done when batch() returns. */
static tnp_rc dev_wait(struct tnp_dev *d, uint64_t ticket, uint64_t timeout_ns, struct tnp_error *e)
{
	(void)timeout_ns;
	if (!d || !ticket || ticket > d->next_ticket)
		return cpu_fail(e, TNP_E_INVALID, 0, "wait: no such ticket");
	return TNP_OK;
}

static const struct tnp_ops table = {
	.size = sizeof table,
	.abi_major = TNP_ABI_MAJOR,
	.abi_minor = TNP_ABI_MINOR,
	.name = "cpu",
	.vendor = "Tenon",
	.version = "0.1.0",
	.start = cpu_start,
	.stop = cpu_stop,
	.dev_count = dev_count,
	.dev_info = dev_info,
	.dev_open = dev_open,
	.dev_close = dev_close,
	.dev_memory = dev_memory,
	.op_caps = op_caps,
	.kv_caps = kv_caps,
	.model_check = model_check,
	.model_sizes = model_sizes,
	.model_open = model_open,
	.model_close = model_close,
	.kv_open = kv_open,
	.kv_close = kv_close,
	.kv_copy = kv_copy,
	.batch = model_batch,
	.wait = dev_wait,
	.kv_read = kv_read,
	.kv_write = kv_write,
	.profile = model_profile,
};

__attribute__((visibility("default"))) tnp_entry_fn tnp_entry;

const struct tnp_ops *tnp_entry(uint32_t want_major, uint32_t least_major)
{
	return want_major >= TNP_ABI_MAJOR && least_major <= TNP_ABI_MAJOR ? &table : NULL;
}

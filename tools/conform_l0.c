/* SPDX-License-Identifier: Apache-2.0
 * plugin-conform, level 0: loading. Symbols, versions, the required set, sizes of structs that are shorter or longer
 * than the plugin's own, start after stop, threads left behind.
 */
#include "tools/conform.h"
#include "tools/conform_alloc.h"
#include <dirent.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- exported symbols ------------------------------------------------------------------------------------------- */
/* Names that linkers and sanitizers put there by themselves. */
static bool symbol_ignored(const char *name)
{
	static const char *const known[] = { "_init", "_fini", "__bss_start", "_edata", "_end" };

	for (size_t i = 0; i < COUNT_OF(known); i++)
		if (!strcmp(name, known[i]))
			return true;
	return strncmp(name, "__asan", 6) == 0 || strncmp(name, "__odr_asan", 10) == 0 ||
		strncmp(name, "___asan", 7) == 0;
}

/* Walks one table of dynamic symbols; the file is not trusted. */
static void symbols_check(
	struct conform *c, const uint8_t *file, uint64_t size, const Elf64_Shdr *sym, const Elf64_Shdr *str)
{
	bool entry = false;

	if (!checked_range(sym->sh_offset, sym->sh_size, size) ||
		!checked_range(str->sh_offset, str->sh_size, size))
		conform_fail(c, "symbol table lies outside the file");
	for (uint64_t at = sizeof(Elf64_Sym); at + sizeof(Elf64_Sym) <= sym->sh_size;
		at += sizeof(Elf64_Sym)) {
		Elf64_Sym s;
		const char *name;

		memcpy(&s, file + sym->sh_offset + at, sizeof s);
		if (s.st_shndx == SHN_UNDEF || ELF64_ST_BIND(s.st_info) == STB_LOCAL ||
			ELF64_ST_VISIBILITY(s.st_other) != STV_DEFAULT || s.st_name >= str->sh_size ||
			s.st_shndx == SHN_ABS)
			continue;
		name = (const char *)file + str->sh_offset + s.st_name;
		if (!strncmp(name, TNP_ENTRY_NAME, str->sh_size - s.st_name))
			entry = true;
		else if (!symbol_ignored(name))
			conform_fail(c, "exports '%.100s'; only %s may be seen (use a version script)", name,
				TNP_ENTRY_NAME);
	}
	if (!entry)
		conform_fail(c, "does not export %s", TNP_ENTRY_NAME);
}

static void elf_check(struct conform *c, const uint8_t *file, uint64_t size)
{
	Elf64_Ehdr h;

	if (size < sizeof h)
		conform_fail(c, "not a shared object");
	memcpy(&h, file, sizeof h);
	if (memcmp(h.e_ident, ELFMAG, SELFMAG) || h.e_ident[EI_CLASS] != ELFCLASS64 || h.e_type != ET_DYN)
		conform_skip(c, "not a 64-bit ELF object");
	if (h.e_shentsize != sizeof(Elf64_Shdr) ||
		!checked_range(h.e_shoff, (uint64_t)h.e_shnum * sizeof(Elf64_Shdr), size))
		conform_fail(c, "section headers lie outside the file");
	for (uint32_t i = 0; i < h.e_shnum; i++) {
		Elf64_Shdr sym, str;

		memcpy(&sym, file + h.e_shoff + i * sizeof sym, sizeof sym);
		if (sym.sh_type != SHT_DYNSYM)
			continue;
		if (sym.sh_link >= h.e_shnum)
			conform_fail(c, "symbol table names no strings");
		memcpy(&str, file + h.e_shoff + sym.sh_link * sizeof str, sizeof str);
		symbols_check(c, file, size, &sym, &str);
		return;
	}
	conform_fail(c, "no dynamic symbols");
}

static void check_symbols(struct conform *c)
{
	int fd = open(c->path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	void *file;

	if (fd < 0 || fstat(fd, &st) || st.st_size < 1)
		conform_fail(c, "%s cannot be read", c->path);
	file = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (file == MAP_FAILED)
		conform_fail(c, "%s cannot be mapped", c->path);
	elf_check(c, file, (uint64_t)st.st_size);
	(void)munmap(file, (size_t)st.st_size);
	(void)close(fd);
}

/* ---- the table --------------------------------------------------------------------------------------------------------- */
static void check_versions(struct conform *c)
{
	void *so = dlopen(c->path, RTLD_NOW | RTLD_LOCAL);
	tnp_entry_fn *entry;

	if (!so)
		conform_fail(c, "%s", dlerror());
	*(void **)&entry = dlsym(so, TNP_ENTRY_NAME);
	if (!entry)
		conform_fail(c, "no symbol %s", TNP_ENTRY_NAME);
	conform_note(c, "a host that speaks majors 1 to 7");
	if (!entry(7, 1) || entry(7, 1)->abi_major < 1 || entry(7, 1)->abi_major > 7)
		conform_fail(c, "got no table, or one of a major it does not speak");
	conform_note(c, "a host that speaks major 1 only");
	if (!entry(1, 1) || entry(1, 1)->abi_major != 1)
		conform_fail(c, "got no table of major 1");
	conform_note(c, "hosts that are much newer or older");
	if (entry(99, 98) || entry(0, 0))
		conform_fail(c, "got a table of a major that it cannot speak");
}

#define REQUIRED(X)                                                                                          \
	X(start)                                                                                             \
	X(stop)                                                                                              \
	X(dev_count)                                                                                         \
	X(dev_info)                                                                                          \
	X(dev_open)                                                                                          \
	X(dev_close) X(dev_memory) X(op_caps) X(kv_caps) X(model_check) X(model_sizes) X(model_open)         \
		X(model_close) X(kv_open) X(kv_close) X(kv_copy) X(batch) X(wait)

static void check_table(struct conform *c)
{
	void *so;
	const struct tnp_ops *t = conform_load(c, c->path, &so);

	if (!TNP_HAS(t, struct tnp_ops, wait))
		conform_fail(c, "the table ends before `wait`: size %u", t->size);
#define X(fn)                                                                                                \
	if (!t->fn)                                                                                          \
		conform_fail(c, "required function `" #fn "` is NULL");
	REQUIRED(X)
#undef X
	if (!t->name || !t->vendor || !t->version)
		conform_fail(c, "name, vendor or version is NULL");
	if (c->name && strcmp(c->name, t->name))
		conform_fail(c, "calls itself '%s', its manifest says '%s'", t->name, c->name);
}

/* A feature bit promises its function. */
static void check_features(struct conform *c)
{
	const struct tnp_ops *t;
	uint64_t f;

	conform_open(c);
	t = c->sut.ops;
	f = c->sut.info.features;
	if ((f & TNP_F_KV_IO) && !(TNP_HAS(t, struct tnp_ops, kv_write) && t->kv_read && t->kv_write))
		conform_fail(c, "TNP_F_KV_IO without kv_read and kv_write");
	if ((f & TNP_F_FD) && !(TNP_HAS(t, struct tnp_ops, done_fd) && t->done_fd))
		conform_fail(c, "TNP_F_FD without done_fd");
	if ((f & TNP_F_CANCEL) && !(TNP_HAS(t, struct tnp_ops, cancel) && t->cancel))
		conform_fail(c, "TNP_F_CANCEL without cancel");
	if ((f & TNP_F_PROFILE) && !(TNP_HAS(t, struct tnp_ops, profile) && t->profile))
		conform_fail(c, "TNP_F_PROFILE without profile");
	if (!memchr(c->sut.info.name, 0, sizeof c->sut.info.name) || !c->sut.info.name[0])
		conform_fail(c, "the device's name is empty or not terminated");
	conform_close(c);
}

/* ---- sizes of structs ---------------------------------------------------------------------------------------------------- */
/* The plugin's own struct with a tail behind it, as a newer header would have. */
union longer {
	struct tnp_host host;
	struct tnp_limits limits;
	struct tnp_graph graph;
	struct tnp_kv_spec spec;
	struct tnp_batch batch;
	struct tnp_device device;
	struct tnp_sizes sizes;
	uint8_t bytes[512];
};

static void lengthen(union longer *l, const void *from, uint32_t size, uint8_t tail)
{
	uint32_t total = size + 16;

	memset(l, 0, sizeof *l);
	memcpy(l->bytes, from, size);
	memcpy(l->bytes, &total, sizeof total);
	l->bytes[size + 8] = tail;
}

static void expect(struct conform *c, tnp_rc got, tnp_rc want, const char *what)
{
	if (got != want)
		conform_fail(c, "%s: %s, want %s", what, conform_code(got), conform_code(want));
}

static void check_host_sizes(struct conform *c)
{
	void *so;
	const struct tnp_ops *t = conform_load(c, c->path, &so);
	struct tnp_host small = *conform_host();
	union longer l;

	conform_note(c, "start");
	lengthen(&l, conform_host(), sizeof(struct tnp_host), 1);
	expect(c, t->start(&l.host, NULL), TNP_E_UNSUPPORTED, "host table with an unknown member");
	lengthen(&l, conform_host(), sizeof(struct tnp_host), 0);
	expect(c, t->start(&l.host, NULL), TNP_OK, "host table that is longer, the rest zero");
	expect(c, t->stop(NULL), TNP_OK, "stop");
	small.size = offsetof(struct tnp_host, blob_get);
	small.blob_get = NULL;
	small.blob_put = NULL;
	expect(c, t->start(&small, NULL), TNP_OK, "host table that ends before blob_get");
	expect(c, t->stop(NULL), TNP_OK, "stop");
}

/* Records that the plugin fills: never past the room, size set to what was written. */
static void check_out_sizes(struct conform *c)
{
	struct tnp_dev *none = NULL;
	union longer l;

	conform_open(c);
	conform_note(c, "dev_info with less room than a tnp_device");
	memset(&l, 0xa5, sizeof l);
	l.device.size = offsetof(struct tnp_device, features);
	expect(c, c->sut.ops->dev_info(0, &l.device, NULL), TNP_OK, "dev_info");
	for (size_t i = offsetof(struct tnp_device, features); i < sizeof l; i++)
		if (l.bytes[i] != 0xa5)
			conform_fail(c, "byte %zu was written, the room ends at %zu", i,
				offsetof(struct tnp_device, features));
	conform_note(c, "dev_info with more room");
	memset(&l, 0xa5, sizeof l);
	l.device.size = sizeof l;
	expect(c, c->sut.ops->dev_info(0, &l.device, NULL), TNP_OK, "dev_info");
	if (l.device.size > sizeof l || l.device.size < sizeof(struct tnp_device))
		conform_fail(c, "size says %u bytes were written", l.device.size);
	conform_note(c, "dev_info and dev_open of a device that is not there");
	expect(c, c->sut.ops->dev_info(1000, &c->sut.info, NULL), TNP_E_INVALID, "dev_info");
	expect(c, c->sut.ops->dev_open(1000, &none, NULL), TNP_E_INVALID, "dev_open");
	conform_close(c);
}

static void struct_tails(struct conform *c, const struct tnp_graph *g, const struct tnp_limits *lim)
{
	const struct tnp_ops *t = c->sut.ops;
	struct tnp_verdict *v = calloc(g->n_nodes, sizeof *v);
	struct tnp_sizes sizes = { .size = sizeof sizes };
	struct tnp_model *model = NULL;
	union longer l;

	lengthen(&l, g, sizeof *g, 1);
	conform_note(c, "graph with an unknown member");
	expect(c, t->model_check(c->sut.dev, &l.graph, v, NULL), TNP_E_UNSUPPORTED, "model_check");
	expect(c, t->model_sizes(c->sut.dev, &l.graph, lim, &sizes, NULL), TNP_E_UNSUPPORTED, "model_sizes");
	expect(c, t->model_open(c->sut.dev, &l.graph, lim, &model, NULL), TNP_E_UNSUPPORTED, "model_open");
	lengthen(&l, lim, sizeof *lim, 1);
	conform_note(c, "limits with an unknown member");
	expect(c, t->model_sizes(c->sut.dev, g, &l.limits, &sizes, NULL), TNP_E_UNSUPPORTED, "model_sizes");
	expect(c, t->model_open(c->sut.dev, g, &l.limits, &model, NULL), TNP_E_UNSUPPORTED, "model_open");
	lengthen(&l, lim, sizeof *lim, 0);
	conform_note(c, "limits and graph that are longer, the rest zero");
	expect(c, t->model_sizes(c->sut.dev, g, &l.limits, &sizes, NULL), TNP_OK, "model_sizes");
	lengthen(&l, g, sizeof *g, 0);
	expect(c, t->model_open(c->sut.dev, &l.graph, lim, &model, NULL), TNP_OK, "model_open");
	t->model_close(model);
	free(v);
}

static void batch_tails(struct conform *c, const struct tnp_graph *g, const struct tnp_limits *lim)
{
	struct tnp_kv_spec spec = {
		.size = sizeof spec, .type = lim->kv_type, .page_tokens = lim->page_tokens
	};
	struct tnp_batch batch = { .size = sizeof batch };
	struct run_model m = { .p = &c->sut, .g = g };
	uint64_t ticket = 0;
	union longer l;

	run_slots(&m);
	spec.n_slots = m.n_slots;
	spec.slots = m.slot;
	for (uint32_t i = 0; i < m.n_groups; i++)
		spec.n_pages[i] = 8;
	expect(c, c->sut.ops->model_open(c->sut.dev, g, lim, &m.model, NULL), TNP_OK, "model_open");
	if (m.n_slots) {
		conform_note(c, "kv_open with an unknown member, then longer");
		lengthen(&l, &spec, sizeof spec, 1);
		expect(c, c->sut.ops->kv_open(m.model, &l.spec, &m.kv, NULL), TNP_E_UNSUPPORTED, "kv_open");
		lengthen(&l, &spec, sizeof spec, 0);
		expect(c, c->sut.ops->kv_open(m.model, &l.spec, &m.kv, NULL), TNP_OK, "kv_open");
	}
	conform_note(c, "batch with an unknown member, then longer");
	lengthen(&l, &batch, sizeof batch, 1);
	expect(c, c->sut.ops->batch(m.model, m.kv, &l.batch, &ticket, NULL), TNP_E_UNSUPPORTED, "batch");
	lengthen(&l, &batch, sizeof batch, 0);
	expect(c, c->sut.ops->batch(m.model, m.kv, &l.batch, &ticket, NULL), TNP_OK, "batch of nothing");
	expect(c, c->sut.ops->wait(c->sut.dev, ticket, 1000000000, NULL), TNP_OK, "wait");
	run_close(&m);
}

static void check_in_sizes(struct conform *c)
{
	const struct tnp_graph *g;
	struct run_limits r;
	struct tnp_limits lim;
	struct tnp_make *m;

	conform_open(c);
	r = conform_limits(c);
	m = made_model_any(c, &g);
	if (!m)
		conform_skip(c, "takes no whole model");
	run_limits_set(&lim, &r);
	struct_tails(c, g, &lim);
	batch_tails(c, g, &lim);
	tnp_make_destroy(m);
	conform_close(c);
}

/* ---- starting and stopping -------------------------------------------------------------------------------------------------- */
static uint32_t thread_count(void)
{
	DIR *d = opendir("/proc/self/task");
	uint32_t n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		(void)closedir(d);
	return n;
}

static void check_restart(struct conform *c)
{
	uint32_t before = thread_count(), after = 0;
	const struct timespec nap = { .tv_nsec = 5000000 };

	for (int i = 0; i < 3; i++) {
		conform_note(c, "start, open, close, stop: time %d", i + 1);
		conform_open(c);
		conform_close(c);
	}
	for (int i = 0; i < 40 && (after = thread_count()) > before; i++)
		(void)nanosleep(&nap, NULL);
	if (after > before && !conform_sanitized())
		conform_fail(c, "%u threads are left behind", after - before);
}

const struct conform_check conform_l0[] = {
	{ 0, "load.symbols", check_symbols },
	{ 0, "load.versions", check_versions },
	{ 0, "load.table", check_table },
	{ 0, "load.features", check_features },
	{ 0, "load.host-sizes", check_host_sizes },
	{ 0, "load.out-sizes", check_out_sizes },
	{ 0, "load.in-sizes", check_in_sizes },
	{ 0, "load.restart", check_restart },
	{ 0, NULL, NULL },
};

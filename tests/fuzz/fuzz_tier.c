/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: any bytes as a tier's file, as they are and with every checksum made right again, as somebody could who
 * knows the format. It opens; records are in range; what a prefix cache makes of it is a tree that shares, restores and
 * gives everything back; no byte over the limit.
 */
#include "cache/kv/prefix.h"
#include "cache/kv/tier_priv.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TOKENS = 4, PAGES = 8, PAGE_A = 16, PAGE_B = 8, FILE_HEAD = 256, SEGMENT = 64, LIMIT = 30000 };

static void must(bool ok)
{
	if (!ok)
		abort();
}

struct pool {
	uint8_t a[PAGES][PAGE_A], b[PAGES][PAGE_B];
};

static uint8_t *page_of(void *ctx, uint32_t group, uint32_t page, size_t *bytes)
{
	struct pool *pool = ctx;

	must(group < 2 && page < PAGES);
	*bytes = group ? PAGE_B : PAGE_A;
	return group ? pool->b[page] : pool->a[page];
}

static int copy(void *ctx, uint32_t group, uint32_t from, uint32_t to, uint32_t n_tokens, struct error *e)
{
	size_t bytes;
	uint8_t *p = page_of(ctx, group, from, &bytes);

	(void)e;
	must(from != to && n_tokens <= TOKENS);
	memcpy(page_of(ctx, group, to, &bytes), p, bytes);
	return TENON_OK;
}

static int page_read(void *ctx, uint32_t group, uint32_t page, void *out, struct error *e)
{
	size_t bytes;
	uint8_t *p = page_of(ctx, group, page, &bytes);

	(void)e;
	memcpy(out, p, bytes);
	return TENON_OK;
}

static int page_write(void *ctx, uint32_t group, uint32_t page, const void *in, struct error *e)
{
	size_t bytes;
	uint8_t *p = page_of(ctx, group, page, &bytes);

	(void)e;
	memcpy(p, in, bytes);
	return TENON_OK;
}

/* ---- the file ------------------------------------------------------------------------------------------------------ */
/* Sums over the file's head and over every record's head, where they stand (tier_file.c). */
static void sign(const struct kv_tier *t, uint8_t *p, size_t size)
{
	size_t head = t->head_bytes, segment = SEGMENT * (head + t->data_bytes);

	if (size >= FILE_HEAD)
		tier_sum(t, p, 88, p + 88);
	for (size_t at = FILE_HEAD; at < size; at += segment)
		for (size_t i = 0; i < SEGMENT && at + (i + 1) * head <= size; i++)
			tier_sum(t, p + at + i * head + TIER_SUM_BYTES, head - TIER_SUM_BYTES,
				p + at + i * head);
}

static void file_make(const char *path, const uint8_t *p, size_t size)
{
	FILE *f = fopen(path, "w");

	must(f && fwrite(p, 1, size, f) == size && !fclose(f) && !chmod(path, 0600));
}

static uint64_t bytes_of(const struct kv_tier *t)
{
	struct kv_tier_status s;
	struct stat st;

	kv_tier_get_status(t, &s);
	must(!fstat(t->fd, &st) && s.bytes == (uint64_t)st.st_size && s.bytes <= s.limit_bytes);
	return s.bytes;
}

/* ---- what is done with it ------------------------------------------------------------------------------------------ */
static void walk(struct kv_tier *t)
{
	uint8_t a[PAGE_A], b[PAGE_B];
	void *data[KV_MAX_GROUPS] = { a, b };
	uint32_t slot = KV_TIER_NONE, before = 0;
	int32_t tokens[TOKENS];
	struct kv_record r;

	while (kv_tier_each(t, &slot, &r, tokens)) {
		must(r.n_tokens >= 1 && r.n_tokens <= TOKENS && r.groups && r.groups < 4 &&
			r.first >= before && r.first % TOKENS == 0 && memchr(r.tenant, 0, sizeof r.tenant));
		(void)kv_tier_get(t, slot, &r, data, NULL);
		before = r.first;
	}
}

static void use(struct kv_tier *t, uint32_t window)
{
	struct pool pool = { 0 };
	struct prefix_config c = {
		.store = { .ctx = &pool, .copy = copy, .read = page_read, .write = page_write },
		.window = { 0, window },
		.page_bytes = { PAGE_A, PAGE_B },
		.disk = t
	};
	int32_t text[24];
	struct prefix *p = NULL;

	for (int32_t i = 0; i < 24; i++)
		text[i] = i;
	must(!kv_pages_create(2, (uint32_t[]){ PAGES, PAGES }, TOKENS, &c.pages, NULL));
	must(!prefix_create(&c, &p, NULL));
	for (uint32_t n = 8; n <= 24; n += 8) {
		struct block_table table = { 0 };
		struct prefix_node *lease = NULL;
		uint32_t tenant = prefix_tenant(p, "t");
		struct prefix_hit hit;

		(void)prefix_restore(p, tenant, text, n, 1 << 20, 0);
		prefix_find(p, tenant, text, n, &hit);
		must(hit.n_whole + hit.n_part + hit.n_tiered <= n);
		(void)prefix_share(p, &hit, 0, 0, &table, &lease);
		if (!block_table_cover(&table, c.pages, n))
			prefix_offer(p, tenant, text, n, true, 0, 0, &table, &lease);
		block_table_release(&table, c.pages);
		prefix_release(p, &lease);
		(void)prefix_tend(p, 1 << 20, 0);
		(void)bytes_of(t);
	}
	(void)prefix_evict(p, (uint32_t[KV_MAX_GROUPS]){ PAGES, PAGES }, 0);
	(void)bytes_of(t);
	prefix_set_limits(p, 0, LIMIT * 2 / 3);
	prefix_destroy(p);
	must(kv_pages_free(c.pages, 0) == PAGES && kv_pages_free(c.pages, 1) == PAGES);
	kv_pages_destroy(c.pages);
}

static void run(const char *path, const struct kv_tier_config *c, uint32_t window)
{
	struct kv_tier *t = NULL;

	must(!kv_tier_open(c, &t, NULL));
	(void)bytes_of(t);
	walk(t);
	use(t, window);
	kv_tier_set_limit(t, 0, NULL, NULL, NULL);
	must(!bytes_of(t));
	kv_tier_close(t);
	must(!unlink(path));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char path[40] = "/tmp/tenon-fuzz-tier-XXXXXX";
	struct kv_tier_config c = { .path = path,
		.limit_bytes = LIMIT,
		.n_groups = 2,
		.page_tokens = TOKENS,
		.page_bytes = { PAGE_A, PAGE_B } };
	uint8_t *copy_of = malloc(size ? size : 1);
	struct kv_tier *t = NULL;
	int fd;

	if (!access("/dev/shm", W_OK)) /* no disk is worn out */
		memcpy(path, "/dev/shm/tenon-fuzz-XXXXXX", sizeof "/dev/shm/tenon-fuzz-XXXXXX");
	fd = mkstemp(path);
	must(copy_of && fd >= 0 && !close(fd));
	file_make(path, data, size);
	run(path, &c, size % 2 ? 6 : 0);
	must(!kv_tier_open(&c, &t, NULL));
	if (size)
		memcpy(copy_of, data, size);
	sign(t, copy_of, size);
	kv_tier_close(t);
	file_make(path, copy_of, size);
	run(path, &c, size % 2 ? 6 : 0);
	free(copy_of);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 * Slower tiers of a scene: host memory and a file in a folder of its own, their limits to the byte, and a file that rots.
 */
#include "tests/sim/sim.h"
#include "cache/kv/tier.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool folder_make(struct sim *s)
{
	const char *top = getenv("TMPDIR");

	if (*s->disk_dir)
		return true;
	(void)snprintf(s->disk_dir, sizeof s->disk_dir, "%s/tenon-sim-XXXXXX",
		top && strlen(top) < 64 ? top : "/tmp");
	if (!mkdtemp(s->disk_dir)) {
		sim_fail(s, "world", "no folder %s for a disk tier", s->disk_dir);
		*s->disk_dir = 0;
		return false;
	}
	(void)snprintf(s->disk_path, sizeof s->disk_path, "%s/tier", s->disk_dir);
	return true;
}

/* A tier's transfers take time, too: whoever looks at the clock around them moves it. */
static uint64_t tier_now(void *ctx)
{
	struct sim *s = ctx;

	s->fake.now_ns += 2000 + rng_below(&s->fake.noise, 20000);
	return s->fake.now_ns;
}

static void open_one(struct sim *s, const char *path, uint64_t limit, struct kv_tier **out)
{
	const struct model_info *m = &s->w.info;
	struct kv_tier_config c = { .path = path,
		.limit_bytes = limit,
		.n_groups = m->n_groups,
		.page_tokens = m->page_tokens,
		.now_ns = tier_now,
		.ctx = s };
	struct error e = { 0 };

	memcpy(c.compat, m->kv_compat, sizeof c.compat);
	memcpy(c.page_bytes, m->page_bytes, sizeof c.page_bytes);
	if (kv_tier_open(&c, out, &e))
		sim_fail(s, "tier", "%s does not open: %s", path ? path : "the host tier", e.text);
}

bool sim_open_tiers(struct sim *s)
{
	if (s->w.host_tier)
		open_one(s, NULL, s->host_limit, &s->host);
	if (s->w.disk_tier && folder_make(s))
		open_one(s, s->disk_path, s->disk_limit, &s->disk);
	return !s->v.failed;
}

void sim_close_tiers(struct sim *s)
{
	kv_tier_close(s->host);
	kv_tier_close(s->disk);
	s->host = s->disk = NULL;
}

void sim_remove_tiers(struct sim *s)
{
	if (!*s->disk_dir)
		return;
	(void)unlink(s->disk_path);
	(void)rmdir(s->disk_dir);
}

void sim_set_limits(struct sim *s, struct prefix *p, uint64_t host_bytes, uint64_t disk_bytes)
{
	s->host_limit = host_bytes;
	s->disk_limit = disk_bytes;
	sim_log(s, "limits: host %llu, disk %llu bytes", (unsigned long long)host_bytes,
		(unsigned long long)disk_bytes);
	if (!sim_broken(s, "limit"))
		prefix_set_limits(p, host_bytes, disk_bytes);
	check_limits(s, p);
}

/* Some bytes of the file change, or its end goes. */
void sim_rot(struct sim *s, struct rng *r)
{
	int fd = s->w.disk_tier ? open(s->disk_path, O_RDWR | O_CLOEXEC) : -1;
	off_t size = fd >= 0 ? lseek(fd, 0, SEEK_END) : 0;

	if (size > 0 && rng_chance(r, 150))
		(void)!ftruncate(fd, (off_t)(rng_next(r) % (uint64_t)size));
	else if (size > 0)
		for (uint32_t i = rng_below(r, 9); i > 0; i--) {
			uint64_t v = rng_next(r);

			(void)!pwrite(fd, &v, rng_range(r, 1, 8), (off_t)(rng_next(r) % (uint64_t)size));
		}
	if (fd >= 0)
		(void)close(fd);
}

void check_limits(struct sim *s, const struct prefix *p)
{
	struct kv_tier_status host = { 0 }, disk = { 0 };
	struct prefix_status st;
	struct stat file;

	if (s->v.failed || !p || !(s->host || s->disk))
		return;
	prefix_get_status(p, &st);
	if (s->host)
		kv_tier_get_status(s->host, &host);
	if (s->disk)
		kv_tier_get_status(s->disk, &disk);
	if (host.bytes != st.host_bytes || disk.bytes != st.disk_bytes ||
		(s->host && host.limit_bytes != s->host_limit) ||
		(s->disk && disk.limit_bytes != s->disk_limit))
		sim_fail(s, "limit",
			"host %llu of %llu bytes by the tier, %llu of %llu by the cache; disk %llu of %llu, %llu of %llu",
			(unsigned long long)host.bytes, (unsigned long long)host.limit_bytes,
			(unsigned long long)st.host_bytes, (unsigned long long)s->host_limit,
			(unsigned long long)disk.bytes, (unsigned long long)disk.limit_bytes,
			(unsigned long long)st.disk_bytes, (unsigned long long)s->disk_limit);
	if (host.bytes > s->host_limit || disk.bytes > s->disk_limit)
		sim_fail(s, "limit", "host tier %llu bytes of %llu, disk tier %llu of %llu",
			(unsigned long long)host.bytes, (unsigned long long)s->host_limit,
			(unsigned long long)disk.bytes, (unsigned long long)s->disk_limit);
	if (s->disk && !stat(s->disk_path, &file) && (uint64_t)file.st_size > s->disk_limit)
		sim_fail(s, "limit", "the disk tier's file has %llu bytes, the limit is %llu",
			(unsigned long long)file.st_size, (unsigned long long)s->disk_limit);
}

/* SPDX-License-Identifier: Apache-2.0
 * Manifests, checked files, the probe and the dispatcher, on the toy plugin and its broken builds.
 */
#include "tests/unit/unit.h"
#include "plugins/plugins_priv.h"
#include <dirent.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct place {
	char dir[64], cache[128];
};

static void path_in(const struct place *p, const char *name, char *out, size_t room)
{
	assert_true((size_t)snprintf(out, room, "%s/%s", p->dir, name) < room);
}

static void write_file(const char *path, const void *data, size_t len, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, len), len);
	assert_int_equal(fchmod(fd, mode), 0);
	assert_int_equal(close(fd), 0);
}

static char *read_file(const char *path, size_t *len)
{
	FILE *f = fopen(path, "re");
	char *p = malloc(1 << 22);

	if (!f)
		fail_msg("cannot read %s", path);
	*len = fread(p, 1, 1 << 22, f);
	(void)fclose(f);
	return p;
}

/* Copies the built module BUILD.so into the place as FILE. */
static void put_object(const struct place *p, const char *build, const char *file)
{
	const char *top = getenv("TENON_BUILDDIR");
	char from[512], to[512];
	size_t len;
	char *data;

	(void)snprintf(from, sizeof from, "%s/tests/unit/.libs/%s.so", top ? top : ".", build);
	path_in(p, file, to, sizeof to);
	data = read_file(from, &len);
	(void)unlink(to); /* the old one may be mapped */
	write_file(to, data, len, 0755);
	free(data);
}

static void put_manifest(const struct place *p, const char *name, const char *text)
{
	char file[64], path[512];

	(void)snprintf(file, sizeof file, "%s.plugin", name);
	path_in(p, file, path, sizeof path);
	write_file(path, text, strlen(text), 0644);
}

#define TOY "manifest = 1; name = \"toy\"; abi = [1]; rank = 5; self_check = false; file = \"toy.so\";"

static int place_make(void **st)
{
	struct place *p = calloc(1, sizeof *p);

	(void)snprintf(p->dir, sizeof p->dir, "/tmp/tenon-plugins-XXXXXX");
	assert_non_null(mkdtemp(p->dir));
	(void)snprintf(p->cache, sizeof p->cache, "%s.cache", p->dir);
	*st = p;
	return 0;
}

static int place_remove(void **st)
{
	struct place *p = *st;
	char cmd[600];

	(void)snprintf(cmd, sizeof cmd, "rm -rf '%s' '%s'", p->dir, p->cache);
	free(p);
	return system(cmd);
}

/* Opens the place with the toy told to do `todo` (may be NULL). */
static struct plugins *open_place(
	const struct place *p, struct plugin_option *o, const char *todo, bool cache)
{
	const char *dirs[] = { p->dir };
	struct plugins_config c = { .dirs = dirs, .n_dirs = 1, .options = o, .n_options = todo != NULL };
	struct plugins *list = NULL;
	struct error e = { 0 };

	*o = (struct plugin_option){ "toy", "do", todo };
	c.cache_dir = cache ? p->cache : NULL;
	if (plugins_open(&c, &list, &e))
		fail_msg("%s", e.text);
	return list;
}

static int parse(const char *text, struct manifest *m, struct error *e)
{
	return manifest_parse("x.plugin", text, strlen(text), m, e);
}

static void manifest_with_variants(void **st)
{
	const char *text =
		"manifest = 1; name = \"cpu\"; vendor = \"V\"; description = \"d\"; abi = [1, 2]; rank = 100;\n"
		"variants = ( { name = \"far\"; file = \"a.so\"; isa = [\"from_the_future\"]; rank = 9; },\n"
		"{ name = \"low\"; file = \"b.so\"; rank = 1; }, { name = \"mid\"; file = \"c.so\"; rank = 2; isa = []; } );";
	const struct manifest_variant *v;
	struct error e = { 0 };
	char why[160] = "?";
	struct manifest m;

	(void)st;
	assert_int_equal(parse(text, &m, &e), TENON_OK);
	assert_int_equal(m.n_variants, 3);
	assert_int_equal(m.n_majors, 2);
	v = manifest_choose(&m, why, sizeof why);
	assert_non_null(v);
	assert_string_equal(v->name, "mid");
	m.n_variants = 1;
	assert_null(manifest_choose(&m, why, sizeof why));
	assert_non_null(strstr(why, "from_the_future"));
}

static void manifest_faults_are_named(void **st)
{
#define HEAD "manifest = 1; name = \"a\"; abi = [1];\n"
	static const struct {
		const char *text, *want;
	} t[] = {
		{ "", "x.plugin:1: 'manifest'" },
		{ "manifest = 2;", "x.plugin:1: 'manifest': must be 1" },
		{ "manifest = \"1\";", "must be 1" },
		{ "manifest = 1; abi = [1]; file = \"a\";", "'name': is missing" },
		{ "manifest = 1; name = \"a\"; file = \"a\";", "'abi': is missing" },
		{ HEAD, "'file': is missing" },
		{ HEAD "colour = 3;", "x.plugin:2: 'colour': unknown key" },
		{ HEAD "file = 3;", "x.plugin:2: 'file': must be a string" },
		{ HEAD "file = \"\";", "is empty or too long" },
		{ HEAD "file = \"../a.so\";", "without a folder" },
		{ HEAD "file = \"/a.so\";", "without a folder" },
		{ HEAD "file = \"..\";", "without a folder" },
		{ HEAD "file = \"a\\x01b\";", "control character" },
		{ HEAD "file = \"a\"; vendor = \"\\xff\";", "not valid UTF-8" },
		{ HEAD "file = \"a\"; rank = 1001;", "out of range" },
		{ HEAD "file = \"a\"; rank = 1.5;", "whole number" },
		{ HEAD "file = \"a\"; self_check = 1;", "true or false" },
		{ HEAD "file = \"a\"; rank = 99999999999L;", "whole number" },
		{ HEAD "file = \"a\"; isa = \"avx2\";", "must be an array" },
		{ HEAD "file = \"a\"; isa = [1];", "names of processor features" },
		{ HEAD "file = \"a\"; sha256 = \"00\";", "64 hexadecimal" },
		{ HEAD "file = \"a\"; variants = ();", "1 to 16 variants" },
		{ HEAD "variants = ( 1 );", "must hold groups" },
		{ HEAD "variants = ( { file = \"a\"; } );", "needs name and file" },
		{ HEAD "variants = ( { name = \"a\"; file = \"a\"; vendor = \"v\"; } );",
			"unknown key in a variant" },
		{ HEAD "variants = ( { name = \"a\"; file = \"a\"; }, { name = \"a\"; file = \"b\"; } );",
			"same name" },
		{ HEAD "file = \"a\"; variants = ( { name = \"a\"; file = \"a\"; } );", "one or the other" },
		{ "manifest = 1; name = \"A b\"; ", "a-z, 0-9" },
		{ "manifest = 1; name = \"a\"; name = \"b\"; ", "x.plugin:1: " },
		{ "manifest = 1; abi = []; ", "too few" },
		{ "manifest = 1; abi = [0]; ", "whole numbers from 1" },
		{ "manifest = 1;\n\n  @include \"/etc/passwd\"\n", "x.plugin:3: '@include'" },
		{ "manifest = 1;\nname = {{{;", "x.plugin:2: " },
	};

	(void)st;
	for (size_t i = 0; i < COUNT_OF(t); i++) {
		struct manifest m = { .n_variants = 77 };
		struct error e = { 0 };

		assert_int_equal(parse(t[i].text, &m, &e), TENON_E_CONFIG);
		if (!strstr(e.text, t[i].want))
			fail_msg("'%s' gave '%s', want '%s'", t[i].text, e.text, t[i].want);
		assert_int_equal(m.n_variants, 77);
	}
	struct manifest m;
	struct error e = { 0 };
	assert_int_equal(manifest_parse("x", "manifest = 1\0;", 14, &m, &e), TENON_E_CONFIG);
}

static void features_match_the_kernel(void **st)
{
	char line[16384] = "";
	FILE *f = fopen("/proc/cpuinfo", "re");

	(void)st;
	while (f && fgets(line, sizeof line, f) && strncmp(line, "flags", 5))
		;
	if (f)
		(void)fclose(f);
	if (strncmp(line, "flags", 5))
		skip();
	line[strcspn(line, "\n")] = ' ';
	assert_int_equal(isa_has("avx2"), strstr(line, " avx2 ") != NULL);
	assert_int_equal(isa_has("fma"), strstr(line, " fma ") != NULL);
	assert_int_equal(isa_has("f16c"), strstr(line, " f16c ") != NULL);
	assert_int_equal(isa_has("avx512f"), strstr(line, " avx512f ") != NULL);
	assert_int_equal(isa_has("avxvnni"), strstr(line, " avx_vnni ") != NULL);
	assert_false(isa_has("no_such_feature"));
}

static void toy_opens_and_answers(void **st)
{
	struct place *p = *st;
	struct plugin_option o;
	struct plugins *list;
	struct backend *b = NULL, *b2 = NULL;
	struct tnp_graph g = { .size = sizeof g, .n_nodes = 2 };
	struct tnp_verdict v[2];
	struct error e = { 0 };
	uint64_t n = 0;

	put_object(p, "toy", "toy.so");
	put_manifest(p, "toy", TOY);
	list = open_place(p, &o, NULL, false);
	assert_int_equal(plugins_count(list), 1);
	assert_int_equal(plugins_at(list, 0)->state, PLUGIN_LISTED);
	assert_int_equal(plugins_probe(list, 0, &e), TENON_OK);
	assert_int_equal(plugins_at(list, 0)->state, PLUGIN_USABLE);
	assert_string_equal(plugins_at(list, 0)->version, "1");
	assert_int_equal(plugins_at(list, 0)->n_devices, 1);
	assert_int_equal(strlen(plugins_at(list, 0)->devices[0].name), 63);
	assert_int_equal(backend_open(list, NULL, 0, &b, &e), TENON_OK);
	assert_string_equal(backend_name(b), "toy");
	assert_true(backend_has(b, TNP_F_INVARIANT));
	assert_false(backend_has(b, TNP_F_KV_IO));
	assert_int_equal(backend_memory(b, &n, &e), TENON_OK);
	assert_int_equal(n, 4096);
	assert_int_equal(backend_model_check(b, &g, v, &e), TENON_OK);
	assert_int_equal(strlen(v[1].text), sizeof v[1].text - 1);
	assert_int_equal(backend_open(list, "toy", 1, &b2, &e), TENON_E_NOT_FOUND);
	assert_int_equal(backend_open(list, "toy", 0, &b2, &e), TENON_OK);
	backend_close(b2);
	backend_close(b);
	assert_int_equal(backend_open(list, "toy", 0, &b, &e), TENON_OK); /* stopped, then started again */
	backend_close(b);
	assert_int_equal(backend_open(list, "other", 0, &b, &e), TENON_E_NOT_FOUND);
	plugins_close(list);
}

static void codes_and_texts_are_mapped(void **st)
{
	static const struct {
		const char *todo;
		int code;
		const char *want;
	} t[] = { { "fail:dev_memory", TENON_E_NOMEM, "backend toy: dev_memory: told to fail in dev_memory" },
		{ "odd:dev_memory", TENON_E_BACKEND, "code 77" },
		{ "lost:dev_memory", TENON_E_BACKEND, "told to fail" } };
	struct place *p = *st;

	put_object(p, "toy", "toy.so");
	put_manifest(p, "toy", TOY);
	for (size_t i = 0; i < COUNT_OF(t); i++) {
		struct plugin_option o;
		struct plugins *list = open_place(p, &o, t[i].todo, false);
		struct backend *b = NULL;
		struct error e = { 0 };
		uint64_t types;
		uint32_t lo, hi, n;
		int after = strncmp(t[i].todo, "lost", 4) ? TENON_OK : TENON_E_BACKEND;

		assert_int_equal(backend_open(list, "toy", 0, &b, &e), TENON_OK);
		assert_int_equal(backend_memory(b, &types, &e), t[i].code);
		assert_non_null(strstr(e.text, t[i].want));
		assert_int_equal(backend_kv_caps(b, &types, &lo, &hi, &e), after);
		assert_int_equal(backend_op_caps(b, NULL, &n, &e), after);
		backend_close(b);
		plugins_close(list);
	}
}

struct told {
	uint32_t n;
	double share[8];
};

static void tell(void *ctx, uint64_t done, uint64_t total)
{
	struct told *t = ctx;

	if (t->n < 8)
		t->share[t->n++] = (double)done / (double)total;
}

static void model_calls_go_through(void **st)
{
	struct place *p = *st;
	struct plugin_option o;
	struct plugins *list;
	struct backend *b = NULL;
	struct backend_model *m = NULL;
	struct tnp_graph g = { .size = sizeof g };
	struct tnp_limits l = { .size = sizeof l };
	struct told told = { 0 };
	const struct backend_progress progress = { tell, &told };
	struct tnp_sizes s;
	struct tnp_kv_spec k = { .size = sizeof k };
	struct tnp_batch batch = { .size = sizeof batch };
	struct error e = { 0 };
	uint32_t n = 0;

	put_object(p, "toy", "toy.so");
	put_manifest(p, "toy", TOY);
	list = open_place(p, &o, "fail:wait", false);
	assert_int_equal(backend_open(list, "toy", 0, &b, &e), TENON_OK);
	assert_int_equal(backend_model_sizes(b, &g, &l, &s, &e), TENON_OK);
	assert_int_equal(s.workspace, 1);
	assert_int_equal(backend_model_open(b, &g, &l, &progress, &m, &e), TENON_OK);
	assert_int_equal(told.n, 2);
	assert_true(told.share[0] == 0.5 && told.share[1] == 1);
	assert_int_equal(backend_kv_open(m, &k, &e), TENON_OK);
	assert_int_equal(backend_kv_open(m, &k, &e), TENON_E_INVALID);
	assert_int_equal(backend_kv_copy(m, 0, 0, 1, 1, &e), TENON_OK);
	assert_int_equal(backend_kv_read(m, 0, 0, &n, &e), TENON_E_UNSUPPORTED);
	assert_int_equal(backend_kv_write(m, 0, 0, &n, &e), TENON_E_UNSUPPORTED);
	assert_int_equal(backend_profile(m, 1, NULL, &n, &e), TENON_E_UNSUPPORTED);
	assert_int_equal(backend_batch(m, &batch, &e), TENON_E_NOMEM);
	backend_model_close(m);
	backend_close(b);
	plugins_close(list);
}

static void broken_builds_are_refused(void **st)
{
	static const struct {
		const char *build, *want;
		int code;
	} t[] = { { "toy_nosym", "tnp_entry", TENON_E_BACKEND },
		{ "toy_refuse", "does not speak ABI 1", TENON_E_VERSION },
		{ "toy_short", "function table", TENON_E_VERSION },
		{ "toy_hole", "required function", TENON_E_VERSION } };
	struct place *p = *st;

	put_manifest(p, "toy", TOY);
	for (size_t i = 0; i < COUNT_OF(t); i++) {
		struct plugin_option o;
		struct plugins *list;
		struct backend *b = NULL;
		struct error e = { 0 };

		put_object(p, t[i].build, "toy.so");
		list = open_place(p, &o, NULL, true);
		assert_int_equal(plugins_probe(list, 0, &e), t[i].code);
		assert_int_equal(plugins_at(list, 0)->state, PLUGIN_QUARANTINED);
		if (!strstr(plugins_at(list, 0)->reason, t[i].want))
			fail_msg("%s: '%s'", t[i].build, plugins_at(list, 0)->reason);
		assert_int_equal(backend_open(list, "toy", 0, &b, &e), TENON_E_BACKEND);
		assert_int_equal(backend_open(list, NULL, 0, &b, &e), TENON_E_NOT_FOUND);
		plugins_close(list);
		list = open_place(p, &o, NULL, false);
		assert_int_equal(backend_open(list, "toy", 0, &b, &e), t[i].code);
		plugins_close(list);
	}
}

static void misbehaviour_in_the_probe_is_named(void **st)
{
	static const struct {
		const char *todo, *want;
	} t[] = { { "crash:start", "while being loaded and started" },
		{ "crash:dev_info", "while listing its devices" },
		{ "crash:dev_open", "while opening and checking its devices" },
		{ "crash:stop", "while stopping" },
		{ "exit:dev_count", "(status 7) while listing its devices" },
		{ "fail:start", "told to fail in start" }, { "fail:dev_open", "told to fail in dev_open" } };
	struct place *p = *st;

	put_object(p, "toy", "toy.so");
	put_manifest(p, "toy", TOY);
	for (size_t i = 0; i < COUNT_OF(t); i++) {
		struct plugin_option o;
		struct plugins *list = open_place(p, &o, t[i].todo, true);
		struct error e = { 0 };

		assert_true(plugins_probe(list, 0, &e) < 0);
		assert_int_equal(plugins_at(list, 0)->state, PLUGIN_QUARANTINED);
		if (!strstr(plugins_at(list, 0)->reason, t[i].want))
			fail_msg("%s: '%s'", t[i].todo, plugins_at(list, 0)->reason);
		plugins_close(list);
	}
}

/* The toy says yes to every node and computes nothing. */
static void wrong_numbers_are_noticed(void **st)
{
	struct place *p = *st;
	struct plugin_option o;
	struct plugins *list;
	struct error e = { 0 };

	put_object(p, "toy", "toy.so");
	put_manifest(p, "toy", "manifest = 1; name = \"toy\"; abi = [1]; file = \"toy.so\";");
	list = open_place(p, &o, NULL, false);
	assert_int_equal(plugins_probe(list, 0, &e), TENON_E_BACKEND);
	assert_int_equal(plugins_at(list, 0)->state, PLUGIN_QUARANTINED);
	assert_non_null(strstr(plugins_at(list, 0)->reason, "wrong numbers"));
	plugins_close(list);
}

static void default_folder_can_be_named(void **st)
{
	char dir[64];
	struct error e = { 0 };

	(void)st;
	assert_int_equal(setenv("TENON_PLUGINS", "/some/where", 1), 0);
	assert_int_equal(plugins_default_dir(dir, sizeof dir, &e), TENON_OK);
	assert_string_equal(dir, "/some/where");
	assert_int_equal(plugins_default_dir(dir, 5, &e), TENON_E_TOO_LONG);
	assert_int_equal(unsetenv("TENON_PLUGINS"), 0);
}

static void hang_in_the_probe_is_ended(void **st)
{
	struct place *p = *st;
	struct plugin_option o;
	struct plugins *list;
	struct error e = { 0 };

	if (getenv("TENON_TEST_SHORT"))
		skip();
	put_object(p, "toy", "toy.so");
	put_manifest(p, "toy", TOY);
	list = open_place(p, &o, "hang:start", false);
	assert_int_equal(plugins_probe(list, 0, &e), TENON_E_BACKEND);
	assert_non_null(strstr(plugins_at(list, 0)->reason, "did not answer within 10 s while being loaded"));
	plugins_close(list);
}

static size_t n_blobs(const struct place *p)
{
	char dir[300];
	size_t n = 0;
	DIR *d;

	(void)snprintf(dir, sizeof dir, "%s/blobs/toy", p->cache);
	d = opendir(dir);
	for (struct dirent *x; d && (x = readdir(d));)
		n += x->d_name[0] != '.';
	if (d)
		(void)closedir(d);
	return n;
}

static void good_answers_are_kept_until_something_changes(void **st)
{
	struct place *p = *st;
	struct plugin_option o;
	struct plugins *list;
	struct error e = { 0 };
	char path[512];

	put_object(p, "toy", "toy.so");
	put_manifest(p, "toy", TOY);
	list = open_place(p, &o, "fail:start", true);
	assert_true(plugins_probe(list, 0, &e) < 0);
	assert_int_equal(n_blobs(p), 0);
	plugins_close(list);
	list = open_place(p, &o, NULL, true);
	assert_int_equal(plugins_probe(list, 0, &e), TENON_OK);
	assert_int_equal(n_blobs(p), 1);
	plugins_close(list);
	/* same object: not even looked at again; other options: tried again */
	list = open_place(p, &o, NULL, true);
	assert_int_equal(plugins_probe(list, 0, &e), TENON_OK);
	plugins_close(list);
	list = open_place(p, &o, "fail:start", true);
	assert_true(plugins_probe(list, 0, &e) < 0);
	plugins_close(list);
	path_in(p, "toy.so", path, sizeof path);
	put_object(p, "toy_hole", "toy.so");
	list = open_place(p, &o, NULL, true);
	assert_int_equal(plugins_probe(list, 0, &e), TENON_E_VERSION);
	plugins_close(list);
}

static void liars_and_empty_machines(void **st)
{
	struct plugin_option o[] = { { "toy", "liar", "1" }, { "toy", "devices", "0" } };
	struct place *p = *st;
	const char *dirs[] = { p->dir };
	struct plugins_config c = { .dirs = dirs, .n_dirs = 1, .options = o, .n_options = 1 };
	struct plugins *list = NULL;
	struct error e = { 0 };

	put_object(p, "toy", "toy.so");
	put_manifest(p, "toy", TOY);
	assert_int_equal(plugins_open(&c, &list, &e), TENON_OK);
	assert_int_equal(plugins_probe(list, 0, &e), TENON_E_BACKEND);
	assert_non_null(strstr(e.text, "reports a feature whose function is missing"));
	plugins_close(list);
	c.options = o + 1;
	assert_int_equal(plugins_open(&c, &list, &e), TENON_OK);
	assert_int_equal(plugins_probe(list, 0, &e), TENON_OK);
	assert_int_equal(plugins_at(list, 0)->state, PLUGIN_UNUSABLE);
	plugins_close(list);
}

static void reason_is(const struct place *p, const char *want)
{
	struct plugin_option o;
	struct plugins *list = open_place(p, &o, NULL, false);
	struct backend *b = NULL;
	struct error e = { 0 };
	const struct plugin_info *i = plugins_at(list, 0);

	if (i->state == PLUGIN_LISTED) {
		assert_true(plugins_probe(list, 0, &e) < 0);
		assert_true(backend_open(list, "toy", 0, &b, &e) < 0);
	}
	assert_int_equal(i->state, PLUGIN_UNUSABLE);
	if (!strstr(i->reason, want))
		fail_msg("'%s', want '%s'", i->reason, want);
	plugins_close(list);
}

static void files_must_be_ours(void **st)
{
	struct place *p = *st;
	char so[512], manifest[512], other[512];

	put_object(p, "toy", "toy.so");
	put_manifest(p, "toy", TOY);
	path_in(p, "toy.so", so, sizeof so);
	path_in(p, "toy.plugin", manifest, sizeof manifest);
	path_in(p, "other", other, sizeof other);
	assert_int_equal(chmod(so, 0777), 0);
	reason_is(p, "writable by everybody");
	assert_int_equal(chmod(so, 0755), 0);
	assert_int_equal(chmod(manifest, 0666), 0);
	reason_is(p, "writable by everybody");
	assert_int_equal(chmod(manifest, 0644), 0);
	assert_int_equal(rename(so, other), 0);
	reason_is(p, "No such file");
	assert_int_equal(symlink("other", so), 0);
	reason_is(p, "symbolic link");
	assert_int_equal(unlink(so), 0);
	assert_int_equal(mkdir(so, 0755), 0);
	reason_is(p, "not a regular file");
	assert_int_equal(rmdir(so), 0);
	assert_int_equal(mkfifo(so, 0600), 0);
	reason_is(p, "not a regular file");
	assert_int_equal(unlink(so), 0);
	assert_int_equal(rename(other, so), 0);
	if (!geteuid()) {
		assert_int_equal(chown(so, 12345, 12345), 0);
		reason_is(p, "owned by uid 12345");
		assert_int_equal(chown(so, 0, 0), 0);
	}
	put_manifest(p, "toy",
		"manifest = 1; name = \"toy\"; abi = [1]; file = \"toy.so\"; sha256 = "
		"\"0000000000000000000000000000000000000000000000000000000000000000\";");
	reason_is(p, "sha256");
	put_manifest(p, "toy", "manifest = 1; name = \"toy\"; abi = [2]; file = \"toy.so\";");
	reason_is(p, "this host speaks 1");
	put_manifest(p, "toy", "manifest = 1; name = \"joy\"; abi = [1]; file = \"toy.so\";");
	reason_is(p, "is named 'joy' inside");
}

static void folders_must_be_ours(void **st)
{
	struct place *p = *st;
	const char *dirs[] = { p->dir };
	struct plugins_config c = { .dirs = dirs, .n_dirs = 1 };
	struct plugins *list = NULL;
	struct error e = { 0 };

	assert_int_equal(chmod(p->dir, 0777), 0);
	assert_int_equal(plugins_open(&c, &list, &e), TENON_E_DENIED);
	assert_int_equal(chmod(p->dir, 0755), 0);
	dirs[0] = "/nonexistent/plugins";
	assert_int_equal(plugins_open(&c, &list, &e), TENON_E_NOT_FOUND);
	assert_null(list);
}

static void a_wrong_name_and_a_twin(void **st)
{
	struct place *p = *st, *q;
	struct plugins_config c = { .n_dirs = 2 };
	struct plugins *list = NULL;
	struct error e = { 0 };

	place_make((void **)&q);
	put_object(p, "toy", "toy.so");
	put_object(p, "toy", "joy.so");
	put_manifest(p, "toy", TOY);
	put_manifest(p, "joy", "manifest = 1; name = \"joy\"; abi = [1]; file = \"joy.so\";");
	put_manifest(q, "toy", TOY);
	c.dirs = (const char *const[]){ p->dir, q->dir };
	assert_int_equal(plugins_open(&c, &list, &e), TENON_OK);
	assert_int_equal(plugins_count(list), 3);
	assert_string_equal(plugins_at(list, 0)->name, "joy");
	assert_int_equal(plugins_probe(list, 0, &e), TENON_E_BACKEND);
	assert_non_null(strstr(e.text, "calls itself 'toy'"));
	assert_int_equal(plugins_at(list, 2)->state, PLUGIN_UNUSABLE);
	assert_non_null(strstr(plugins_at(list, 2)->reason, "comes first"));
	plugins_close(list);
	place_remove((void **)&q);
}

static void blobs_come_back_or_are_missed(void **st)
{
	struct place *p = *st;
	struct plugins_config c = { .cache_dir = p->cache };
	struct plugin_host h;
	struct error e = { 0 };
	char out[32], path[600], cmd[700];
	uint64_t len = sizeof out;
	size_t n;
	char *data;
	FILE *f;

	assert_int_equal(plugin_host_init(&h, "toy", &c, &e), TENON_OK);
	assert_int_equal(h.table.blob_get(&h, "k", out, &len), TNP_E_UNSUPPORTED);
	assert_int_equal(h.table.blob_put(&h, "k", "value", 5), TNP_OK);
	assert_int_equal(h.table.blob_put(&h, "other", "", 0), TNP_OK);
	assert_int_equal(h.table.blob_put(&h, "k", "value!", 6), TNP_OK);
	assert_int_equal(h.table.blob_get(&h, "k", NULL, &len), TNP_OK);
	assert_int_equal(len, 6);
	assert_int_equal(h.table.blob_get(&h, "k", out, &len), TNP_OK);
	assert_memory_equal(out, "value!", 6);
	len = 5;
	assert_int_equal(h.table.blob_get(&h, "k", out, &len), TNP_E_NOMEM);
	assert_int_equal(len, 6);
	len = sizeof out;
	assert_int_equal(h.table.blob_get(&h, "other", out, &len), TNP_OK);
	assert_int_equal(len, 0);
	/* each byte of the file damaged, and each length */
	(void)snprintf(cmd, sizeof cmd, "rm %s/blobs/toy/*", p->cache);
	assert_int_equal(system(cmd), 0);
	assert_int_equal(h.table.blob_put(&h, "k", "value!", 6), TNP_OK);
	(void)snprintf(cmd, sizeof cmd, "echo %s/blobs/toy/*", p->cache);
	f = popen(cmd, "r");
	assert_int_equal(fscanf(f, "%599s", path), 1);
	(void)pclose(f);
	data = read_file(path, &n);
	for (size_t i = 0; i < n; i++) {
		data[i] ^= 4;
		write_file(path, data, n, 0600);
		data[i] ^= 4;
		len = sizeof out;
		/* a key's bytes behind its end carry nothing */
		if (h.table.blob_get(&h, "k", out, &len) == TNP_OK)
			assert_true(i > 17 && i < 16 + 128);
		write_file(path, data, i, 0600);
		len = sizeof out;
		assert_int_equal(h.table.blob_get(&h, "k", out, &len), TNP_E_UNSUPPORTED);
	}
	free(data);
	plugin_host_finish(&h);
}

static void staged_plugins_are_found(void **st)
{
	char dir[4096];
	const char *dirs[] = { dir };
	struct plugins_config c = { .dirs = dirs, .n_dirs = 1 };
	struct plugins *list = NULL;
	struct error e = { 0 };

	(void)st;
	assert_int_equal(plugins_default_dir(dir, sizeof dir, &e), TENON_OK);
	if (plugins_open(&c, &list, &e))
		fail_msg("%s", e.text);
	for (size_t i = 0; i < plugins_count(list); i++) {
		const struct plugin_info *p = plugins_at(list, i);

		if (p->state != PLUGIN_LISTED)
			fail_msg("%s: %s", p->name, p->reason);
		if (plugins_probe(list, i, &e))
			fail_msg("%s: %s", p->name, e.text);
	}
	plugins_close(list);
}

#define PLACE(f) cmocka_unit_test_setup_teardown(f, place_make, place_remove)

int main(void)
{
	const struct CMUnitTest t[] = {
		cmocka_unit_test(manifest_with_variants),
		cmocka_unit_test(manifest_faults_are_named),
		cmocka_unit_test(features_match_the_kernel),
		PLACE(toy_opens_and_answers),
		PLACE(codes_and_texts_are_mapped),
		PLACE(model_calls_go_through),
		PLACE(broken_builds_are_refused),
		PLACE(misbehaviour_in_the_probe_is_named),
		PLACE(wrong_numbers_are_noticed),
		PLACE(hang_in_the_probe_is_ended),
		PLACE(good_answers_are_kept_until_something_changes),
		PLACE(liars_and_empty_machines),
		PLACE(files_must_be_ours),
		PLACE(folders_must_be_ours),
		PLACE(a_wrong_name_and_a_twin),
		PLACE(blobs_come_back_or_are_missed),
		cmocka_unit_test(default_folder_can_be_named),
		cmocka_unit_test(staged_plugins_are_found),
	};

	if (sodium_init() < 0)
		return 1;
	return cmocka_run_group_tests(t, NULL, NULL);
}

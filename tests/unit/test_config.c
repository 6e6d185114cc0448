/* SPDX-License-Identifier: Apache-2.0
 * The configuration: defaults, every type, every kind of mistake with its line, the documented file.
 */
#include "daemon/config.h"
#include "tests/unit/unit.h"
#include <string.h>
#include <unistd.h>

static int read_text(struct conf *c, const char *text, struct error *e)
{
	assert_int_equal(conf_init(c, e), TENON_OK);
	return conf_read_text(c, text, "t.conf", e);
}

static void reads_every_type(void **state)
{
	struct error e = { 0 };
	struct conf c;

	(void)state;
	assert_int_equal(
		read_text(&c,
			"isolation = \"thread\"; kv = \"q8_0\"; drain_s = 7; allow_paths = true;\n"
			"log = { level = \"debug\"; format = \"json\"; };\n"
			"limits = { ring_kib = 64; prompt_kib = 2; };\n"
			"plugin_dirs = [ \"/a\", \"/b\" ];\n"
			"plugins = { cpu = { threads = 3; pin = false; x = \"y\"; f = 0.5; }; };\n"
			"models = ( { name = \"a\"; path = \"/m/a.gguf\"; },\n"
			"           { name = \"b\"; precision = \"exact\"; kv = \"f32\"; kv_mib = 3; kv_sessions = 7; passes = \"-layout\"; backend = \"cpu=1,ref\"; preload = true; } );\n"
			"precision = \"fast\"; context = 4096L;\n",
			&e),
		TENON_OK);
	assert_int_equal(conf_complete(&c, &e), TENON_OK);
	assert_int_equal(c.isolation, ISOLATION_THREAD);
	assert_int_equal(c.drain_s, 7);
	assert_true(c.allow_paths);
	assert_int_equal(c.log.level, LOG_DEBUG);
	assert_int_equal(c.log.format, LOG_JSON);
	assert_int_equal(c.limits.ring_bytes, 64 << 10);
	assert_int_equal(c.limits.prompt_bytes, 2048);
	assert_int_equal(c.n_plugin_dirs, 2);
	assert_string_equal(c.plugin_dirs[1], "/b");
	assert_int_equal(c.n_plugin_options, 4);
	assert_string_equal(c.plugin_options[0].value, "3");
	assert_string_equal(c.plugin_options[1].value, "false");
	assert_string_equal(c.plugin_options[3].value, "0.5");
	assert_int_equal(c.n_models, 2);
	assert_int_equal(c.models[0].kv, KV_Q8_0);
	assert_int_equal(c.models[0].context, 4096);
	assert_string_equal(c.models[0].path, "/m/a.gguf");
	assert_int_equal(c.models[1].kv, KV_F32);
	assert_int_equal(c.models[1].precision, PRECISION_EXACT);
	assert_int_equal(c.models[1].kv_bytes, 3 << 20);
	assert_int_equal(c.models[1].kv_sessions, 7);
	assert_int_equal(c.models[0].kv_sessions, 0);
	assert_string_equal(c.models[1].passes, "-layout");
	assert_string_equal(c.models[1].backend, "cpu=1,ref");
	assert_null(c.models[0].backend);
	assert_string_equal(c.models[0].passes, "");
	assert_true(c.models[1].preload);
	assert_null(c.models[1].path);
	conf_finish(&c);
}

static void mistakes_name_file_and_line(void **state)
{
	static const struct {
		const char *text, *says;
	} cases[] = {
		{ "drain_s = 1;\nnonsense = 2;\n", "t.conf:2: nonsense: unknown key" },
		{ "log = {\n  colour = true;\n};\n", "t.conf:2: colour: unknown key" },
		{ "drain_s = \"ten\";\n", "t.conf:1: drain_s: is a \"string\"; write a whole number" },
		{ "drain_s = 1.5;\n", "t.conf:1: drain_s: is a number with a fraction" },
		{ "drain_s = -1;\n", "t.conf:1: drain_s: -1 is out of range" },
		{ "# 9\n/* 1 \n */ drain_s = 99999999999;\n", "t.conf:3: a number is too large" },
		{ "backend = \"4294967296\"; x9999999999 = 1;\n", "t.conf:1: x9999999999: unknown key" },
		{ "drain_s = 99999999999L;\n", "t.conf:1: drain_s: 99999999999 is out of range" },
		{ "\nallow_paths = 1;\n", "t.conf:2: allow_paths: is a whole number; write true or false" },
		{ "backend = 5;\n", "t.conf:1: backend: is a whole number; write a \"string\"" },
		{ "isolation = \"vm\";\n",
			"t.conf:1: isolation: \"vm\" is unknown; write one of process, thread" },
		{ "log = 3;\n", "t.conf:1: log: is a whole number; write a group" },
		{ "models = { };\n", "t.conf:1: models: is a group" },
		{ "models = ( 1 );\n", "t.conf:1: entry: is a whole number; write a group" },
		{ "models = (\n { path = \"/x\"; } );\n", "t.conf:2: model name ''" },
		{ "models = ( { name = \"../x\"; } );\n", "t.conf:1: model name '../x'" },
		{ "models = ( { name = \"a\"; },\n { name = \"a\"; } );\n",
			"t.conf:2: model 'a': named twice" },
		{ "models = ( { name = \"a\"; size = 1; } );\n", "t.conf:1: size: unknown key" },
		{ "plugin_dirs = \"/a\";\n", "t.conf:1: plugin_dirs: is a \"string\"; write an array" },
		{ "plugin_dirs = [ 1 ];\n", "t.conf:1: entry: is a whole number" },
		{ "plugins = { cpu = 1; };\n", "t.conf:1: cpu: is a whole number" },
		{ "plugins = { cpu = { a = [ 1 ]; }; };\n", "t.conf:1: a: is an array" },
		{ "drain_s = 1;\ndrain_s = 2;\n", "t.conf:2: " },
		{ "scheduler = { long_prompt_factor = 0.5; };\n",
			"t.conf:1: long_prompt_factor: 0.5 is out of range; write 1 to 100" },
		{ "scheduler = { long_prompt_factor = \"2\"; };\n",
			"t.conf:1: long_prompt_factor: is a \"string\"; write a number" },
		{ "offline = {\n min_share_percent = 91; };\n",
			"t.conf:2: min_share_percent: 91 is out of range" },
		{ "online = { min_share_percent = 1; };\n", "t.conf:1: min_share_percent: unknown key" },
		{ "prefix = { pinned_percent = 0; };\n", "t.conf:1: pinned_percent: 0 is out of range" },
		{ "tenants = [ 1 ];\n", "t.conf:1: tenants: is an array" },
		{ "tenants = (\n { users = ( 1 ); } );\n", "t.conf:2: tenant name ''" },
		{ "tenants = ( { name = \"uid:5\"; } );\n", "t.conf:1: tenant name 'uid:5'" },
		{ "tenants = ( { name = \"a\"; },\n { name = \"a\"; } );\n",
			"t.conf:2: tenant 'a': named twice" },
		{ "tenants = ( { name = \"a\"; weight = -1.0; } );\n",
			"t.conf:1: weight: -1 is out of range" },
		{ "tenants = ( { name = \"a\"; weight = 0; } );\n", "t.conf:1: weight: 0 is out of range" },
		{ "tenants = ( { name = \"a\"; users = 5; } );\n", "t.conf:1: users: is a whole number" },
		{ "tenants = ( { name = \"a\"; users = ( -1 ); } );\n",
			"t.conf:1: users: -1 is no number of a user" },
		{ "tenants = ( { name = \"a\"; users = ( \"no such user\" ); } );\n",
			"t.conf:1: users: no user 'no such user'" },
		{ "drain_s = ;\n", "t.conf:1: syntax error" },
		{ "log = {\n", "t.conf:" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct error e = { 0 };
		struct conf c;

		assert_int_equal(read_text(&c, cases[i].text, &e), TENON_E_CONFIG);
		if (strncmp(e.text, cases[i].says, strlen(cases[i].says)))
			fail_msg("case %zu: got \"%s\", want \"%s\"", i, e.text, cases[i].says);
		conf_finish(&c);
	}
}

static void command_line_wins(void **state)
{
	struct error e = { 0 };
	struct conf c;

	(void)state;
	assert_int_equal(read_text(&c, "models = ( { name = \"a\"; kv = \"q4_0\"; } );", &e), TENON_OK);
	assert_int_equal(conf_set(&c, "kv", "f32", &e), TENON_OK);
	assert_int_equal(conf_add_model(&c, "b", "/b.gguf", &e), TENON_OK);
	assert_int_equal(conf_set(&c, "log.level", "trace", &e), TENON_OK);
	assert_int_equal(conf_set(&c, "worker.step_timeout_ms", "1500", &e), TENON_OK);
	assert_int_equal(conf_set(&c, "allow_paths", "true", &e), TENON_OK);
	assert_int_equal(c.models[0].kv, KV_F32);
	assert_int_equal(c.models[1].kv, KV_F32);
	assert_int_equal(c.log.level, LOG_TRACE);
	assert_int_equal(c.worker.step_timeout_ms, 1500);
	assert_true(c.allow_paths);
	assert_int_equal(conf_set_default(&c, "backend", "ref", &e), TENON_OK);
	assert_string_equal(c.backend, "ref");
	assert_null(c.models[0].backend);
	assert_int_equal(conf_set(&c, "backend", "cpu=2,ref", &e), TENON_OK);
	assert_string_equal(c.models[0].backend, "cpu=2,ref");
	assert_int_equal(conf_set(&c, "kv", "f17", &e), TENON_E_CONFIG);
	assert_string_equal(e.text, "kv: 'f17' is unknown; write one of f16, f32, q8_0, q4_0");
	assert_int_equal(conf_set(&c, "drain_s", "1x", &e), TENON_E_CONFIG);
	assert_int_equal(conf_set(&c, "nothing", "1", &e), TENON_E_CONFIG);
	assert_int_equal(conf_set(&c, "log.nothing", "1", &e), TENON_E_CONFIG);
	assert_int_equal(conf_set(&c, "drain_s.x", "1", &e), TENON_E_CONFIG);
	assert_int_equal(conf_set(&c, "log", "1", &e), TENON_E_CONFIG);
	assert_int_equal(conf_add_model(&c, "b", "/c.gguf", &e), TENON_E_CONFIG);
	assert_int_equal(conf_add_model(&c, "a/b", "/c.gguf", &e), TENON_E_CONFIG);
	conf_finish(&c);
}

static void tenants_are_who_the_file_says(void **state)
{
	static const char text[] =
		"tenants = ( { name = \"acme\"; users = ( 1000, \"root\" ); weight = 2.5; },\n"
		"            { name = \"batch\"; users = [ 1000, 7 ]; },\n"
		"            { name = \"empty\"; weight = 3; } );\n";
	const struct conf_tenant *t;
	struct error e = { 0 };
	struct conf c;
	char names[64];

	(void)state;
	assert_int_equal(read_text(&c, text, &e), TENON_OK);
	assert_int_equal(c.n_tenants, 3);
	assert_true(c.tenants[0].weight == 2.5 && c.tenants[1].weight == 1 && c.tenants[2].weight == 3);
	assert_ptr_equal(conf_tenant_of(&c, 1000), &c.tenants[0]);
	assert_ptr_equal(conf_tenant_of(&c, 0), &c.tenants[0]);
	assert_ptr_equal(conf_tenant_of(&c, 7), &c.tenants[1]);
	assert_null(conf_tenant_of(&c, 8));
	t = conf_tenant_named(&c, "batchXX", 5, 1000, false);
	assert_ptr_equal(t, &c.tenants[1]);
	assert_null(conf_tenant_named(&c, "batc", 4, 1000, false));
	assert_null(conf_tenant_named(&c, "acme", 4, 7, false));
	assert_null(conf_tenant_named(&c, "empty", 5, 0, false));
	assert_ptr_equal(conf_tenant_named(&c, "empty", 5, 0, true), &c.tenants[2]);
	conf_tenants_allowed(&c, 1000, false, names, sizeof names);
	assert_string_equal(names, "acme, batch");
	conf_tenants_allowed(&c, 8, false, names, sizeof names);
	assert_string_equal(names, "uid:8");
	conf_tenants_allowed(&c, 0, true, names, 8);
	assert_int_equal(strlen(names), 7); /* cut, not overrun */
	conf_finish(&c);
}

static void scheduling_keys_are_read(void **state)
{
	struct error e = { 0 };
	struct conf c;

	(void)state;
	assert_int_equal(
		read_text(&c,
			"scheduler = { max_step_ms = 40; long_prompt_factor = 3; calibrate = false; };\n"
			"online = { tpot_ms = 30; max_waiting_mib = 2; };\n"
			"offline = { max_waiting = 7; max_waiting_per_tenant = 2; min_share_percent = 20; };\n"
			"prefix = { reuse = false; host_mib = 3; disk_mib = 4; disk_dir = \"/x\"; };\n"
			"memory = { limit_mib = 100; };\n",
			&e),
		TENON_OK);
	assert_int_equal(c.scheduler.max_step_ms, 40);
	assert_true(c.scheduler.long_prompt_factor == 3);
	assert_false(c.scheduler.calibrate);
	assert_int_equal(c.classes[WIRE_ONLINE].tpot_ms, 30);
	assert_int_equal(c.classes[WIRE_ONLINE].max_waiting_bytes, 2 << 20);
	assert_int_equal(c.classes[WIRE_ONLINE].max_waiting, 1024);
	assert_int_equal(c.classes[WIRE_OFFLINE].max_waiting, 7);
	assert_int_equal(c.classes[WIRE_OFFLINE].max_waiting_tenant, 2);
	assert_int_equal(c.offline_min_share_percent, 20);
	assert_false(c.prefix.reuse);
	assert_int_equal(c.prefix.host_bytes, 3 << 20);
	assert_int_equal(c.prefix.disk_bytes, 4 << 20);
	assert_int_equal(c.memory.limit_bytes, 100 << 20);
	assert_int_equal(conf_set(&c, "scheduler.long_prompt_factor", "1.5", &e), TENON_OK);
	assert_true(c.scheduler.long_prompt_factor == 1.5);
	assert_int_equal(conf_set(&c, "scheduler.long_prompt_factor", "0", &e), TENON_E_CONFIG);
	assert_int_equal(conf_set(&c, "prefix.host_mib", "9", &e), TENON_OK);
	assert_int_equal(c.prefix.host_bytes, 9 << 20);
	assert_int_equal(conf_complete(&c, &e), TENON_OK);
	assert_string_equal(c.prefix.disk_dir, "/x");
	conf_finish(&c);
}

static void fields_are_checked_together(void **state)
{
	static const char *const bad[] = {
		"limits = { ring_kib = 100; };",
		"limits = { ring_kib = 2048; ring_max_kib = 1024; };",
		"default_model = \"../../x\";",
		"worker = { backoff_ms = 500; backoff_max_ms = 100; };",
		"prefix = { disk_dir = \"kv\"; };",
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(bad); i++) {
		struct error e = { 0 };
		struct conf c;

		assert_int_equal(read_text(&c, bad[i], &e), TENON_OK);
		assert_int_equal(conf_complete(&c, &e), TENON_E_CONFIG);
		conf_finish(&c);
	}
}

/* Keys of an entry of a list are described in words. */
static bool in_entry(const char *key) { return !strncmp(key, "models.", 7) || !strncmp(key, "tenants.", 8); }

/* The shipped file, with every "#key = value;" made a setting: it parses, names every key, and says nothing but the
 * defaults. */
static void documented_file_is_complete(void **state)
{
	struct buf text, keys;
	struct error e = { 0 };
	struct conf c, fresh;
	char line[512];
	FILE *f = fopen(unit_src("etc/tenond.conf"), "r");

	(void)state;
	assert_non_null(f);
	buf_init(&text, MEM_DAEMON, 0);
	buf_init(&keys, MEM_DAEMON, 0);
	while (fgets(line, sizeof line, f)) {
		char *s = line + strspn(line, "\t");

		(void)buf_puts(&text, s[0] == '#' && s[1] != ' ' && s[1] != '\n' ? s + 1 : s);
	}
	(void)fclose(f);
	assert_true(conf_print_keys(&keys));
	assert_int_equal(read_text(&c, text.data, &e), TENON_OK);
	assert_int_equal(conf_init(&fresh, &e), TENON_OK);
	for (char *save = NULL, *k = strtok_r(keys.data, "\n", &save); k; k = strtok_r(NULL, "\n", &save)) {
		char want[128];

		(void)snprintf(want, sizeof want,
			in_entry(k) ? "%s" : "%s = ", strchr(k, '.') ? strchr(k, '.') + 1 : k);
		if (!strstr(text.data, want))
			fail_msg("etc/tenond.conf: %s is not documented", k);
	}
	assert_memory_equal(&c.limits, &fresh.limits, sizeof c.limits);
	assert_memory_equal(&c.worker, &fresh.worker, sizeof c.worker);
	assert_memory_equal(&c.slow_reader, &fresh.slow_reader, sizeof c.slow_reader);
	assert_memory_equal(&c.scheduler, &fresh.scheduler, sizeof c.scheduler);
	assert_memory_equal(&c.classes, &fresh.classes, sizeof c.classes);
	assert_memory_equal(&c.memory, &fresh.memory, sizeof c.memory);
	assert_memory_equal(&c.prefix, &fresh.prefix,
		offsetof(struct conf, prefix.disk_dir) - offsetof(struct conf, prefix));
	assert_int_equal(c.log.level, fresh.log.level);
	assert_int_equal(c.drain_s, fresh.drain_s);
	assert_int_equal(c.model_defaults.idle_unload_s, fresh.model_defaults.idle_unload_s);
	conf_finish(&fresh);
	conf_finish(&c);
	buf_finish(&keys);
	buf_finish(&text);
}

/* tenond.conf(5) names every key. */
static void manual_is_complete(void **state)
{
	static char page[64 << 10];
	struct buf keys;
	FILE *f = fopen(unit_src("man/tenond.conf.5.scd"), "r");

	(void)state;
	assert_non_null(f);
	page[fread(page, 1, sizeof page - 1, f)] = 0;
	(void)fclose(f);
	buf_init(&keys, MEM_DAEMON, 0);
	assert_true(conf_print_keys(&keys));
	for (char *save = NULL, *k = strtok_r(keys.data, "\n", &save); k; k = strtok_r(NULL, "\n", &save)) {
		char want[128];

		(void)snprintf(want, sizeof want, "*%s*", in_entry(k) ? strchr(k, '.') + 1 : k);
		if (!strstr(page, want))
			fail_msg("man/tenond.conf.5.scd: %s is missing", k);
	}
	buf_finish(&keys);
}

static void files_are_checked(void **state)
{
	char path[] = "/tmp/tenon-conf-XXXXXX", big[64];
	struct error e = { 0 };
	struct conf c;
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "drain_s = 5;\nx = 1;\n", 20), 20);
	assert_int_equal(conf_init(&c, &e), TENON_OK);
	assert_int_equal(conf_read_path(&c, path, &e), TENON_E_CONFIG);
	(void)snprintf(big, sizeof big, "%s:2: x: unknown key", path);
	assert_int_equal(strncmp(e.text, big, strlen(big)), 0);
	assert_int_equal(ftruncate(fd, 2 << 20), 0);
	assert_int_equal(conf_read_path(&c, path, &e), TENON_E_CONFIG);
	assert_int_equal(conf_read_path(&c, "/tmp", &e), TENON_E_CONFIG);
	assert_int_equal(conf_read_path(&c, "/nonexistent/x", &e), TENON_E_IO);
	conf_finish(&c);
	(void)close(fd);
	(void)unlink(path);
}

/* Every allocation of ours fails once: an error, no leak (sanitizer builds), no crash. */
static void survives_no_memory(void **state)
{
	static const char text[] =
		"plugins = { cpu = { a = 1; }; }; plugin_dirs = [ \"x\" ]; models = ( { name = \"m\"; } );";
	int rc = TENON_E_NOMEM;

	(void)state;
	for (uint64_t n = 1; rc && n < 200; n++) {
		struct error e = { 0 };
		struct conf c;

		mem_fail_at(n);
		rc = conf_init(&c, &e);
		if (!rc) {
			rc = conf_read_text(&c, text, "t", &e);
			conf_finish(&c);
		}
		mem_fail_at(0);
		assert_true(rc == TENON_OK || rc == TENON_E_NOMEM);
	}
	assert_int_equal(rc, TENON_OK);
	assert_int_equal(mem_area_bytes(MEM_DAEMON), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_every_type),
		cmocka_unit_test(mistakes_name_file_and_line),
		cmocka_unit_test(command_line_wins),
		cmocka_unit_test(tenants_are_who_the_file_says),
		cmocka_unit_test(scheduling_keys_are_read),
		cmocka_unit_test(fields_are_checked_together),
		cmocka_unit_test(documented_file_is_complete),
		cmocka_unit_test(manual_is_complete),
		cmocka_unit_test(files_are_checked),
		cmocka_unit_test(survives_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

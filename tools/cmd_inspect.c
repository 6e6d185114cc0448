/* SPDX-License-Identifier: Apache-2.0
 * tenon inspect: what is in a model file and what running it would take: metadata, architecture, tensors by type,
 * memory at a context length. Nothing is loaded. A file that this build cannot run is still described; the reason
 * stands in place of the memory.
 */
#include "tools/commands.h"
#include "tools/options.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_ELEMENTS = 4, TYPES = 64, MAX_SHOWN = 72 };

struct inspect {
	struct open_options open;
	uint64_t ctx;
	bool json, tensors;
};

static int help(void)
{
	(void)fputs(
		"usage: tenon inspect -m MODEL [OPTION]...\n"
		"       tenon inspect graph -m MODEL [OPTION]...\n\n"
		"Metadata, architecture, tensors by type, and the memory a model takes at a context length.\n\n" OPEN_MODEL_HELP
		"      --ctx N              context length in tokens (default: the model's own, at most 8192)\n"
		"      --tensors            list every tensor\n"
		"      --json               one JSON object\n\n"
		"examples:\n"
		"  tenon inspect -m smollm2-135m\n"
		"  tenon inspect -m model.gguf --ctx 32768 --kv q8_0 --json\n"
		"  tenon inspect graph --help\n",
		stdout);
	return CLI_OK;
}

/* ---- metadata -------------------------------------------------------------------------------------------------- */

/* Text of the file as it is, or in hexadecimal where it is not UTF-8. */
static json_t *text_json(struct gguf_str s)
{
	struct buf b;
	json_t *j;

	if (utf8_valid(s.s, s.len, NULL))
		return json_stringn(s.s, s.len);
	buf_init(&b, MEM_TOOL, 0);
	(void)cli_hex_encode(s.s, s.len, &b);
	j = json_pack("{s:s}", "hex", b.data ? b.data : "");
	buf_finish(&b);
	return j;
}

static const char *kind_name(enum gguf_kind k)
{
	static const char *const names[GGUF_N_KINDS] = { "u8", "i8", "u16", "i16", "u32", "i32", "f32",
		"bool", "string", "array", "u64", "i64", "f64" };

	return (unsigned)k < GGUF_N_KINDS ? names[k] : "?";
}

static bool is_real(enum gguf_kind k) { return k == GGUF_F32 || k == GGUF_F64; }

static json_t *element_json(const struct gguf_array *a, uint64_t i)
{
	if (a->kind == GGUF_STRING)
		return text_json(a->strs[i]);
	if (a->kind == GGUF_BOOL)
		return json_boolean(a->data[i]);
	return is_real(a->kind) ? json_real(gguf_array_f64(a, i)) : json_integer(gguf_array_i64(a, i));
}

/* Vocabularies are long: kind, length and the first elements. */
static json_t *array_json(const struct gguf_array *a)
{
	json_t *first = json_array();

	for (uint64_t i = 0; i < a->n && i < FIRST_ELEMENTS; i++)
		(void)json_array_append_new(first, element_json(a, i));
	return json_pack(
		"{s:s, s:I, s:o}", "array_of", kind_name(a->kind), "n", (json_int_t)a->n, "first", first);
}

static json_t *value_json(const struct gguf *g, const char *key, enum gguf_kind kind)
{
	struct gguf_str s = { "", 0 };
	struct gguf_array a = { .n = 0 };
	uint64_t u = 0;
	double d = 0;
	bool b = false;

	switch (kind) {
	case GGUF_STRING:
		return gguf_get_str(g, key, &s, NULL) ? json_null() : text_json(s);
	case GGUF_ARRAY:
		return gguf_get_array(g, key, &a, NULL) ? json_null() : array_json(&a);
	case GGUF_BOOL:
		return gguf_get_bool(g, key, &b, NULL) ? json_null() : json_boolean(b);
	default:
		if (!is_real(kind) && !gguf_get_u64(g, key, &u, NULL))
			return json_integer((json_int_t)u);
		return gguf_get_f64(g, key, &d, NULL) ? json_null() : json_real(d);
	}
}

static json_t *metadata_json(const struct gguf *g)
{
	json_t *all = json_object();
	struct buf key;

	buf_init(&key, MEM_TOOL, 0);
	for (size_t i = 0; i < gguf_n_keys(g); i++) {
		enum gguf_kind kind;
		struct gguf_str name = gguf_key_at(g, i, &kind);

		buf_clear(&key);
		if (utf8_valid(name.s, name.len, NULL) && !memchr(name.s, 0, name.len) &&
			buf_append(&key, name.s, name.len))
			(void)json_object_set_new(
				all, key.data ? key.data : "", value_json(g, key.data, kind));
	}
	buf_finish(&key);
	return all;
}

/* ---- tensors ---------------------------------------------------------------------------------------------------- */

static const char *type_name(uint32_t type)
{
	const char *name = gguf_type_name(type);

	return name ? name : "?";
}

static json_t *types_json(const struct gguf *g)
{
	json_t *types = json_array();

	for (uint32_t type = 0; type < TYPES; type++) {
		uint64_t n = 0, bytes = 0, params = 0;

		for (size_t i = 0; i < gguf_n_tensors(g); i++) {
			const struct gguf_tensor *t = gguf_tensor_at(g, i);

			if (t->type != type)
				continue;
			n++;
			bytes += t->bytes;
			params += t->dim[0] * t->dim[1] * t->dim[2] * t->dim[3];
		}
		if (n)
			(void)json_array_append_new(types,
				json_pack("{s:s, s:I, s:I, s:I}", "type", type_name(type), "n", (json_int_t)n,
					"bytes", (json_int_t)bytes, "parameters", (json_int_t)params));
	}
	return types;
}

static json_t *tensor_list_json(const struct gguf *g)
{
	json_t *list = json_array();

	for (size_t i = 0; i < gguf_n_tensors(g); i++) {
		const struct gguf_tensor *t = gguf_tensor_at(g, i);
		json_t *shape = json_array();

		for (uint32_t d = 0; d < t->rank; d++)
			(void)json_array_append_new(shape, json_integer((json_int_t)t->dim[d]));
		(void)json_array_append_new(list,
			json_pack("{s:o, s:s, s:o, s:I, s:I}", "name", text_json(t->name), "type",
				type_name(t->type), "shape", shape, "offset", (json_int_t)t->offset, "bytes",
				(json_int_t)t->bytes));
	}
	return list;
}

/* ---- what running it takes ------------------------------------------------------------------------------------------ */

static json_t *architecture_json(const struct model_info *i)
{
	json_t *a = json_pack("{s:s, s:I, s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "name", i->arch, "parameters",
		(json_int_t)i->n_params, "layers", (int)i->n_layers, "width", (int)i->d_model, "heads",
		(int)i->n_heads, "kv_heads", (int)i->n_kv_heads, "head_dim", (int)i->head_dim, "vocabulary",
		(int)i->n_vocab, "context", (int)i->n_ctx_train);

	if (i->n_experts) {
		(void)json_object_set_new(a, "experts", json_integer(i->n_experts));
		(void)json_object_set_new(a, "experts_used", json_integer(i->n_experts_used));
		(void)json_object_set_new(
			a, "parameters_active", json_integer((json_int_t)i->n_params_active));
	}
	return a;
}

static uint64_t total_bytes(const struct model_info *i)
{
	return i->weights_mapped_bytes + i->weights_own_bytes + i->workspace_bytes + i->kv_bytes;
}

static json_t *memory_json(const struct opened *m)
{
	const struct model_info *i = model_info(m->model);

	return json_pack("{s:s, s:i, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "backend", i->backend,
		"context", (int)i->n_ctx, "precision", i->precision == TNP_EXACT ? "exact" : "fast",
		"kv_type", type_name(i->kv_type), "weights_mapped_bytes", (json_int_t)i->weights_mapped_bytes,
		"weights_own_bytes", (json_int_t)i->weights_own_bytes, "workspace_bytes",
		(json_int_t)i->workspace_bytes, "kv_bytes", (json_int_t)i->kv_bytes, "open_peak_bytes",
		(json_int_t)i->open_peak_bytes, "total_bytes", (json_int_t)total_bytes(i));
}

/* The file is described in any case; what keeps it from running goes into "error". */
static json_t *report_make(
	const struct inspect *p, const struct gguf *g, const struct opened *m, const struct error *why)
{
	json_t *r = json_object(), *tensors;
	uint64_t bytes = 0;
	char digest[65] = "";

	(void)gguf_map(g, &bytes);
	for (int i = 0; i < 32; i++)
		(void)snprintf(digest + 2 * i, 3, "%02x", gguf_digest(g)[i]);
	(void)json_object_set_new(r, "file",
		json_pack("{s:s, s:I, s:i, s:s}", "path", gguf_path(g), "bytes", (json_int_t)bytes,
			"gguf_version", (int)gguf_version(g), "digest", digest));
	(void)json_object_set_new(r, "metadata", metadata_json(g));
	tensors = json_pack("{s:I, s:o}", "n", (json_int_t)gguf_n_tensors(g), "by_type", types_json(g));
	if (p->tensors)
		(void)json_object_set_new(tensors, "list", tensor_list_json(g));
	(void)json_object_set_new(r, "tensors", tensors);
	if (m->model) {
		(void)json_object_set_new(r, "architecture", architecture_json(model_info(m->model)));
		(void)json_object_set_new(r, "chat_template", json_boolean(model_template(m->model)));
		(void)json_object_set_new(r, "memory", memory_json(m));
	} else {
		(void)json_object_set_new(r, "error", cli_json_error(why));
	}
	return r;
}

/* ---- for people -------------------------------------------------------------------------------------------------------- */

static void print_bytes(const char *what, const json_t *o, const char *key)
{
	(void)printf("  %-28s %10.1f MiB\n", what,
		(double)json_integer_value(json_object_get(o, key)) / (1 << 20));
}

/* One line, cut where it is long. */
static void print_value(const char *key, const json_t *v)
{
	char *text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(7));
	size_t len = text ? strlen(text) : 0, cut = MIN_OF(len, (size_t)MAX_SHOWN);

	while (cut < len && cut > 0 && ((unsigned char)text[cut] & 0xc0) == 0x80)
		cut--;
	(void)printf("  %-44s %.*s%s\n", key, (int)cut, text ? text : "", cut < len ? "..." : "");
	free(text);
}

static void print_tensors(const json_t *tensors)
{
	const json_t *types = json_object_get(tensors, "by_type"), *list = json_object_get(tensors, "list");

	(void)printf("tensors: %lld\n", (long long)json_integer_value(json_object_get(tensors, "n")));
	for (size_t i = 0; i < json_array_size(types); i++) {
		const json_t *t = json_array_get(types, i);

		(void)printf("  %-8s %6lld tensors %14lld parameters %10.1f MiB\n",
			json_string_value(json_object_get(t, "type")),
			(long long)json_integer_value(json_object_get(t, "n")),
			(long long)json_integer_value(json_object_get(t, "parameters")),
			(double)json_integer_value(json_object_get(t, "bytes")) / (1 << 20));
	}
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *t = json_array_get(list, i), *name = json_object_get(t, "name");
		char *shape = json_dumps(json_object_get(t, "shape"), 0);

		(void)printf("  %-40s %-8s %s\n",
			json_is_string(name) ? json_string_value(name) : "(not text)",
			json_string_value(json_object_get(t, "type")), shape ? shape : "");
		free(shape);
	}
}

static void print_memory(const json_t *r)
{
	const json_t *m = json_object_get(r, "memory"), *e = json_object_get(r, "error");

	if (!m) {
		(void)printf("cannot be run: %s\n", json_string_value(json_object_get(e, "message")));
		return;
	}
	(void)printf("memory at a context of %lld tokens (%s, keys and values as %s):\n",
		(long long)json_integer_value(json_object_get(m, "context")),
		json_string_value(json_object_get(m, "backend")),
		json_string_value(json_object_get(m, "kv_type")));
	print_bytes("weights, used in place", m, "weights_mapped_bytes");
	print_bytes("weights, the backend's own", m, "weights_own_bytes");
	print_bytes("workspace", m, "workspace_bytes");
	print_bytes("keys and values", m, "kv_bytes");
	print_bytes("in all", m, "total_bytes");
}

static void print_report(const json_t *r)
{
	const json_t *file = json_object_get(r, "file");
	json_t *v, *arch = json_object_get(r, "architecture");
	const char *key;

	(void)printf("%s: GGUF %lld, %.1f MiB\n", json_string_value(json_object_get(file, "path")),
		(long long)json_integer_value(json_object_get(file, "gguf_version")),
		(double)json_integer_value(json_object_get(file, "bytes")) / (1 << 20));
	(void)puts("metadata:");
	json_object_foreach(json_object_get(r, "metadata"), key, v) print_value(key, v);
	if (arch)
		(void)puts("architecture:");
	json_object_foreach(arch, key, v) print_value(key, v);
	print_tensors(json_object_get(r, "tensors"));
	print_memory(r);
}

/* ---- the command --------------------------------------------------------------------------------------------------------- */

static int parse(int argc, char **argv, struct inspect *p)
{
	const struct option_row rows[] = {
		{ .name = "json", .flag = &p->json },
		{ .name = "ctx", .number = &p->ctx, .lo = 1, .hi = UINT32_MAX },
		{ .name = "tensors", .flag = &p->tensors },
	};

	return options_parse("tenon inspect", argc, argv, help, &p->open, rows, COUNT_OF(rows));
}

int cmd_inspect(int argc, char **argv)
{
	struct inspect p = { 0 };
	struct opened m = { 0 };
	struct gguf *g = NULL;
	struct error e = { 0 }, why = { 0 };
	char path[4096];
	json_t *report;
	int status;

	if (argc > 1 && !strcmp(argv[1], "graph"))
		return cmd_inspect_graph(argc - 1, argv + 1);
	status = parse(argc, argv, &p);
	if (status)
		return status < 0 ? CLI_OK : status;
	if (cli_model_path(p.open.model, path, sizeof path, &e) || gguf_open(path, &g, &e))
		return cli_fail_error("inspect", &e);
	p.open.o.n_ctx = (uint32_t)p.ctx;
	p.open.o.measure_only = true;
	if (open_model(&p.open, &m, &why) && p.ctx && why.code == TENON_E_TOO_LONG)
		status = cli_fail_error("inspect", &why);
	report = status ? NULL : report_make(&p, g, &m, &why);
	if (report && p.json)
		cli_print_json(json_incref(report));
	else if (report)
		print_report(report);
	json_decref(report);
	open_model_close(&m);
	gguf_close(g);
	return status;
}

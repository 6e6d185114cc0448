/* SPDX-License-Identifier: Apache-2.0
 * Every recorded case of every vocabulary that is at hand: ids, ids with special tokens parsed, decoding, refusal of
 * bad UTF-8. gpt-2 and bert-bge lie in the tree, the others are used where a models folder has them.
 */
#include "tests/unit/unit.h"
#include "base/base.h"
#include "engine/tokenizer.h"
#include "tests/unit/gz.h"
#include <jansson.h>
#include <string.h>
#include <unistd.h>

struct family {
	const char *name;  /* of the expected file            */
	const char *model; /* file in the models folder       */
};

struct loaded {
	struct buf bytes; /* of a vocabulary in the tree */
	struct gguf *file;
	struct tokenizer *tok;
};

static bool models_path(const char *model, char *path, size_t room)
{
	const char *own = getenv("TENON_MODELS"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");

	if (own && *own)
		(void)snprintf(path, room, "%s/%s", own, model);
	else if (cache && *cache)
		(void)snprintf(path, room, "%s/tenon/models/%s", cache, model);
	else
		(void)snprintf(path, room, "%s/.cache/tenon/models/%s", home ? home : "", model);
	return !access(path, R_OK);
}

/* False if the vocabulary is nowhere. */
static bool load(struct loaded *l, const struct family *f)
{
	char rel[200], path[4096];
	struct error e = { 0 };

	*l = (struct loaded){ 0 };
	buf_init(&l->bytes, MEM_TOOL, 0);
	(void)snprintf(rel, sizeof rel, "tests/data/tokenizer/ggml-vocab-%s.gguf.gz", f->name);
	if (!access(unit_src(rel), R_OK)) {
		assert_true(gz_read(unit_src(rel), &l->bytes));
		assert_int_equal(gguf_open_memory(l->bytes.data, l->bytes.len, &l->file, &e), TENON_OK);
	} else if (!models_path(f->model, path, sizeof path)) {
		return false;
	} else if (gguf_open(path, &l->file, &e)) {
		fail_msg("%s", e.text);
	}
	if (tokenizer_create(l->file, &l->tok, &e))
		fail_msg("%s: %s", f->name, e.text);
	return true;
}

static void unload(struct loaded *l)
{
	tokenizer_destroy(l->tok);
	gguf_close(l->file);
	buf_finish(&l->bytes);
}

/* The lines of a data file as objects. */
static json_t *read_lines(const char *rel)
{
	json_t *all = json_array();
	struct buf b;

	buf_init(&b, MEM_TOOL, 0);
	assert_true(gz_read(unit_src(rel), &b));
	for (char *line = strtok(b.data, "\n"); line; line = strtok(NULL, "\n")) {
		json_t *o = json_loads(line, JSON_ALLOW_NUL, NULL);

		assert_true(json_is_object(o));
		(void)json_array_append_new(all, o);
	}
	buf_finish(&b);
	return all;
}

static void append_hex(const char *hex, struct buf *out)
{
	unsigned byte;

	for (; *hex; hex += 2) {
		assert_int_equal(sscanf(hex, "%2x", &byte), 1);
		assert_true(buf_putc(out, (char)byte));
	}
}

static void input_of(const json_t *c, struct buf *out)
{
	const json_t *text = json_object_get(c, "text");

	buf_clear(out);
	assert_true(buf_puts(out, ""));
	if (text)
		assert_true(buf_append(out, json_string_value(text), json_string_length(text)));
	else
		append_hex(json_string_value(json_object_get(c, "bytes_hex")), out);
}

static bool same_ids(const struct tokens *got, const json_t *want)
{
	if (got->n != json_array_size(want))
		return false;
	for (size_t i = 0; i < got->n; i++)
		if (got->id[i] != json_integer_value(json_array_get(want, i)))
			return false;
	return true;
}

static const char *id_of(const json_t *o) { return json_string_value(json_object_get(o, "id")); }

static int encoded_wrongly(const struct tokenizer *t, const struct buf *in, bool special, const json_t *want)
{
	struct tokens ids = { 0 };
	struct error e = { 0 };
	int rc = tokenizer_encode(t, in->data, in->len, special, &ids, &e);
	bool right = !rc && same_ids(&ids, want);

	tokens_finish(&ids);
	return !right;
}

static int refused_wrongly(const struct tokenizer *t, const struct buf *in)
{
	struct tokens ids = { 0 };
	struct error e = { 0 };
	int rc = tokenizer_encode(t, in->data, in->len, false, &ids, &e);
	bool right = rc == TENON_E_UTF8 && !ids.n && strstr(e.text, "byte");

	tokens_finish(&ids);
	return !right;
}

/* Decoding in one go, and piece by piece, which is how answers are streamed. */
static int decoded_wrongly(
	const struct tokenizer *t, const json_t *ids_json, const json_t *hex, const struct buf *in)
{
	size_t n = json_array_size(ids_json);
	int32_t *ids = mem_zalloc(MEM_TOOL, n + 1, sizeof *ids);
	struct buf want, got, pieces;
	bool right;

	buf_init(&want, MEM_TOOL, 0);
	buf_init(&got, MEM_TOOL, 0);
	buf_init(&pieces, MEM_TOOL, 0);
	if (hex)
		append_hex(json_string_value(hex), &want);
	else
		assert_true(buf_append(&want, in->data, in->len));
	for (size_t i = 0; i < n; i++) {
		ids[i] = (int32_t)json_integer_value(json_array_get(ids_json, i));
		assert_int_equal(tokenizer_piece(t, ids[i], i == 0, true, &pieces, NULL), TENON_OK);
	}
	right = !tokenizer_decode(t, ids, n, &got, NULL) && got.len == want.len &&
		(!got.len || !memcmp(got.data, want.data, got.len)) && pieces.len == got.len &&
		(!got.len || !memcmp(pieces.data, got.data, got.len));
	mem_free(ids);
	buf_finish(&want);
	buf_finish(&got);
	buf_finish(&pieces);
	return !right;
}

static int case_wrong(const struct tokenizer *t, const json_t *c, const json_t *want, struct buf *in)
{
	const json_t *ids = json_object_get(want, "ids"),
		     *special = json_object_get(want, "ids_parse_special");

	assert_string_equal(id_of(c), id_of(want));
	input_of(c, in);
	if (json_is_true(json_object_get(want, "invalid")))
		return refused_wrongly(t, in);
	if (json_is_true(json_object_get(want, "soft")))
		return 0;
	return encoded_wrongly(t, in, false, ids) || encoded_wrongly(t, in, true, special ? special : ids) ||
		decoded_wrongly(t, ids, json_object_get(want, "decoded_hex"), in);
}

static int count_wrong(const struct tokenizer *t, const char *name)
{
	json_t *cases = read_lines("tests/data/tokenizer/cases.jsonl.gz"), *want;
	char rel[200];
	struct buf in;
	int wrong = 0;

	(void)snprintf(rel, sizeof rel, "tests/data/tokenizer/%s.expected.jsonl.gz", name);
	want = read_lines(rel);
	assert_int_equal(json_array_size(want), json_array_size(cases));
	assert_true(json_array_size(cases) > 1100);
	buf_init(&in, MEM_TOOL, 0);
	for (size_t i = 0; i < json_array_size(cases); i++)
		if (case_wrong(t, json_array_get(cases, i), json_array_get(want, i), &in)) {
			print_error("%s: %s\n", name, id_of(json_array_get(cases, i)));
			wrong++;
		}
	buf_finish(&in);
	json_decref(cases);
	json_decref(want);
	return wrong;
}

static int count_wrong_llamacpp(const struct tokenizer *t, const char *name)
{
	json_t *rows;
	char rel[200];
	struct buf in;
	int wrong = 0;

	(void)snprintf(rel, sizeof rel, "tests/data/tokenizer/%s.llamacpp.jsonl.gz", name);
	if (access(unit_src(rel), R_OK))
		return 0;
	rows = read_lines(rel);
	buf_init(&in, MEM_TOOL, 0);
	for (size_t i = 0; i < json_array_size(rows); i++) {
		const json_t *row = json_array_get(rows, i);

		input_of(row, &in);
		if (encoded_wrongly(t, &in, false, json_object_get(row, "ids"))) {
			print_error("%s: %s\n", name, id_of(row));
			wrong++;
		}
	}
	buf_finish(&in);
	json_decref(rows);
	return wrong;
}

static void all_cases(void **st)
{
	const struct family *f = *st;
	struct loaded l;
	int wrong;

	if (!load(&l, f)) {
		unload(&l);
		skip();
	}
	wrong = count_wrong(l.tok, f->name) + count_wrong_llamacpp(l.tok, f->name);
	unload(&l);
	assert_int_equal(wrong, 0);
}

int main(void)
{
	static struct family f[] = {
		{ "gpt-2", "vocab/ggml-vocab-gpt-2.gguf" },
		{ "bert-bge", "vocab/ggml-vocab-bert-bge.gguf" },
		{ "smollm2-135m", "smollm2-135m.gguf" },
		{ "gemma3-270m", "gemma3-270m.gguf" },
		{ "bert-bge", "minilm-l6-v2.gguf" },
		{ "llama-bpe", "vocab/ggml-vocab-llama-bpe.gguf" },
		{ "llama-spm", "vocab/ggml-vocab-llama-spm.gguf" },
		{ "qwen2", "vocab/ggml-vocab-qwen2.gguf" },
		{ "phi-3", "vocab/ggml-vocab-phi-3.gguf" },
		{ "deepseek-llm", "vocab/ggml-vocab-deepseek-llm.gguf" },
		{ "falcon", "vocab/ggml-vocab-falcon.gguf" },
		{ "starcoder", "vocab/ggml-vocab-starcoder.gguf" },
		{ "gemma-4", "vocab/ggml-vocab-gemma-4.gguf" },
	};
	struct CMUnitTest tests[COUNT_OF(f)];

	for (size_t i = 0; i < COUNT_OF(f); i++)
		tests[i] = (struct CMUnitTest){
			.name = f[i].model, .test_func = all_cases, .initial_state = &f[i]
		};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

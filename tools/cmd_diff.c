/* SPDX-License-Identifier: Apache-2.0
 * tenon diff: the same tokens computed twice (two backends, precisions, types of keys and values, weight files) and where
 * the two part. Works in its own process.
 */
#include "tools/commands.h"
#include "tools/diff.h"
#include "tools/session.h"
#include "tools/text.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	OPT_JSON = 0x300,
	OPT_A,
	OPT_B,
	OPT_TEXT,
	OPT_IDS,
	OPT_TOKENS,
	OPT_GREEDY,
	TOKENS = 256,
	TEXTS_TOKENS = 4096, /* of an encoder's texts */
	GREEDY = 32,
	SHOWN = 12
};

struct side_options {
	struct open_options open;
	char *spec; /* copy that `open` points into */
};

struct args {
	const char *model[2];
	const char *spec[2], *file, *text, *ids;
	uint64_t tokens, greedy, n_models;
	bool json;
	struct side_options side[2];
	struct diff d;
	int32_t *id; /* [n] */
	uint32_t n;
	struct texts texts; /* encoders, in place of id */
};

static int help(void)
{
	(void)fputs(
		"usage: tenon diff -m MODEL [-m MODEL] -f TEXT|--text TEXT|--ids N,N,... [--a SPEC] [--b SPEC] [OPTION]...\n\n"
		"Computes the same tokens in two ways and shows the error behind each part of each layer, worst first, and what it\n"
		"does to the scores: mean KL divergence, how often the best token is the same, the largest margin that was\n"
		"overturned, and where greedy output parts. Of an encoder each line is a text; it shows the cosine of the two\n"
		"embeddings. a is the reference.\n\n"
		"  -m, --model MODEL        a GGUF file or a name that scripts/fetch-model knows; a second one is for b\n"
		"      --a SPEC, --b SPEC   KEY=VALUE,... of backend, precision, kv, isa, passes, threads: as --backend and so on elsewhere.\n"
		"                           Precision is exact for a; for b it is fast, with a second model exact\n"
		"  -f, --file TEXT          a file of UTF-8 text; - is standard input\n"
		"      --text TEXT          the text itself\n"
		"      --ids N,N,...        token ids\n"
		"      --tokens N           at most so many tokens of it (default 256; of an encoder 4096)\n"
		"      --greedy N           then let both go on for at most N tokens, until they part (default 32)\n"
		"      --json               one JSON object\n\n"
		"examples:\n"
		"  tenon diff -m smollm2-135m --text 'The sky is blue because' --a backend=ref --b kv=q8_0\n"
		"  tenon diff -m smollm2-135m -f book.txt --b precision=exact,passes=-fuse_qkv,-fuse_glu\n"
		"  tenon diff -m model-f16.gguf -m model-q4.gguf -f book.txt --json\n",
		stdout);
	return CLI_OK;
}

/* ---- options ---------------------------------------------------------------------------------------------------------- */

/* The option whose KEY= stands here, and the value behind it; 0: none. */
static int key_at(const char *s, const char **value)
{
	static const struct {
		const char *key;
		int option;
	} keys[] = { { "backend=", OPT_BACKEND }, { "precision=", OPT_PRECISION }, { "kv=", OPT_KV },
		{ "isa=", OPT_ISA }, { "passes=", OPT_PASSES }, { "threads=", OPT_THREADS } };

	for (size_t i = 0; i < COUNT_OF(keys); i++)
		if (!strncmp(s, keys[i].key, strlen(keys[i].key))) {
			*value = s + strlen(keys[i].key);
			return keys[i].option;
		}
	return 0;
}

static bool take_pair(struct open_options *o, char *pair)
{
	const char *value;
	int option = key_at(pair, &value);

	if (option)
		return open_model_option("tenon diff", option, value, o) > 0;
	(void)cli_usage("tenon diff",
		"--a, --b: '%.64s' is not KEY=VALUE with backend, precision, kv, isa, passes or threads",
		pair);
	return false;
}

/* A value may be a list with commas of its own: what is no KEY= behind a comma goes on with it. */
static bool take_spec(struct side_options *s, const char *spec)
{
	const char *value;
	bool ok = true;

	s->spec = mem_strdup(MEM_TOOL, spec ? spec : "");
	if (!s->spec)
		return false;
	for (char *pair = s->spec, *next; pair && *pair && ok; pair = next) {
		next = pair + strcspn(pair, ",");
		while (*next && !key_at(next + 1, &value))
			next += 1 + strcspn(next + 1, ",");
		next = *next ? next : NULL;
		if (next)
			*next++ = 0;
		ok = take_pair(&s->open, pair);
	}
	return ok;
}

static bool take_option(struct args *a, int c, const char *arg)
{
	const char *cmd = "tenon diff";

	switch (c) {
	case 'm':
		if (a->n_models == 2)
			(void)cli_usage(cmd, "-m: more than two models");
		else
			a->model[a->n_models++] = arg;
		return a->model[a->n_models - 1] == arg;
	case OPT_A:
	case OPT_B:
		a->spec[c - OPT_A] = arg;
		return true;
	case 'f':
		a->file = arg;
		return true;
	case OPT_TEXT:
		a->text = arg;
		return true;
	case OPT_IDS:
		a->ids = arg;
		return true;
	case OPT_TOKENS:
		return cli_parse_u64(cmd, "--tokens", arg, 1, INT32_MAX, &a->tokens);
	case OPT_GREEDY:
		return cli_parse_u64(cmd, "--greedy", arg, 0, INT32_MAX, &a->greedy);
	default:
		return a->json = true;
	}
}

static bool take_sides(struct args *a)
{
	for (int i = 0; i < 2; i++) {
		struct open_options *o = &a->side[i].open;

		if (!take_spec(&a->side[i], a->spec[i]))
			return false;
		o->model = a->model[i] ? a->model[i] : a->model[0];
		if (!o->precision)
			o->precision = i && a->n_models < 2 ? "fast" : "exact";
		o->o.taps = MODEL_TAPS_LAYERS;
	}
	return true;
}

/* CLI_OK, CLI_USAGE, or -1 after --help. */
static int parse(int argc, char **argv, struct args *a)
{
	static const struct option longs[] = { { "model", required_argument, NULL, 'm' },
		{ "a", required_argument, NULL, OPT_A }, { "b", required_argument, NULL, OPT_B },
		{ "file", required_argument, NULL, 'f' }, { "text", required_argument, NULL, OPT_TEXT },
		{ "ids", required_argument, NULL, OPT_IDS },
		{ "tokens", required_argument, NULL, OPT_TOKENS },
		{ "greedy", required_argument, NULL, OPT_GREEDY }, { "json", no_argument, NULL, OPT_JSON },
		{ "help", no_argument, NULL, 'h' }, { 0 } };
	const char *cmd = "tenon diff";
	int c;

	while ((c = cli_getopt(cmd, argc, argv, ":m:f:h", longs)) != -1) {
		if (c == 'h')
			return help() - 1;
		if (c == '?' || !take_option(a, c, optarg))
			return CLI_USAGE;
	}
	if (optind < argc)
		return cli_usage(cmd, "unexpected argument '%s'", argv[optind]);
	if (!a->n_models)
		return cli_usage(cmd, "-m is missing");
	if (!!a->file + !!a->text + !!a->ids != 1)
		return cli_usage(cmd, "give one of -f, --text and --ids");
	return take_sides(a) ? CLI_OK : CLI_USAGE;
}

/* ---- tokens ----------------------------------------------------------------------------------------------------------- */

static int ids_parse(struct args *a, struct error *e)
{
	uint32_t n_vocab = model_info(a->d.side[0].m)->n_vocab;
	const char *s = a->ids;

	a->id = mem_zalloc(MEM_TOOL, strlen(s) / 2 + 1, sizeof *a->id);
	while (a->id) {
		char *end;
		unsigned long v;

		errno = 0;
		v = strtoul(s, &end, 10);
		if (*s < '0' || *s > '9' || errno || v >= n_vocab || (*end && *end != ','))
			return error_set(e, TENON_E_INVALID,
				"--ids: number %u is no token of this model (0 to %u)", a->n + 1,
				n_vocab - 1);
		a->id[a->n++] = (int32_t)v;
		if (!*end)
			return TENON_OK;
		s = end + 1;
	}
	return error_set(e, TENON_E_NOMEM, "no memory for the ids");
}

static int ids_of_text(struct args *a, struct error *e)
{
	const struct model *m = a->d.side[0].m;
	struct tokens t = { 0 };
	int rc = a->file ? text_tokens(m, a->file, &t, e)
			 : model_tokens_from_text(m, a->text, strlen(a->text), &t, e);

	if (!rc) {
		a->n = (uint32_t)MIN_OF(t.n, (size_t)INT32_MAX);
		a->id = mem_zalloc(MEM_TOOL, a->n, sizeof *a->id);
		rc = a->id ? TENON_OK : error_set(e, TENON_E_NOMEM, "no memory for %u tokens", a->n);
	}
	if (!rc && a->n)
		memcpy(a->id, t.id, a->n * sizeof *a->id);
	tokens_finish(&t);
	return rc;
}

static int take_texts(struct args *a, struct error *e)
{
	const struct model *m = a->d.side[0].m;
	uint64_t most = a->tokens ? a->tokens : TEXTS_TOKENS;

	return a->file ? texts_read(m, a->file, most, &a->texts, e)
		       : texts_from(m, a->text, strlen(a->text), most, &a->texts, e);
}

/* Ids that both models have, as many as both contexts hold. */
static int take_tokens(struct args *a, struct error *e)
{
	int rc = a->ids ? ids_parse(a, e) : ids_of_text(a, e);

	if (rc)
		return rc;
	a->n = (uint32_t)MIN_OF((uint64_t)a->n, a->tokens ? a->tokens : TOKENS);
	for (int i = 0; i < 2; i++)
		a->n = MIN_OF(a->n, model_info(a->d.side[i].m)->n_ctx);
	return a->n ? TENON_OK : error_set(e, TENON_E_INVALID, "text: has no tokens");
}

/* ---- the report ------------------------------------------------------------------------------------------------------- */

static int worse_first(const void *a, const void *b)
{
	const struct diff_part *x = a, *y = b;
	double d = diff_relative(&y->sum) - diff_relative(&x->sum);

	return d > 0 ? 1 : d < 0 ? -1 : x->layer - y->layer;
}

static const char *precision_name(const struct model_info *i)
{
	return i->precision == TNP_EXACT ? "exact" : "fast";
}

static json_t *side_json(const struct score *s)
{
	const struct model_info *i = model_info(s->m);

	return json_pack("{s:s, s:s, s:s, s:s}", "model", gguf_path(model_file(s->m)), "backend", i->backend,
		"precision", precision_name(i), "kv", gguf_type_name(i->kv_type));
}

static json_t *parting_json(const struct diff_parting *p)
{
	return json_pack("{s:i, s:i, s:i, s:f}", "at", (int)p->at, "a", (int)p->a, "b", (int)p->b, "margin",
		p->margin);
}

static void json_of_texts(const struct diff *d, json_t *o)
{
	(void)json_object_set_new(o, "texts", json_integer((json_int_t)d->n));
	(void)json_object_set_new(o, "embedding",
		json_pack("{s:f, s:f}", "rms", diff_relative(&d->logits), "max", d->logits.most));
	(void)json_object_set_new(o, "cosine",
		json_pack("{s:f, s:f, s:i}", "mean", d->cosine / (double)d->n, "least", d->cosine_least, "at",
			(int)d->cosine_at));
}

static void json_of_scores(const struct diff *d, json_t *o)
{
	bool flipped = d->n_same < d->n, parted = d->n_greedy_same < d->n_greedy;

	(void)json_object_set_new(o, "logits",
		json_pack("{s:f, s:f}", "rms", diff_relative(&d->logits), "max", d->logits.most));
	(void)json_object_set_new(o, "kl",
		json_pack("{s:f, s:f, s:i}", "mean", d->kl / (double)d->n, "max", d->kl_most, "at",
			(int)d->kl_at));
	(void)json_object_set_new(
		o, "top1", json_pack("{s:I, s:I}", "same", (json_int_t)d->n_same, "of", (json_int_t)d->n));
	(void)json_object_set_new(o, "first_flip", flipped ? parting_json(&d->first) : json_null());
	(void)json_object_set_new(o, "widest_flip", flipped ? parting_json(&d->widest) : json_null());
	(void)json_object_set_new(o, "greedy",
		json_pack("{s:i, s:i, s:o}", "tokens", (int)d->n_greedy, "same", (int)d->n_greedy_same,
			"parting", parted ? parting_json(&d->greedy) : json_null()));
}

static void report_json(const struct diff *d, bool encoder)
{
	json_t *layers = json_array(), *o;

	for (size_t i = 0; i < d->n_parts; i++)
		(void)json_array_append_new(layers,
			json_pack("{s:i, s:s, s:f, s:f}", "layer", d->part[i].layer, "part", d->part[i].word,
				"rms", diff_relative(&d->part[i].sum), "max", d->part[i].sum.most));
	o = json_pack("{s:o, s:o, s:I, s:o}", "a", side_json(&d->side[0]), "b", side_json(&d->side[1]),
		"tokens", (json_int_t)(encoder ? d->n_tokens : d->n), "layers", layers);
	if (encoder)
		json_of_texts(d, o);
	else
		json_of_scores(d, o);
	cli_print_json(o);
}

static void print_side(const char *name, const struct score *s)
{
	const struct model_info *i = model_info(s->m);

	(void)printf("%s: %s, backend %s, %s, KV %s\n", name, gguf_path(model_file(s->m)), i->backend,
		precision_name(i), gguf_type_name(i->kv_type));
}

static void print_token(const struct diff *d, const char *name, int32_t id)
{
	struct buf b;
	char text[48];
	size_t n = 0;

	buf_init(&b, MEM_TOOL, 0);
	(void)tokenizer_piece(model_tokenizer(d->side[0].m), id, false, true, &b, NULL);
	for (size_t i = 0; i < b.len && n < sizeof text - 1; i++)
		text[n++] = b.data[i] == 0x7f || (unsigned char)b.data[i] < 0x20 ? '?' : b.data[i];
	text[n] = 0;
	(void)printf("%s '%s' (%d)", name, text, id);
	buf_finish(&b);
}

static void print_parting(const struct diff *d, const struct diff_parting *p)
{
	print_token(d, "a", p->a);
	print_token(d, ", b", p->b);
	(void)printf(", margin %.4f\n", p->margin);
}

static void print_parts(const struct diff *d)
{
	for (size_t i = 0; i < d->n_parts && i < SHOWN; i++) {
		const struct diff_part *p = &d->part[i];
		char where[64];

		(void)snprintf(where, sizeof where, p->layer < 0 ? "%s" : "%s, layer %d", p->word, p->layer);
		(void)printf("  %-20s %.6f  %.4g\n", where, diff_relative(&p->sum), p->sum.most);
	}
}

static void print_texts(const struct diff *d)
{
	(void)printf(
		"embeddings: relative error %.6f, largest %.4g\n", diff_relative(&d->logits), d->logits.most);
	(void)printf("mean cosine %.7f, least %.7f of text %u of %llu\n", d->cosine / (double)d->n,
		d->cosine_least, d->cosine_at + 1, (unsigned long long)d->n);
}

static void print_scores(const struct diff *d)
{
	(void)printf(
		"scores: relative error %.6f, largest %.4g\n", diff_relative(&d->logits), d->logits.most);
	(void)printf("mean KL %.6f nats, largest %.6f behind token %u\n", d->kl / (double)d->n, d->kl_most,
		d->kl_at);
	(void)printf("best token the same: %llu of %llu (%.2f %%)\n", (unsigned long long)d->n_same,
		(unsigned long long)d->n, 100.0 * (double)d->n_same / (double)d->n);
	if (d->n_same < d->n) {
		(void)printf("first flip behind token %u: ", d->first.at);
		print_parting(d, &d->first);
		(void)printf("widest flip behind token %u: ", d->widest.at);
		print_parting(d, &d->widest);
	}
	if (d->n_greedy_same < d->n_greedy) {
		(void)printf("greedy output parts at its token %u: ", d->n_greedy_same + 1);
		print_parting(d, &d->greedy);
	} else if (d->n_greedy) {
		(void)printf("greedy output: the same %u tokens\n", d->n_greedy);
	}
}

static void report_text(const struct diff *d, bool encoder)
{
	print_side("a", &d->side[0]);
	print_side("b", &d->side[1]);
	(void)printf(
		"%llu tokens; error behind each part, worst first (relative root mean square, largest):\n",
		(unsigned long long)(encoder ? d->n_tokens : d->n));
	print_parts(d);
	if (encoder)
		print_texts(d);
	else
		print_scores(d);
}

/* ---- the command ------------------------------------------------------------------------------------------------------ */

static int open_sides(struct args *a, struct error *e)
{
	for (int i = 0; i < 2; i++) {
		int rc = score_open(&a->side[i].open, 0, SCORE_OUT, true, &a->d.side[i], e);

		if (rc) {
			error_prefix(e, "%s: ", i ? "b" : "a");
			return rc;
		}
	}
	return diff_begin(&a->d, e);
}

/* Ids given by hand are one text. */
static int compare_texts(struct args *a, struct error *e)
{
	struct tokens given = { 0 };
	struct texts one = { .t = &given, .n = 1 };
	int rc = a->ids ? take_tokens(a, e) : take_texts(a, e);

	given.id = a->id;
	given.n = a->n;
	return rc ? rc : diff_run_texts(&a->d, a->ids ? &one : &a->texts, e);
}

static int compare(struct args *a, struct error *e)
{
	int rc = take_tokens(a, e);

	return rc ? rc : diff_run(&a->d, a->id, a->n, (uint32_t)a->greedy, e);
}

static int work(struct args *a, struct error *e)
{
	int rc = open_sides(a, e);
	bool encoder = !rc && model_info(a->d.side[0].m)->is_encoder;

	if (!rc)
		rc = encoder ? compare_texts(a, e) : compare(a, e);
	cli_progress_end();
	if (rc)
		return rc;
	qsort(a->d.part, a->d.n_parts, sizeof *a->d.part, worse_first);
	if (a->json)
		report_json(&a->d, encoder);
	else
		report_text(&a->d, encoder);
	return rc;
}

int cmd_diff(int argc, char **argv)
{
	struct args a = { .greedy = GREEDY };
	struct error e = { 0 };
	int status = parse(argc, argv, &a), rc = TENON_OK;

	if (!status) {
		session_catch_int();
		rc = work(&a, &e);
	}
	diff_finish(&a.d);
	texts_finish(&a.texts);
	mem_free(a.id);
	for (int i = 0; i < 2; i++) {
		score_close(&a.d.side[i]);
		mem_free(a.side[i].spec);
	}
	if (status)
		return status < 0 ? CLI_OK : status;
	return rc ? cli_fail_error("diff", &e) : CLI_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 * tenon quantize: writes a model file with smaller weights and says, tensor by tensor, what that lost. Works on the file
 * alone, in its own process; a result is there whole or not at all.
 */
#include "engine/quant_file.h"
#include "tools/commands.h"
#include "tools/session.h"
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <tenon/plugin.h>

enum {
	OPT_TYPE = 0x300,
	OPT_TENSOR,
	OPT_IMPORTANCE,
	OPT_THREADS_Q,
	OPT_JSON,
	OPT_REQUANTIZE,
	OPT_PURE,
	MAX_RULES = 256,
	SHOWN = 10
};

struct quantize {
	const char *model, *out, *type, *importance;
	uint64_t threads;
	bool json, requantize, pure;
	struct quant_rule rules[MAX_RULES];
	size_t n_rules;
	struct gguf *in;
	struct importance *imp;
	struct quant_row *rows;
	size_t n; /* tensors */
	char path[4096];
};

static int help(void)
{
	(void)fputs(
		"usage: tenon quantize -m MODEL -o OUT --type TYPE [OPTION]...\n\n"
		"Writes a model file with weights of fewer bits and reports the error of each tensor, worst first.\n\n"
		"  -m, --model MODEL        a GGUF file with F32, F16 or BF16 weights, or a name that scripts/fetch-model knows\n"
		"  -o, --output OUT         the file to write; it appears when it is complete\n"
		"      --type TYPE          one type for all matrices: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL,\n"
		"                           Q2_K, Q3_K, Q4_K, Q5_K, Q6_K; or a mix: q2_k_m, q3_k_s, q3_k_m, q3_k_l, q4_k_s,\n"
		"                           q4_k_m, q5_k_s, q5_k_m\n"
		"      --tensor PATTERN=TYPE  another type for matrices whose name matches (* ? [...]); the first match wins\n"
		"      --importance FILE    what each column of a matrix counts, from tenon calibrate\n"
		"      --allow-requantize   take quantised weights as a source too\n"
		"      --pure               the head too gets a type of less than six bits; otherwise it, and an embedding that is the\n"
		"                           head, is Q6_K then\n"
		"      --threads N          default: the processors that this process may use\n"
		"      --json               one JSON object: sizes, and each tensor's type and error\n\n"
		"Vectors, matrices of less than 1024 numbers and routers stay F32. Rows that are no multiple of 256 take a type\n"
		"with blocks of 32 (Q4_K: Q5_0, Q5_K: Q5_1, Q6_K: Q8_0, Q2_K and Q3_K: IQ4_NL), others F16; the report says so.\n\n"
		"examples:\n"
		"  tenon quantize -m model-f16.gguf -o model-q4.gguf --type q4_k_m\n"
		"  tenon quantize -m model-f16.gguf -o small.gguf --type Q3_K --tensor 'blk.*.ffn_down.weight=Q5_K' --importance model.imp\n",
		stdout);
	return CLI_OK;
}

/* ---- options ---------------------------------------------------------------------------------------------------------- */

static bool take_rule(struct quantize *q, char *arg)
{
	char *eq = strrchr(arg, '=');
	struct quant_rule *r = &q->rules[q->n_rules];

	if (!eq || eq == arg) {
		(void)cli_usage("tenon quantize", "--tensor: '%.96s' is not PATTERN=TYPE", arg);
		return false;
	}
	if (q->n_rules == MAX_RULES) {
		(void)cli_usage("tenon quantize", "--tensor: more than %d", MAX_RULES);
		return false;
	}
	if (!quant_type_find(eq + 1, &r->type)) {
		(void)cli_usage("tenon quantize",
			"--tensor: type '%.32s' is unknown; there are F32, F16, BF16, Q8_0, Q4_0, "
			"Q4_1, Q5_0, Q5_1, IQ4_NL, Q2_K to Q6_K",
			eq + 1);
		return false;
	}
	*eq = 0;
	r->pattern = arg;
	q->n_rules++;
	return true;
}

static bool take_option(struct quantize *q, int c, char *arg)
{
	switch (c) {
	case 'm':
		q->model = arg;
		return true;
	case 'o':
		q->out = arg;
		return true;
	case OPT_TYPE:
		q->type = arg;
		if (quant_type_known(arg))
			return true;
		(void)cli_usage(
			"tenon quantize", "--type: '%.32s' is unknown; there are %s", arg, quant_type_list());
		return false;
	case OPT_TENSOR:
		return take_rule(q, arg);
	case OPT_IMPORTANCE:
		q->importance = arg;
		return true;
	case OPT_THREADS_Q:
		return cli_parse_u64("tenon quantize", "--threads", arg, 1, 256, &q->threads);
	case OPT_REQUANTIZE:
		return q->requantize = true;
	case OPT_PURE:
		return q->pure = true;
	default:
		return q->json = true;
	}
}

/* CLI_OK, CLI_USAGE, or -1 after --help. */
static int parse(int argc, char **argv, struct quantize *q)
{
	static const struct option longs[] = { { "model", required_argument, NULL, 'm' },
		{ "output", required_argument, NULL, 'o' }, { "type", required_argument, NULL, OPT_TYPE },
		{ "tensor", required_argument, NULL, OPT_TENSOR },
		{ "importance", required_argument, NULL, OPT_IMPORTANCE },
		{ "threads", required_argument, NULL, OPT_THREADS_Q },
		{ "allow-requantize", no_argument, NULL, OPT_REQUANTIZE },
		{ "pure", no_argument, NULL, OPT_PURE }, { "json", no_argument, NULL, OPT_JSON },
		{ "help", no_argument, NULL, 'h' }, { 0 } };
	const char *cmd = "tenon quantize";
	int c;

	while ((c = cli_getopt(cmd, argc, argv, ":m:o:h", longs)) != -1) {
		if (c == 'h')
			return help() - 1;
		if (c == '?' || !take_option(q, c, optarg))
			return CLI_USAGE;
	}
	if (optind < argc)
		return cli_usage(cmd, "unexpected argument '%s'", argv[optind]);
	if (!q->model || !q->out || !q->type)
		return cli_usage(cmd, "%s is missing", !q->model ? "-m" : !q->out ? "-o" : "--type");
	return CLI_OK;
}

/* ---- the work --------------------------------------------------------------------------------------------------------- */

static bool show_progress(void *ctx, double share)
{
	(void)ctx;
	cli_progress("quantize", share);
	return !session_interrupted();
}

static int open_all(struct quantize *q, struct error *e)
{
	int rc = cli_model_path(q->model, q->path, sizeof q->path, e);

	if (!rc)
		rc = gguf_open(q->path, &q->in, e);
	if (!rc)
		rc = cli_check_output(q->out, q->path, e);
	if (!rc)
		rc = cli_check_output(q->out, q->importance, e);
	if (!rc && q->importance)
		rc = importance_open(q->importance, &q->imp, e);
	if (rc)
		return rc;
	q->n = gguf_n_tensors(q->in);
	q->rows = mem_zalloc(MEM_TOOL, q->n, sizeof *q->rows);
	return q->rows ? TENON_OK : error_set(e, TENON_E_NOMEM, "no memory");
}

static uint32_t processors(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof set, &set) ? 1 : (uint32_t)CPU_COUNT(&set);
}

static int work(struct quantize *q, struct error *e)
{
	struct quant_job job = { .type = q->type,
		.rules = q->rules,
		.n_rules = q->n_rules,
		.requantize = q->requantize,
		.pure = q->pure,
		.n_threads = q->threads ? (uint32_t)q->threads : processors(),
		.progress = show_progress };
	int rc = open_all(q, e);

	job.in = q->in;
	job.importance = q->imp;
	if (!rc)
		rc = quant_plan(&job, q->rows, e);
	if (!rc)
		rc = quant_run(&job, q->rows, q->out, e);
	cli_progress_end();
	return rc;
}

/* ---- the report ------------------------------------------------------------------------------------------------------- */

static int worse_first(const void *a, const void *b)
{
	const struct quant_row *x = a, *y = b;
	double d = quant_error_relative(&y->error) - quant_error_relative(&x->error);

	return d > 0 ? 1 : d < 0 ? -1 : (x->t > y->t) - (x->t < y->t);
}

/* Of the matrices that change; copied ones lose nothing. */
static struct quant_error total(const struct quantize *q)
{
	struct quant_error sum = { 0 };

	for (size_t i = 0; i < q->n; i++) {
		sum.signal += q->rows[i].error.signal;
		sum.noise += q->rows[i].error.noise;
		sum.most = MAX_OF(sum.most, q->rows[i].error.most);
	}
	return sum;
}

static double weighted_relative(const struct quant_error *e)
{
	return e->weighted_signal > 0 ? sqrt(e->weighted_noise / e->weighted_signal) : 0;
}

static json_t *row_json(const struct quant_row *r)
{
	json_t *o = json_pack("{s:s%, s:s, s:s, s:s, s:I, s:f, s:f}", "name", r->t->name.s, r->t->name.len,
		"from", gguf_type_name(r->t->type), "type", gguf_type_name(r->type), "reason",
		quant_reason_text(r->reason), "bytes", (json_int_t)r->bytes, "rms",
		quant_error_relative(&r->error), "max", (double)r->error.most);

	if (r->type != r->wanted)
		(void)json_object_set_new(o, "wanted", json_string(gguf_type_name(r->wanted)));
	if (r->weighted)
		(void)json_object_set_new(o, "weighted_rms", json_real(weighted_relative(&r->error)));
	return o;
}

static uint64_t bytes_of(const struct quantize *q, bool before)
{
	uint64_t n = 0;

	for (size_t i = 0; i < q->n; i++)
		n += before ? q->rows[i].t->bytes : q->rows[i].bytes;
	return n;
}

static void report_json(const struct quantize *q)
{
	struct quant_error sum = total(q);
	json_t *rows = json_array();

	for (size_t i = 0; i < q->n; i++) {
		json_t *o = row_json(&q->rows[i]);

		if (o)
			(void)json_array_append_new(rows, o);
	}
	cli_print_json(json_pack("{s:s, s:s, s:I, s:I, s:f, s:f, s:o}", "output", q->out, "type", q->type,
		"bytes_before", (json_int_t)bytes_of(q, true), "bytes", (json_int_t)bytes_of(q, false), "rms",
		quant_error_relative(&sum), "max", (double)sum.most, "tensors", rows));
}

/* How many tensors, how many bytes, by type and reason. */
static void report_types(const struct quantize *q)
{
	for (uint32_t type = 0; type <= TNP_BF16; type++)
		for (int reason = QUANT_ASKED; reason <= QUANT_AS_IS; reason++) {
			uint64_t bytes = 0;
			size_t n = 0;

			for (size_t i = 0; i < q->n; i++)
				if (q->rows[i].type == type &&
					q->rows[i].reason == (enum quant_reason)reason) {
					n++;
					bytes += q->rows[i].bytes;
				}
			if (n)
				(void)printf("  %-7s %-9s %4zu tensors %9.1f MB\n", gguf_type_name(type),
					quant_reason_text((enum quant_reason)reason), n, (double)bytes / 1e6);
		}
}

static void report_text(const struct quantize *q)
{
	struct quant_error sum = total(q);
	size_t unweighted = 0;

	(void)printf("%s: %.1f MB of weights, were %.1f MB; relative error %.5f\n", q->out,
		(double)bytes_of(q, false) / 1e6, (double)bytes_of(q, true) / 1e6,
		quant_error_relative(&sum));
	report_types(q);
	(void)printf("worst first (relative root mean square, largest error):\n");
	for (size_t i = 0; i < q->n; i++) {
		const struct quant_row *r = &q->rows[i];

		if (i < SHOWN && r->error.noise > 0)
			(void)printf("  %-32s %-7s %.5f  %.4g%s%s\n", gguf_show(r->t->name).s,
				gguf_type_name(r->type), quant_error_relative(&r->error),
				(double)r->error.most, r->type != r->wanted ? "  in place of " : "",
				r->type != r->wanted ? gguf_type_name(r->wanted) : "");
		unweighted += r->error.noise > 0 && !r->weighted;
	}
	if (q->imp && unweighted)
		(void)printf(
			"the importance file says nothing about %zu of the quantised tensors\n", unweighted);
}

int cmd_quantize(int argc, char **argv)
{
	struct quantize q = { 0 };
	struct error e = { 0 };
	int status = parse(argc, argv, &q), rc;

	if (status)
		return status < 0 ? CLI_OK : status;
	session_catch_int();
	(void)signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is an error like a full disk */
	rc = work(&q, &e);
	if (!rc) {
		qsort(q.rows, q.n, sizeof *q.rows, worse_first);
		if (q.json)
			report_json(&q);
		else
			report_text(&q);
	}
	gguf_close(q.in);
	importance_close(q.imp);
	mem_free(q.rows);
	return rc ? cli_fail_error("quantize", &e) : CLI_OK;
}

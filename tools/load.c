/* SPDX-License-Identifier: Apache-2.0
 * load.h: prompts, requests, blocks.
 */
#include "tools/load.h"
#include "engine/tokenizer.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MARK_TOKENS = 4, SETTLE_MS = 20, CANCEL_S = 5 };

/* ---- prompts ------------------------------------------------------------------------------------------------- */

uint64_t load_random(uint64_t *state)
{
	uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static int read_file(const char *path, struct buf *out, struct error *e)
{
	char part[65536];
	FILE *f = fopen(path, "re");
	bool bad;
	size_t n;

	if (!f)
		return TENON_E_NOT_FOUND;
	while ((n = fread(part, 1, sizeof part, f)) > 0 && buf_append(out, part, n))
		;
	bad = ferror(f) || out->failed || !out->len;
	(void)fclose(f);
	return bad ? error_set(e, TENON_E_IO, "text '%.200s': cannot be read, is empty or over 16 MiB", path)
		   : TENON_OK;
}

/* The first of the texts that is there. */
static int find_text(struct load_text *t, const char *file, struct buf *out, struct error *e)
{
	const char *const places[] = { file, "/usr/share/common-licenses/GPL-3",
		TENON_SOURCE_DIR "/LICENSE" };
	int rc = TENON_E_NOT_FOUND;

	for (size_t i = 0; i < (file ? 1 : COUNT_OF(places)) && rc == TENON_E_NOT_FOUND; i++) {
		const char *path = file ? file : places[i];

		(void)snprintf(t->path, sizeof t->path, "%s", path ? path : "");
		rc = path ? read_file(path, out, e) : rc;
	}
	if (rc == TENON_E_NOT_FOUND)
		return error_set(e, rc,
			"text '%.200s': no such file; give one of some thousand words with --text", t->path);
	return rc;
}

static int encode(struct load_text *t, const char *model_path, const struct buf *text, struct error *e)
{
	struct gguf *g = NULL;
	struct tokenizer *tok = NULL;
	struct tokens ids = { 0 };
	size_t words = 0;
	int rc = gguf_open(model_path, &g, e);

	rc = rc ? rc : tokenizer_create(g, &tok, e);
	rc = rc ? rc : tokenizer_encode(tok, text->data, text->len, false, &ids, e);
	for (size_t i = 1; i < text->len; i++)
		words += (text->data[i] == ' ' || text->data[i] == '\n') && text->data[i - 1] != ' ' &&
			text->data[i - 1] != '\n';
	if (!rc && (!ids.n || !words))
		rc = error_set(e, TENON_E_INVALID, "text '%.200s': has no words", t->path);
	t->ids = rc ? NULL : mem_alloc(MEM_TOOL, ids.n * sizeof *t->ids);
	if (t->ids) {
		memcpy(t->ids, ids.id, ids.n * sizeof *t->ids);
		t->n = ids.n;
		t->n_vocab = (int32_t)tokenizer_n_vocab(tok);
		t->tokens_per_word = (double)ids.n / (double)words;
	} else if (!rc) {
		rc = error_set(e, TENON_E_NOMEM, "text: out of memory");
	}
	tokens_finish(&ids);
	tokenizer_destroy(tok);
	gguf_close(g);
	return rc;
}

int load_text_open(struct load_text *t, const char *model_path, const char *file, struct error *e)
{
	struct buf text;
	int rc;

	buf_init(&text, MEM_TOOL, (size_t)16 << 20);
	rc = find_text(t, file, &text, e);
	rc = rc ? rc : encode(t, model_path, &text, e);
	buf_finish(&text);
	return rc;
}

void load_text_close(struct load_text *t) { MEM_CLEAR(t->ids); }

int32_t *load_prompt(const struct load_text *t, uint32_t n, uint64_t *state)
{
	int32_t *ids = mem_alloc(MEM_TOOL, n * sizeof *ids), low = MIN_OF(300, t->n_vocab / 2);
	size_t from = load_random(state) % t->n;

	for (uint32_t i = 0; ids && i < n; i++)
		ids[i] = i < MARK_TOKENS ? low + (int32_t)(load_random(state) % (uint64_t)(t->n_vocab - low))
					 : t->ids[(from + i) % t->n];
	return ids;
}

/* ---- requests ------------------------------------------------------------------------------------------------- */

struct load_item *load_item_new(int32_t *ids, uint32_t n_ids, uint32_t n_new)
{
	struct load_item *it = ids ? mem_zalloc(MEM_TOOL, 1, sizeof *it) : NULL;

	if (it)
		*it = (struct load_item){ .ids = ids,
			.n_ids = n_ids,
			.n_new = n_new,
			.token_ns = mem_zalloc(MEM_TOOL, n_new, sizeof *it->token_ns) };
	if (it && it->token_ns)
		return it;
	mem_free(ids);
	mem_free(it);
	return NULL;
}

void load_items_free(struct load_item *list)
{
	for (struct load_item *next; list; list = next) {
		next = list->next;
		mem_free(list->ids);
		mem_free(list->token_ns);
		mem_free(list);
	}
}

double load_item_ttft_ms(const struct load_item *it, uint64_t now_ns)
{
	uint64_t end = it->first_ns ? it->first_ns : it->ended ? it->end_ns : now_ns;

	return end > it->due_ns ? (double)(end - it->due_ns) / 1e6 : 0;
}

double load_item_tpot_ms(const struct load_item *it)
{
	return it->n_tokens > 1 ? (double)(it->last_ns - it->first_ns) / 1e6 / (it->n_tokens - 1) : 0;
}

void load_item_saw_prompt(struct load_item *it, uint32_t n_done)
{
	it->n_prompt_done = MAX_OF(it->n_prompt_done, MIN_OF(n_done, it->n_ids));
}

void load_item_saw_tokens(struct load_item *it, uint32_t n, uint64_t now_ns)
{
	if (!n)
		return;
	if (!it->first_ns)
		it->first_ns = now_ns;
	it->last_ns = now_ns;
	it->n_prompt_done = it->n_ids;
	for (; n && it->n_tokens < it->n_new; n--)
		it->token_ns[it->n_tokens++] = now_ns;
}

void load_item_saw_end(struct load_item *it, int code, const char *why, size_t why_len, uint64_t now_ns)
{
	it->ended = true;
	it->code = code;
	it->end_ns = now_ns;
	(void)snprintf(
		it->why, sizeof it->why, "%.*s", (int)MIN_OF(why_len, sizeof it->why - 1), why ? why : "");
	MEM_CLEAR(it->ids);
}

void load_server_close(struct load_server *s)
{
	if (s->ctx)
		s->close(s->ctx);
	*s = (struct load_server){ 0 };
}

static size_t count_open(const struct load_item *list)
{
	size_t n = 0;

	for (; list; list = list->next)
		n += !list->ended;
	return n;
}

static void cancel_open(struct load_server *s, struct load_item *list)
{
	for (; list; list = list->next)
		if (!list->ended && !list->cancelled) {
			list->cancelled = true;
			s->cancel(s->ctx, list);
		}
}

int load_drain(struct load_server *s, struct load_item *list, uint64_t until_ns, struct error *e)
{
	uint64_t give_up_ns;
	int rc = TENON_OK;

	while (!rc && count_open(list) && clock_now_ns() < until_ns && !session_interrupted())
		rc = s->wait(s->ctx, until_ns, e);
	if (rc)
		return rc;
	cancel_open(s, list);
	give_up_ns = clock_now_ns() + CANCEL_S * NS_PER_S;
	while (!rc && count_open(list) && clock_now_ns() < give_up_ns)
		rc = s->wait(s->ctx, give_up_ns, e);
	if (!rc && count_open(list))
		return error_set(e, TENON_E_TIMEOUT,
			"load: requests that were cancelled had not ended %d s later", CANCEL_S);
	return rc;
}

int load_ask(struct load_server *s, struct load_item *it, uint64_t until_ns, struct error *e)
{
	int rc;

	it->due_ns = clock_now_ns();
	rc = s->submit(s->ctx, it, e);
	return rc ? rc : load_drain(s, it, until_ns, e);
}

/* ---- blocks --------------------------------------------------------------------------------------------------- */

struct running { /* a block */
	struct load_server *s;
	const struct load_text *t;
	const struct load_plan *p;
	uint64_t arrivals, due_ns, shown_ns;
	struct load_block *b;
	struct load_item *last;
	struct load_item *now[1 + LOAD_MAX_OFFLINE]; /* of each offline client, from 1 */
	uint64_t n_sent[1 + LOAD_MAX_OFFLINE];
};

/* The first prompts of a block are shorter by turns, so that prompts and answers of different clients mix. */
static uint32_t offline_prompt(const struct running *r, uint32_t client)
{
	const struct load_plan *p = r->p;

	return r->now[client]
		? p->n_offline_prompt
		: MAX_OF((uint32_t)((uint64_t)p->n_offline_prompt * client / p->n_offline_clients), 1u);
}

static int send(struct running *r, int traffic_class, uint32_t client, uint64_t due_ns, struct error *e)
{
	const struct load_plan *p = r->p;
	bool offline = traffic_class == TENON_OFFLINE;
	uint32_t n = offline ? offline_prompt(r, client) : p->n_online_prompt;
	uint64_t state = p->prompts ^ (uint64_t)client << 48 ^ r->n_sent[client]++ << 16;
	struct load_item *it =
		load_item_new(load_prompt(r->t, n, &state), n, offline ? p->n_offline_new : p->n_online_new);

	if (!it)
		return error_set(e, TENON_E_NOMEM, "load: out of memory");
	it->traffic_class = traffic_class;
	it->client = client;
	it->due_ns = due_ns;
	it->ttft_ms = offline ? 0 : p->online_ttft_ms;
	it->tpot_ms = offline ? 0 : p->online_tpot_ms;
	*(r->last ? &r->last->next : &r->b->items) = it;
	r->last = it;
	if (offline)
		r->now[client] = it;
	return r->s->submit(r->s->ctx, it, e);
}

static void next_arrival(struct running *r)
{
	double u = ((double)(load_random(&r->arrivals) >> 11) + 0.5) * 0x1p-53;

	r->due_ns = r->p->rate > 0 ? r->due_ns + (uint64_t)(-log(u) / r->p->rate * 1e9) : UINT64_MAX;
}

/* Sends what was due by then and keeps the offline clients busy. */
static int keep_up(struct running *r, uint64_t arrivals_until_ns, struct error *e)
{
	int rc = TENON_OK;

	while (!rc && r->due_ns <= arrivals_until_ns) {
		rc = send(r, TENON_ONLINE, 0, r->due_ns, e);
		next_arrival(r);
	}
	for (uint32_t c = 1; c <= r->p->n_offline_clients && !rc; c++) {
		if (r->now[c] && r->now[c]->ended && r->now[c]->code)
			return error_set(e, r->now[c]->code, "an offline request failed: %s", r->now[c]->why);
		if (!r->now[c] || r->now[c]->ended)
			rc = send(r, TENON_OFFLINE, c, clock_now_ns(), e);
	}
	return rc;
}

static double offline_progress(const struct load_item *list)
{
	double sum = 0;

	for (; list; list = list->next)
		if (list->traffic_class == TENON_OFFLINE)
			sum += list->n_prompt_done - MIN_OF(list->n_cached, list->n_prompt_done) +
				list->n_tokens;
	return sum;
}

static size_t count_online_open(const struct load_item *list)
{
	size_t n = 0;

	for (; list; list = list->next)
		n += !list->ended && list->traffic_class == TENON_ONLINE;
	return n;
}

/* Union of the times in which an online request was open; items stand in order of arrival. */
static void measure_open(struct load_block *b)
{
	uint64_t covered_ns = b->start_ns;

	for (const struct load_item *it = b->items; it; it = it->next) {
		uint64_t from = MAX_OF(it->due_ns, covered_ns), to = it->end_ns, cut = MIN_OF(to, b->stop_ns);

		if (it->traffic_class != TENON_ONLINE || to <= from)
			continue;
		b->open_ns += (double)(to - from);
		b->open_before_stop_ns += cut > from ? (double)(cut - from) : 0;
		covered_ns = to;
	}
}

/* Progress of offline work as it was seen: how much, and since when. */
struct seen {
	double tokens;
	uint64_t at_ns;
};

static void look(const struct running *r, struct seen *s)
{
	double now = offline_progress(r->b->items);

	if (now != s->tokens)
		*s = (struct seen){ now, clock_now_ns() };
}

/* Servers tell of a step when it is done: what the step over the block's end did counts by its share before the end. */
static double at_stop(const struct load_block *b, struct seen before, struct seen after)
{
	if (after.at_ns <= b->stop_ns)
		return before.tokens;
	return before.tokens +
		(after.tokens - before.tokens) * (double)(b->stop_ns - before.at_ns) /
		(double)(after.at_ns - before.at_ns);
}

/* A few times a second. */
static void show(struct running *r, uint64_t now_ns)
{
	const struct load_plan *p = r->p;
	double share = (double)(now_ns - r->b->start_ns) / 1e9 / p->seconds;

	if (!p->progress || now_ns - r->shown_ns < 250 * NS_PER_MS)
		return;
	r->shown_ns = now_ns;
	cli_progress(
		p->progress, p->progress_from + (p->progress_to - p->progress_from) * MIN_OF(share, 1.0));
}

/* Until the block's time is up; then, in the same company, until the online requests have ended. */
static int drive(struct running *r, struct error *e)
{
	struct load_block *b = r->b;
	uint64_t end_ns = b->start_ns + (uint64_t)(r->p->seconds * 1e9),
		 patience_ns = end_ns + (uint64_t)(r->p->patience_s * 1e9);
	struct seen before = { 0, b->start_ns }, after;
	int rc;

	do {
		uint64_t now = clock_now_ns();

		rc = keep_up(r, MIN_OF(now, end_ns), e);
		rc = rc ? rc : r->s->wait(r->s->ctx, MIN_OF(end_ns, r->due_ns), e);
		look(r, &before);
		show(r, now);
	} while (!rc && clock_now_ns() < end_ns && !session_interrupted());
	b->stop_ns = MAX_OF(clock_now_ns(), before.at_ns);
	after = before;
	rc = rc || session_interrupted() ? rc : keep_up(r, end_ns, e);
	while (!rc && clock_now_ns() < patience_ns && !session_interrupted() &&
		(count_online_open(b->items) || (r->p->n_offline_clients && after.tokens == before.tokens))) {
		rc = keep_up(r, 0, e);
		rc = rc ? rc : r->s->wait(r->s->ctx, patience_ns, e);
		if (after.tokens == before.tokens)
			look(r, &after);
	}
	b->offline_tokens = at_stop(b, before, after);
	return rc;
}

int load_run(struct load_server *s, const struct load_text *t, const struct load_plan *p,
	struct load_block *out, struct error *e)
{
	struct running r = { .s = s, .t = t, .p = p, .arrivals = p->arrivals, .b = out };
	struct load_counters before, after;
	int rc, end;

	if (p->n_offline_clients > LOAD_MAX_OFFLINE)
		return error_set(e, TENON_E_INVALID, "load: at most %d offline clients", LOAD_MAX_OFFLINE);
	out->has_used = s->counters(s->ctx, &before);
	out->start_ns = r.due_ns = clock_now_ns();
	next_arrival(&r);
	rc = drive(&r, e);
	out->has_used = out->has_used && s->counters(s->ctx, &after);
	if (out->has_used)
		out->used = (struct load_counters){ .step_ns = after.step_ns - before.step_ns,
			.steps = after.steps - before.steps,
			.calibrated = after.calibrated };
	end = load_drain(s, out->items, 0, rc ? NULL : e);
	measure_open(out);
	(void)usleep(SETTLE_MS * 1000);
	return rc ? rc : end;
}

void load_block_free(struct load_block *b)
{
	load_items_free(b->items);
	*b = (struct load_block){ 0 };
}

double load_block_seconds(const struct load_block *b) { return (double)(b->stop_ns - b->start_ns) / 1e9; }

double load_block_busy(const struct load_block *b)
{
	double span = (double)(b->stop_ns - b->start_ns), open = span > 0 ? b->open_before_stop_ns / span : 0;

	if (b->has_used && b->open_ns > 0)
		open *= MIN_OF(1.0, (double)b->used.step_ns / b->open_ns);
	return open;
}

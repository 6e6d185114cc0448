/* SPDX-License-Identifier: Apache-2.0
 * Bodies of frames: built and checked here and nowhere else (V4, V6). Works on private copies only; a checked
 * frame_request points into its copy, which must be 4-byte aligned. Pure functions, any thread.
 */
#include "ipc/ipc.h"
#include <math.h>
#include <string.h>

#define FRAME_MAX_HISTORY     (1u << 24)
#define FRAME_MAX_TARGET_MS   3600000u
#define FRAME_MAX_DEADLINE_NS (366ull * 86400 * 1000000000) /* what is more is a time of day, or negative */
#define FRAME_MIN_SIZE	      112u			    /* of struct wire_request as it was first */
#define FRAME_MAX_SIZE	      4096u			    /* of struct wire_request of some later version */

static uint32_t frame_padded(uint32_t bytes) { return (bytes + 3) & ~3u; }

/* ---- reading a request -------------------------------------------------------------------------------------- */

/* What is left of a body. */
struct cursor {
	const uint8_t *at;
	uint32_t left;
};

/* `bytes` and their padding (which must be zero); NULL when there is less. */
static const void *cursor_take(struct cursor *c, uint32_t bytes)
{
	const uint8_t *at = c->at;
	uint32_t all;

	if (bytes > UINT32_MAX - 3)
		return NULL;
	all = frame_padded(bytes);
	if (all > c->left)
		return NULL;
	for (uint32_t i = bytes; i < all; i++)
		if (at[i])
			return NULL;
	c->at += all;
	c->left -= all;
	return at;
}

static int frame_bad(struct error *e, const char *what, const char *why)
{
	return error_set(e, TENON_E_INVALID, "request: %s: %s", what, why);
}

/* The fixed part, of whatever version: what an older sender lacks is zero, what a newer one has more must be zero. */
static int frame_request_fixed(struct cursor *c, struct wire_request *r, struct error *e)
{
	uint32_t size;

	if (c->left < FRAME_MIN_SIZE)
		return error_set(e, TENON_E_PROTOCOL, "request: body is shorter than its fixed part");
	memcpy(&size, c->at, sizeof size);
	if (size < FRAME_MIN_SIZE || size > FRAME_MAX_SIZE || size % 8 || size > c->left)
		return error_set(e, TENON_E_PROTOCOL, "request: impossible size of its fixed part");
	memset(r, 0, sizeof *r);
	memcpy(r, c->at, MIN_OF(size, sizeof *r));
	for (uint32_t i = sizeof *r; i < size; i++)
		if (c->at[i])
			return error_set(e, TENON_E_VERSION,
				"request: uses parameters that this version does not know");
	r->size = sizeof *r;
	c->at += size;
	c->left -= size;
	return TENON_OK;
}

static bool in_range(float v, float lo, float hi) { return isfinite(v) && v >= lo && v <= hi; }

static int frame_request_ranges(const struct wire_request *r, struct error *e)
{
	if (!in_range(r->temperature, 0, 100))
		return frame_bad(e, "temperature", "not in 0..100");
	if (!in_range(r->top_p, 0, 1) || r->top_p == 0)
		return frame_bad(e, "top_p", "not above 0 and up to 1");
	if (!in_range(r->min_p, 0, 1))
		return frame_bad(e, "min_p", "not in 0..1");
	if (!in_range(r->repeat_penalty, 0.01f, 100))
		return frame_bad(e, "repeat_penalty", "not in 0.01..100");
	if (!in_range(r->presence_penalty, -100, 100) || !in_range(r->frequency_penalty, -100, 100))
		return frame_bad(e, "presence_penalty, frequency_penalty", "not in -100..100");
	if (r->penalty_window > 1u << 20)
		return frame_bad(e, "penalty_window", "over 1048576");
	if (r->priority < -100 || r->priority > 100)
		return frame_bad(e, "priority", "not in -100..100");
	if (r->n_logprobs > WIRE_MAX_LOGPROBS)
		return frame_bad(e, "n_logprobs", "over 20");
	if (r->n_stop > WIRE_MAX_STOP)
		return frame_bad(e, "stop", "over 16 strings");
	if (r->n_bias > WIRE_MAX_BIAS)
		return frame_bad(e, "bias", "over 1024 entries");
	if (r->model_bytes > WIRE_MAX_MODEL_BYTES)
		return frame_bad(e, "model", "name over 255 bytes");
	if (r->tenant_bytes > WIRE_MAX_TENANT_BYTES)
		return frame_bad(e, "tenant", "name over 63 bytes");
	if (r->job_bytes > WIRE_MAX_JOB_BYTES)
		return frame_bad(e, "job", "name over 63 bytes");
	if (r->reserved0)
		return frame_bad(e, "reserved0", "must be 0");
	if (r->deadline_ns > FRAME_MAX_DEADLINE_NS)
		return frame_bad(e, "deadline", "over a year; it counts from the request's arrival");
	return r->ttft_ms > FRAME_MAX_TARGET_MS || r->tpot_ms > FRAME_MAX_TARGET_MS
		? frame_bad(e, "ttft_ms, tpot_ms", "over an hour")
		: TENON_OK;
}

static int frame_request_rules(
	const struct wire_request *r, bool from_client, uint64_t max_payload, struct error *e)
{
	if (r->input != WIRE_TEXT && r->input != WIRE_MESSAGES && r->input != WIRE_IDS)
		return frame_bad(e, "input", "unknown kind");
	if (r->traffic_class != WIRE_ONLINE && r->traffic_class != WIRE_OFFLINE)
		return frame_bad(e, "traffic_class", "unknown class; 0 is online, 1 is offline");
	if (r->flags & ~WIRE_R_ALL)
		return frame_bad(e, "flags", "unknown bits");
	if (from_client && (r->flags & WIRE_R_AGAIN))
		return frame_bad(e, "flags", "unknown bits");
	if (from_client && (r->arrived_s || r->tenant_weight))
		return frame_bad(e, "arrived_s, tenant_weight", "not for clients");
	if ((r->flags & WIRE_R_DURABLE) && r->traffic_class != WIRE_OFFLINE)
		return frame_bad(e, "durable", "only for offline requests");
	if ((r->flags & (WIRE_R_DURABLE | WIRE_R_COLLECT)) ? !r->job_bytes : r->job_bytes)
		return frame_bad(e, "job", "a name goes with durable and collect, and they need one");
	if ((r->flags & WIRE_R_COLLECT) && (r->payload_bytes || (r->flags & ~WIRE_R_COLLECT)))
		return frame_bad(e, "collect", "takes no input and no other flag");
	if ((r->flags & WIRE_R_EMBED) && (r->flags & WIRE_R_DURABLE))
		return frame_bad(e, "durable", "only for text");
	if (r->payload_bytes > max_payload)
		return error_set(e, TENON_E_TOO_LONG,
			"request: payload of %llu bytes: over the limit of %llu",
			(unsigned long long)r->payload_bytes, (unsigned long long)max_payload);
	if (r->input == WIRE_IDS && (!r->payload_bytes || r->payload_bytes % 4))
		return frame_bad(e, "ids", "none, or not a whole number of them");
	if (r->input == WIRE_MESSAGES && !r->payload_bytes)
		return frame_bad(e, "messages", "empty");
	if ((r->flags & WIRE_R_EMBED) && (r->n_logprobs || r->n_history))
		return frame_bad(e, "embed", "does not go with logprobs or history");
	if (from_client && (r->n_history || r->history_text_bytes))
		return frame_bad(e, "history", "not for clients");
	if (r->n_history > FRAME_MAX_HISTORY || (r->history_text_bytes && !r->n_history))
		return frame_bad(e, "history", "impossible length");
	return TENON_OK;
}

/* A name or a stop string: whole characters, no zero byte. */
static bool frame_text_valid(const char *s, uint32_t len)
{
	return utf8_valid(s, len, NULL) && !memchr(s, 0, len);
}

static int frame_name_check(const char *what, const char *s, uint32_t len, struct error *e)
{
	for (uint32_t i = 0; i < len; i++)
		if ((unsigned char)s[i] < ' ' || s[i] == 0x7f)
			return frame_bad(e, what, "control character in the name");
	return frame_text_valid(s, len) ? TENON_OK : frame_bad(e, what, "not UTF-8");
}

static int frame_request_contents(const struct frame_request *f, struct error *e)
{
	int rc = frame_name_check("model", f->model, f->r.model_bytes, e);

	if (!rc)
		rc = frame_name_check("tenant", f->tenant, f->r.tenant_bytes, e);
	if (!rc)
		rc = frame_name_check("job", f->job, f->r.job_bytes, e);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < f->r.n_stop; i++) {
		if (!f->stop[i].len || f->stop[i].len > WIRE_MAX_STOP_BYTES)
			return frame_bad(e, "stop", "string of 0 or over 256 bytes");
		if (!frame_text_valid(f->stop[i].s, f->stop[i].len))
			return frame_bad(e, "stop", "not UTF-8");
	}
	for (uint32_t i = 0; i < f->r.n_bias; i++)
		if (f->bias[i].token < 0 || !in_range(f->bias[i].bias, -1e6f, 1e6f))
			return frame_bad(e, "bias", "negative token, or value not in -1e6..1e6");
	for (uint32_t i = 0; i < f->r.n_history; i++)
		if (f->history[i] < 0)
			return frame_bad(e, "history", "negative token");
	return TENON_OK;
}

static int frame_request_numbers(
	const struct wire_request *r, bool from_client, uint64_t max_payload, struct error *e)
{
	int rc = frame_request_ranges(r, e);

	return rc ? rc : frame_request_rules(r, from_client, max_payload, e);
}

int frame_request_check(
	const struct frame_request *f, bool from_client, uint64_t max_payload, struct error *e)
{
	int rc = frame_request_numbers(&f->r, from_client, max_payload, e);

	return rc ? rc : frame_request_contents(f, e);
}

static int frame_cut_off(struct error *e, const char *what)
{
	return error_set(e, TENON_E_PROTOCOL, "request: %s: cut off", what);
}

/* Finds the variable parts; counts were checked, so nothing here overflows. */
static int frame_request_parts(struct cursor *c, struct frame_request *f, struct error *e)
{
	f->model = cursor_take(c, f->r.model_bytes);
	if (!f->model)
		return frame_cut_off(e, "model");
	for (uint32_t i = 0; i < f->r.n_stop; i++) {
		const void *at = cursor_take(c, 4);

		if (!at)
			return frame_cut_off(e, "stop");
		memcpy(&f->stop[i].len, at, 4);
		f->stop[i].s = cursor_take(c, f->stop[i].len);
		if (!f->stop[i].s)
			return frame_cut_off(e, "stop");
	}
	f->bias = cursor_take(c, f->r.n_bias * (uint32_t)sizeof *f->bias);
	if (!f->bias)
		return frame_cut_off(e, "bias");
	f->history = cursor_take(c, f->r.n_history * (uint32_t)sizeof *f->history);
	if (!f->history)
		return frame_cut_off(e, "history");
	f->tenant = cursor_take(c, f->r.tenant_bytes);
	if (!f->tenant)
		return frame_cut_off(e, "tenant");
	f->job = cursor_take(c, f->r.job_bytes);
	return f->job ? TENON_OK : frame_cut_off(e, "job");
}

int frame_request_parse(const void *body, uint32_t bytes, uint16_t flags, bool from_client,
	uint64_t max_payload, struct frame_request *out, struct error *e)
{
	struct cursor c = { body, bytes };
	int rc;

	*out = (struct frame_request){ .model = NULL };
	if (flags & ~WIRE_LAST)
		return error_set(e, TENON_E_PROTOCOL, "request: unknown flags in the frame's head");
	rc = frame_request_fixed(&c, &out->r, e);
	if (!rc)
		rc = frame_request_numbers(&out->r, from_client, max_payload, e);
	if (!rc)
		rc = frame_request_parts(&c, out, e);
	if (!rc)
		rc = frame_request_contents(out, e);
	if (rc)
		return rc;
	if (c.left > out->r.payload_bytes || ((flags & WIRE_LAST) && c.left != out->r.payload_bytes))
		return error_set(e, TENON_E_PROTOCOL, "request: payload differs from its announced length");
	out->payload = c.at;
	out->payload_here = c.left;
	return TENON_OK;
}

/* ---- writing a request -------------------------------------------------------------------------------------- */

uint32_t frame_request_bytes(const struct frame_request *f)
{
	uint32_t n = (uint32_t)sizeof f->r + frame_padded(f->r.model_bytes);

	for (uint32_t i = 0; i < f->r.n_stop; i++)
		n += 4 + frame_padded(f->stop[i].len);
	return n + f->r.n_bias * (uint32_t)sizeof *f->bias + f->r.n_history * (uint32_t)sizeof *f->history +
		frame_padded(f->r.tenant_bytes) + frame_padded(f->r.job_bytes);
}

/* Appends `bytes` and zeroes up to the next multiple of 4. */
static uint8_t *frame_append(uint8_t *at, const void *from, uint32_t bytes)
{
	if (bytes)
		memcpy(at, from, bytes);
	memset(at + bytes, 0, frame_padded(bytes) - bytes);
	return at + frame_padded(bytes);
}

uint32_t frame_request_write(const struct frame_request *f, void *out, uint32_t room)
{
	struct wire_request r = f->r;
	uint32_t all = frame_request_bytes(f);
	uint8_t *at = out;

	if (all > room)
		return 0;
	r.size = sizeof r;
	at = frame_append(at, &r, sizeof r);
	at = frame_append(at, f->model, r.model_bytes);
	for (uint32_t i = 0; i < r.n_stop; i++) {
		at = frame_append(at, &f->stop[i].len, 4);
		at = frame_append(at, f->stop[i].s, f->stop[i].len);
	}
	at = frame_append(at, f->bias, r.n_bias * (uint32_t)sizeof *f->bias);
	at = frame_append(at, f->history, r.n_history * (uint32_t)sizeof *f->history);
	at = frame_append(at, f->tenant, r.tenant_bytes);
	(void)frame_append(at, f->job, r.job_bytes);
	return all;
}

/* ---- events ------------------------------------------------------------------------------------------------- */

static int frame_event_bad(const char *what, struct error *e)
{
	return error_set(e, TENON_E_PROTOCOL, "%s: length or contents do not agree", what);
}

static bool frame_tokens_valid(const void *body, uint32_t bytes)
{
	struct wire_tokens t;
	uint32_t left = bytes - (uint32_t)sizeof t;

	if (bytes < sizeof t)
		return false;
	memcpy(&t, body, sizeof t);
	return t.n_tokens <= left / 4 && t.text_bytes == left - 4 * t.n_tokens;
}

static bool frame_logprobs_valid(const void *body, uint32_t bytes)
{
	struct wire_logprobs l;

	if (bytes < sizeof l)
		return false;
	memcpy(&l, body, sizeof l);
	return l.n >= 1 && l.n <= WIRE_MAX_LOGPROBS + 1 && !l.reserved0 &&
		bytes == sizeof l + l.n * sizeof(struct wire_logprob);
}

static bool frame_embedding_valid(const void *body, uint32_t bytes)
{
	struct wire_embedding m;

	if (bytes < sizeof m)
		return false;
	memcpy(&m, body, sizeof m);
	return m.n >= 1 && m.n <= (bytes - sizeof m) / 4 && bytes == sizeof m + 4 * m.n;
}

static bool frame_error_valid(const void *body, uint32_t bytes)
{
	struct wire_error r;

	if (bytes < sizeof r)
		return false;
	memcpy(&r, body, sizeof r);
	return r.code < 0 && r.text_bytes <= WIRE_MAX_ERROR_BYTES && bytes == sizeof r + r.text_bytes;
}

static bool frame_done_valid(const void *body, uint32_t bytes)
{
	struct wire_done d;

	if (bytes != sizeof d)
		return false;
	memcpy(&d, body, sizeof d);
	return d.finish >= WIRE_FINISH_STOP && d.finish <= WIRE_FINISH_CONTEXT && !d.flags && !d.reserved0;
}

static bool frame_state_valid(const void *body, uint32_t bytes)
{
	struct wire_state s;

	if (bytes != sizeof s)
		return false;
	memcpy(&s, body, sizeof s);
	return s.phase >= WIRE_QUEUED && s.phase <= WIRE_RESUMED && s.permille <= 1000;
}

int frame_event_check(const struct wire_head *h, const void *body, struct error *e)
{
	uint32_t bytes = h->bytes - (uint32_t)sizeof *h;

	if (h->bytes < sizeof *h || h->flags)
		return frame_event_bad("frame", e);
	switch (h->type) {
	case WIRE_STATE:
		return frame_state_valid(body, bytes) ? TENON_OK : frame_event_bad("STATE", e);
	case WIRE_TOKENS:
		return frame_tokens_valid(body, bytes) ? TENON_OK : frame_event_bad("TOKENS", e);
	case WIRE_LOGPROBS:
		return frame_logprobs_valid(body, bytes) ? TENON_OK : frame_event_bad("LOGPROBS", e);
	case WIRE_DONE:
		return frame_done_valid(body, bytes) ? TENON_OK : frame_event_bad("DONE", e);
	case WIRE_ERROR:
		return frame_error_valid(body, bytes) ? TENON_OK : frame_event_bad("ERROR", e);
	case WIRE_PONG:
		return bytes <= 64 ? TENON_OK : frame_event_bad("PONG", e);
	case WIRE_EMBEDDING:
		return frame_embedding_valid(body, bytes) ? TENON_OK : frame_event_bad("EMBEDDING", e);
	case WIRE_HEALTH:
		return bytes == sizeof(struct wire_health) ? TENON_OK : frame_event_bad("HEALTH", e);
	default:
		return error_set(e, TENON_E_PROTOCOL, "unknown type of frame");
	}
}

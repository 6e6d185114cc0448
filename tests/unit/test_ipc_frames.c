/* SPDX-License-Identifier: Apache-2.0
 * Bodies of frames: what is written is read back, every cut and every wrong number has its typed error, and all rules
 * of V6 stand in one table.
 */
#include "tests/unit/unit.h"
#include "ipc/ipc.h"
#include <math.h>
#include <string.h>

#define MAX_PAYLOAD 1000u

struct built {
	_Alignas(8) uint8_t body[16384];
	uint32_t bytes;
};

static const struct wire_bias bias[] = { { 5, -3.5f }, { 0, 100 } };
static const int32_t history[] = { 1, 2, 3 };
static const char tenant[] = "acme-1"; /* its padding is looked at too */

static struct frame_request good(void)
{
	struct frame_request f = { .r = { .input = WIRE_TEXT,
					   .payload_bytes = 5,
					   .model_bytes = 6,
					   .n_stop = 2,
					   .n_bias = 2,
					   .priority = -100,
					   .top_p = 1,
					   .repeat_penalty = 1,
					   .seed = UINT64_MAX,
					   .n_logprobs = 20,
					   .flags = WIRE_R_IGNORE_EOS | WIRE_R_ECHO_SPECIAL,
					   .tenant_bytes = 6,
					   .tpot_ms = 40 },
		.model = "smollm",
		.tenant = tenant,
		.stop = { { "\n\n", 2 }, { "\xe2\x82\xac", 3 } },
		.bias = bias,
		.history = history };

	return f;
}

static struct built build(const struct frame_request *f, const void *payload, uint32_t payload_bytes)
{
	struct built b = { .bytes = frame_request_write(f, b.body, sizeof b.body) };

	assert_int_equal(b.bytes, frame_request_bytes(f));
	memcpy(b.body + b.bytes, payload, payload_bytes);
	b.bytes += payload_bytes;
	return b;
}

static int parse(
	const struct built *b, uint16_t flags, bool from_client, struct frame_request *out, struct error *e)
{
	return frame_request_parse(b->body, b->bytes, flags, from_client, MAX_PAYLOAD, out, e);
}

static void request_is_read_back(void **st)
{
	struct frame_request f = good(), g;
	struct built b = build(&f, "hello", 5);
	struct error e = { 0 };

	(void)st;
	if (parse(&b, WIRE_LAST, true, &g, &e))
		fail_msg("%s", e.text);
	f.r.size = sizeof f.r;
	assert_memory_equal(&f.r, &g.r, sizeof f.r);
	assert_memory_equal(g.model, "smollm", 6);
	assert_int_equal(g.stop[1].len, 3);
	assert_memory_equal(g.stop[0].s, "\n\n", 2);
	assert_memory_equal(g.stop[1].s, "\xe2\x82\xac", 3);
	assert_memory_equal(g.bias, bias, sizeof bias);
	assert_int_equal(g.r.tenant_bytes, 6);
	assert_memory_equal(g.tenant, tenant, 6);
	assert_int_equal(g.payload_here, 5);
	assert_memory_equal(g.payload, "hello", 5);
}

static void history_is_for_workers(void **st)
{
	struct frame_request f = good(), g;
	struct built b;

	(void)st;
	f.r.n_history = 3;
	f.r.history_text_bytes = 9;
	b = build(&f, "", 0);
	assert_int_equal(parse(&b, 0, false, &g, NULL), 0);
	assert_memory_equal(g.history, history, sizeof history);
	assert_int_equal(g.payload_here, 0);
	assert_int_equal(parse(&b, 0, true, &g, NULL), TENON_E_INVALID);
	f.r.n_history = 0;
	b = build(&f, "", 0);
	assert_int_equal(parse(&b, 0, false, &g, NULL), TENON_E_INVALID);
}

/* Every shorter body is refused, whether it came as the whole payload or as a beginning. */
static void every_cut_is_refused(void **st)
{
	struct frame_request f = good(), g;
	struct built b = build(&f, "hello", 5);
	uint32_t all = b.bytes;

	(void)st;
	for (b.bytes = 0; b.bytes < all; b.bytes++) {
		assert_int_equal(parse(&b, WIRE_LAST, true, &g, NULL), TENON_E_PROTOCOL);
		if (b.bytes < all - 5)
			assert_int_equal(parse(&b, 0, true, &g, NULL), TENON_E_PROTOCOL);
	}
	b.bytes = all + 1;
	assert_int_equal(parse(&b, WIRE_LAST, true, &g, NULL), TENON_E_PROTOCOL);
	assert_int_equal(parse(&b, 0, true, &g, NULL), TENON_E_PROTOCOL);
}

#define AT(member) offsetof(struct wire_request, member), sizeof(((struct wire_request *)NULL)->member)

static uint64_t bits(float v)
{
	uint32_t u;

	memcpy(&u, &v, sizeof u);
	return u;
}

static void every_wrong_number_is_typed(void **st)
{
	const struct {
		size_t at, len;
		uint64_t value;
		int rc;
		const char *word;
	} t[] = { { AT(size), 0, TENON_E_PROTOCOL, "size" }, { AT(size), 104, TENON_E_PROTOCOL, "size" },
		{ AT(size), 113, TENON_E_PROTOCOL, "size" }, { AT(size), 116, TENON_E_PROTOCOL, "size" },
		{ AT(size), UINT32_MAX, TENON_E_PROTOCOL, "size" },
		{ AT(size), 8192, TENON_E_PROTOCOL, "size" }, { AT(input), 0, TENON_E_INVALID, "input" },
		{ AT(input), 4, TENON_E_INVALID, "input" }, { AT(input), WIRE_IDS, TENON_E_INVALID, "ids" },
		{ AT(payload_bytes), 4, TENON_E_PROTOCOL, "payload" },
		{ AT(payload_bytes), 6, TENON_E_PROTOCOL, "payload" },
		{ AT(payload_bytes), MAX_PAYLOAD + 1, TENON_E_TOO_LONG, "limit of 1000" },
		{ AT(payload_bytes), UINT64_MAX, TENON_E_TOO_LONG, "payload" },
		{ AT(model_bytes), 256, TENON_E_INVALID, "model" },
		{ AT(model_bytes), UINT32_MAX, TENON_E_INVALID, "model" },
		{ AT(model_bytes), 255, TENON_E_PROTOCOL, "model" },
		{ AT(n_stop), 17, TENON_E_INVALID, "stop" },
		{ AT(n_stop), UINT32_MAX, TENON_E_INVALID, "stop" },
		{ AT(n_bias), 1025, TENON_E_INVALID, "bias" }, { AT(n_bias), 1024, TENON_E_PROTOCOL, "bias" },
		{ AT(n_bias), 0x20000000, TENON_E_INVALID, "bias" },
		{ AT(traffic_class), 2, TENON_E_INVALID, "traffic_class" },
		{ AT(priority), 101, TENON_E_INVALID, "priority" },
		{ AT(priority), (uint32_t)-101, TENON_E_INVALID, "priority" },
		{ AT(temperature), bits(-0.1f), TENON_E_INVALID, "temperature" },
		{ AT(temperature), bits(NAN), TENON_E_INVALID, "temperature" },
		{ AT(temperature), bits(INFINITY), TENON_E_INVALID, "temperature" },
		{ AT(top_p), bits(0), TENON_E_INVALID, "top_p" },
		{ AT(top_p), bits(1.01f), TENON_E_INVALID, "top_p" },
		{ AT(top_p), bits(NAN), TENON_E_INVALID, "top_p" },
		{ AT(min_p), bits(-1), TENON_E_INVALID, "min_p" },
		{ AT(min_p), bits(2), TENON_E_INVALID, "min_p" },
		{ AT(repeat_penalty), bits(0), TENON_E_INVALID, "repeat_penalty" },
		{ AT(repeat_penalty), bits(-INFINITY), TENON_E_INVALID, "repeat_penalty" },
		{ AT(presence_penalty), bits(101), TENON_E_INVALID, "presence_penalty" },
		{ AT(frequency_penalty), bits(NAN), TENON_E_INVALID, "frequency_penalty" },
		{ AT(penalty_window), 1 << 21, TENON_E_INVALID, "penalty_window" },
		{ AT(n_logprobs), 21, TENON_E_INVALID, "n_logprobs" },
		{ AT(flags), WIRE_R_AGAIN, TENON_E_INVALID, "flags" },
		{ AT(flags), 256, TENON_E_INVALID, "flags" },
		{ AT(flags), WIRE_R_COLLECT, TENON_E_INVALID, "job" },
		{ AT(deadline_ns), UINT64_MAX, TENON_E_INVALID, "deadline" },
		{ AT(job_bytes), 64, TENON_E_INVALID, "job" }, { AT(job_bytes), 3, TENON_E_INVALID, "job" },
		{ AT(reserved0), 1, TENON_E_INVALID, "reserved0" },
		{ AT(flags), WIRE_R_DURABLE, TENON_E_INVALID, "durable" },
		{ AT(flags), 1u << 31, TENON_E_INVALID, "flags" },
		{ AT(flags), WIRE_R_EMBED, TENON_E_INVALID, "embed" },
		{ AT(n_history), 1, TENON_E_INVALID, "history" },
		{ AT(n_history), UINT32_MAX, TENON_E_INVALID, "history" },
		{ AT(arrived_s), 1, TENON_E_INVALID, "arrived_s" },
		{ AT(history_text_bytes), 1, TENON_E_INVALID, "history" },
		{ AT(tenant_bytes), 64, TENON_E_INVALID, "tenant" },
		{ AT(tenant_bytes), UINT32_MAX, TENON_E_INVALID, "tenant" },
		{ AT(tenant_weight), 1, TENON_E_INVALID, "tenant_weight" },
		{ AT(ttft_ms), 3600001, TENON_E_INVALID, "ttft_ms" },
		{ AT(tpot_ms), UINT32_MAX, TENON_E_INVALID, "tpot_ms" } };
	struct frame_request f = good(), g;
	struct error e;

	(void)st;
	for (size_t i = 0; i < COUNT_OF(t); i++) {
		struct built b = build(&f, "hello", 5);
		int rc;

		memcpy(b.body + t[i].at, &t[i].value, t[i].len);
		rc = parse(&b, WIRE_LAST, true, &g, &e);
		if (rc != t[i].rc || e.code != rc || !strstr(e.text, t[i].word))
			fail_msg("row %zu: code %d, '%s' lacks '%s'", i, rc, e.text, t[i].word);
	}
}

static void wrong_contents_are_typed(void **st)
{
	struct frame_request f = good(), g;
	struct built b;
	struct wire_bias bad = { -1, 0 };

	(void)st;
	b = build(&f, "hello", 5);
	assert_int_equal(parse(&b, 2, true, &g, NULL), TENON_E_PROTOCOL);
	assert_int_equal(parse(&b, WIRE_LAST | 0x8000, true, &g, NULL), TENON_E_PROTOCOL);
	f.model = "smo\0lm";
	b = build(&f, "hello", 5);
	assert_int_equal(parse(&b, WIRE_LAST, true, &g, NULL), TENON_E_INVALID);
	f.model = "smo\xfflm";
	b = build(&f, "hello", 5);
	assert_int_equal(parse(&b, WIRE_LAST, true, &g, NULL), TENON_E_INVALID);
	f = good();
	f.tenant = "ac\nme1";
	b = build(&f, "hello", 5);
	assert_int_equal(parse(&b, WIRE_LAST, true, &g, NULL), TENON_E_INVALID);
	f = good();
	f.stop[0].len = 0;
	b = build(&f, "hello", 5);
	assert_int_equal(parse(&b, WIRE_LAST, true, &g, NULL), TENON_E_INVALID);
	f = good();
	f.stop[1].len = 2;
	b = build(&f, "hello", 5);
	assert_int_equal(parse(&b, WIRE_LAST, true, &g, NULL), TENON_E_INVALID);
	f = good();
	f.r.n_bias = 1;
	f.bias = &bad;
	b = build(&f, "hello", 5);
	assert_int_equal(parse(&b, WIRE_LAST, true, &g, NULL), TENON_E_INVALID);
	bad = (struct wire_bias){ 1, NAN };
	b = build(&f, "hello", 5);
	assert_int_equal(parse(&b, WIRE_LAST, true, &g, NULL), TENON_E_INVALID);
	f = good();
	f.r.n_history = 1;
	f.history = &bad.token;
	bad.token = -5;
	b = build(&f, "", 0);
	assert_int_equal(parse(&b, 0, false, &g, NULL), TENON_E_INVALID);
}

/* A job's name goes with durable and collect, and collecting takes nothing else. */
static void jobs_have_names(void **st)
{
	struct frame_request f = good(), g;
	struct built b;

	(void)st;
	f.r.traffic_class = WIRE_OFFLINE;
	f.r.flags = WIRE_R_DURABLE;
	f.r.job_bytes = 5;
	f.job = "night";
	b = build(&f, "hello", 5);
	assert_int_equal(parse(&b, WIRE_LAST, true, &g, NULL), TENON_OK);
	assert_memory_equal(g.job, "night", 5);
	f.job = "ni\nht";
	b = build(&f, "hello", 5);
	assert_int_equal(parse(&b, WIRE_LAST, true, &g, NULL), TENON_E_INVALID);
	f.job = "night";
	f.r.flags = WIRE_R_COLLECT;
	b = build(&f, "hello", 5);
	assert_int_equal(parse(&b, WIRE_LAST, true, &g, NULL), TENON_E_INVALID);
	f.r.payload_bytes = 0;
	b = build(&f, "", 0);
	assert_int_equal(parse(&b, WIRE_LAST, true, &g, NULL), TENON_OK);
	f.r.flags |= WIRE_R_PIN;
	b = build(&f, "", 0);
	assert_int_equal(parse(&b, WIRE_LAST, true, &g, NULL), TENON_E_INVALID);
}

/* Padding after a name of 6 bytes is checked like everything reserved. */
static void padding_must_be_zero(void **st)
{
	struct frame_request f = good(), g;
	struct built b = build(&f, "hello", 5);

	(void)st;
	b.body[sizeof f.r + 7] = 1;
	assert_int_equal(parse(&b, WIRE_LAST, true, &g, NULL), TENON_E_PROTOCOL);
}

/* A newer sender's fixed part is longer: fine while what we do not know is zero. */
static void longer_fixed_part_must_end_in_zeros(void **st)
{
	struct frame_request f = good(), g;
	struct built b = build(&f, "hello", 5);
	uint32_t size = sizeof f.r + 16;

	(void)st;
	memmove(b.body + size, b.body + sizeof f.r, b.bytes - sizeof f.r);
	memset(b.body + sizeof f.r, 0, 16);
	memcpy(b.body, &size, 4);
	b.bytes += 16;
	assert_int_equal(parse(&b, WIRE_LAST, true, &g, NULL), 0);
	assert_memory_equal(g.model, "smollm", 6);
	for (int i = 0; i < 16; i++) {
		b.body[sizeof f.r + i] = 1;
		assert_int_equal(parse(&b, WIRE_LAST, true, &g, NULL), TENON_E_VERSION);
		b.body[sizeof f.r + i] = 0;
	}
}

/* A sender that knows less: what it lacks counts as zero. */
static void shorter_fixed_part_is_an_older_sender(void **st)
{
	struct frame_request f = { .r = { .input = WIRE_TEXT,
					   .payload_bytes = 2,
					   .top_p = 1,
					   .repeat_penalty = 1 } },
			     g;
	struct built b = build(&f, "hi", 2);
	uint32_t old = 112;

	(void)st;
	memcpy(b.body, &old, sizeof old);
	memmove(b.body + old, b.body + sizeof f.r, b.bytes - sizeof f.r);
	b.bytes -= (uint32_t)sizeof f.r - old;
	assert_int_equal(parse(&b, WIRE_LAST, true, &g, NULL), 0);
	assert_int_equal(g.r.tenant_bytes + g.r.ttft_ms + g.r.tpot_ms, 0);
	assert_memory_equal(g.payload, "hi", 2);
}

static void writing_needs_room(void **st)
{
	struct frame_request f = good();
	uint8_t out[1024];

	(void)st;
	assert_int_equal(frame_request_write(&f, out, frame_request_bytes(&f) - 1), 0);
	assert_int_equal(frame_request_write(&f, out, frame_request_bytes(&f)), frame_request_bytes(&f));
}

/* ---- events ------------------------------------------------------------------------------------------------- */

static int event(uint16_t type, const void *body, uint32_t bytes)
{
	struct wire_head h = { .bytes = bytes + (uint32_t)sizeof h, .type = type };
	void *copy = malloc(bytes ? bytes : 1);
	int rc;

	memcpy(copy, body, bytes);
	rc = frame_event_check(&h, copy, NULL);
	free(copy);
	return rc;
}

/* Each good body is good, and no shorter or longer one is. */
static void events_are_exactly_as_long_as_they_say(void **st)
{
	struct {
		struct wire_tokens t;
		int32_t ids[2];
		char text[5];
	} k = { { 2, 5 }, { 1, 2 }, "abcd" };
	struct {
		struct wire_logprobs l;
		struct wire_logprob p[3];
	} l = { { 3, 0 }, { { 1, -1 } } };
	struct {
		struct wire_error e;
		char text[3];
	} r = { { TENON_E_IO, 3 }, "io" };
	struct {
		struct wire_embedding m;
		float v[4];
	} m = { { 4, 9 }, { 1 } };
	struct wire_done d = { .finish = WIRE_FINISH_LENGTH };
	struct wire_state s = { WIRE_RESUMED, 1000 };
	struct wire_health h = { 1, 2, 3, 4 };
	const struct {
		uint16_t type;
		const void *body;
		uint32_t bytes;
	} t[] = { { WIRE_TOKENS, &k, 21 }, { WIRE_LOGPROBS, &l, sizeof l }, { WIRE_ERROR, &r, 11 },
		{ WIRE_EMBEDDING, &m, sizeof m }, { WIRE_DONE, &d, sizeof d }, { WIRE_STATE, &s, sizeof s },
		{ WIRE_HEALTH, &h, sizeof h } };
	uint8_t longer[512];

	(void)st;
	for (size_t i = 0; i < COUNT_OF(t); i++) {
		memset(longer, 0, sizeof longer);
		memcpy(longer, t[i].body, t[i].bytes);
		assert_int_equal(event(t[i].type, longer, t[i].bytes), 0);
		for (uint32_t n = 0; n < t[i].bytes + 9; n++)
			if (n != t[i].bytes)
				assert_int_equal(event(t[i].type, longer, n), TENON_E_PROTOCOL);
	}
}

static void wrong_events_are_refused(void **st)
{
	struct wire_tokens k[] = { { UINT32_MAX, 0 }, { 0x40000000, 0 }, { 0, UINT32_MAX }, { 1, 0 } };
	struct wire_logprobs l[] = { { 0, 0 }, { 22, 0 }, { UINT32_MAX, 0 }, { 0x20000000, 0 } };
	struct wire_error r[] = { { 0, 0 }, { 1, 0 }, { -1, UINT32_MAX }, { -1, WIRE_MAX_ERROR_BYTES + 1 } };
	struct wire_embedding m[] = { { 0, 0 }, { UINT32_MAX, 0 }, { 0x40000000, 0 } };
	struct wire_state s[] = { { 0, 0 }, { WIRE_RESUMED + 1, 0 }, { WIRE_QUEUED, 1001 } };
	struct wire_done d[] = { { .finish = 0 }, { .finish = 5 }, { .finish = 1, .flags = 1 },
		{ .finish = 1, .reserved0 = 1 } };
	static const uint16_t unknown[] = { 0, WIRE_BEGIN, WIRE_DATA, WIRE_PING, 6, 15, 23, WIRE_PAUSE,
		WIRE_ADMIN, 0xffff };
	struct wire_head h = { .bytes = sizeof h + 8, .type = WIRE_STATE, .flags = 1 };
	char zero[80] = { 0 };

	(void)st;
	for (size_t i = 0; i < COUNT_OF(k); i++)
		assert_int_equal(event(WIRE_TOKENS, &k[i], sizeof k[i]), TENON_E_PROTOCOL);
	for (size_t i = 0; i < COUNT_OF(l); i++)
		assert_int_equal(event(WIRE_LOGPROBS, &l[i], sizeof l[i]), TENON_E_PROTOCOL);
	for (size_t i = 0; i < COUNT_OF(r); i++)
		assert_int_equal(event(WIRE_ERROR, &r[i], sizeof r[i]), TENON_E_PROTOCOL);
	for (size_t i = 0; i < COUNT_OF(m); i++)
		assert_int_equal(event(WIRE_EMBEDDING, &m[i], sizeof m[i]), TENON_E_PROTOCOL);
	for (size_t i = 0; i < COUNT_OF(s); i++)
		assert_int_equal(event(WIRE_STATE, &s[i], sizeof s[i]), TENON_E_PROTOCOL);
	for (size_t i = 0; i < COUNT_OF(d); i++)
		assert_int_equal(event(WIRE_DONE, &d[i], sizeof d[i]), TENON_E_PROTOCOL);
	for (size_t i = 0; i < COUNT_OF(unknown); i++)
		assert_int_equal(event(unknown[i], zero, 8), TENON_E_PROTOCOL);
	assert_int_equal(event(WIRE_PONG, zero, 64), 0);
	assert_int_equal(event(WIRE_PONG, zero, 65), TENON_E_PROTOCOL);
	assert_int_equal(frame_event_check(&h, zero, NULL), TENON_E_PROTOCOL);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(request_is_read_back),
		cmocka_unit_test(history_is_for_workers), cmocka_unit_test(every_cut_is_refused),
		cmocka_unit_test(every_wrong_number_is_typed), cmocka_unit_test(wrong_contents_are_typed),
		cmocka_unit_test(jobs_have_names), cmocka_unit_test(padding_must_be_zero),
		cmocka_unit_test(longer_fixed_part_must_end_in_zeros), cmocka_unit_test(writing_needs_room),
		cmocka_unit_test(shorter_fixed_part_is_an_older_sender),
		cmocka_unit_test(events_are_exactly_as_long_as_they_say),
		cmocka_unit_test(wrong_events_are_refused) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 * worker_link.h: frames to and from the worker, commands and replies, the watchdog, death and replacement. Loop thread.
 */
#include "daemon/daemon.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { PUMP_FRAMES = 256, JSON_MAX_BYTES = 64 << 10, TOK_RING_BYTES = 256 << 10 };
#define RETRY_NS	 NS_PER_MS
#define SETTLED_NS	 (60 * NS_PER_S) /* a worker that lived so long was a good one */
#define WATCH_NS	 NS_PER_S
#define THREAD_WAIT_NS	 (5 * NS_PER_S)
#define TRANSPORT_MAX_NS NS_PER_S /* more is no transport but a lie or a stopped machine */

const char *worker_state_name(enum worker_state s)
{
	static const char *const names[] = { "down", "starting", "up", "ended" };

	return names[s];
}

bool worker_link_hopeless(const struct worker_link *w)
{
	return w->state != WORKER_UP && w->n_early >= w->d->conf.worker.deaths;
}

void worker_ends_free(struct worker_ends *ends)
{
	if (!ends)
		return;
	link_close(&ends->io);
	link_close(&ends->tok);
	box_close(&ends->box);
	mem_free(ends);
}

/* ---- to the worker ------------------------------------------------------------------------------------------------------ */

static bool put_control(struct worker_link *w, uint16_t type, const struct request *r, bool *bad)
{
	return ring_put(&w->io.link.out, type, 0, r->wid, 0, bad) != NULL;
}

/* What it has not been told yet about one request. False: the ring is full. */
static bool put_controls(struct worker_link *w, struct request *r, bool *bad)
{
	if (r->cancel_wanted)
		return put_control(w, WIRE_CANCEL, r, bad);
	if (r->pause_wanted == r->paused)
		return true;
	if (!put_control(w, r->pause_wanted ? WIRE_PAUSE : WIRE_RESUME, r, bad))
		return false;
	r->paused = r->pause_wanted;
	return true;
}

/* False: the ring is full. */
static bool put_all(struct worker_link *w, bool *bad)
{
	struct node *n;

	while ((n = list_first(&w->controls)) != NULL) {
		if (!put_controls(w, CONTAINER_OF(n, struct request, control), bad))
			return false;
		node_remove(n);
	}
	while ((n = list_first(&w->outgoing)) != NULL) {
		struct request *r = CONTAINER_OF(n, struct request, node);

		if (!request_put(r, &w->io.link.out, bad))
			return false;
		node_remove(n);
		if (r->pause_wanted)
			worker_link_control(w, r);
	}
	return true;
}

static uint64_t watch_interval(const struct worker_link *w)
{
	return MIN_OF(WATCH_NS, w->d->conf.worker.step_timeout_ms * NS_PER_MS / 4);
}

static void watch_closely(struct worker_link *w)
{
	if (!w->watchdog.place)
		(void)timer_set(&w->d->loop.timers, &w->watchdog, w->d->loop.now_ns + watch_interval(w));
}

static void flush(struct task *t)
{
	struct worker_link *w = CONTAINER_OF(t, struct worker_link, flush);
	bool bad = false;

	if (w->state != WORKER_UP && w->state != WORKER_STARTING)
		return;
	if (w->state == WORKER_UP && !put_all(w, &bad))
		(void)timer_set(&w->d->loop.timers, &w->retry, w->d->loop.now_ns + RETRY_NS);
	if (bad)
		worker_link_kill(w, "broke the protocol: impossible ring indices");
	else
		link_flush(&w->io.link);
	watch_closely(w);
}

static void on_retry(struct timer *t, uint64_t now_ns)
{
	(void)now_ns;
	flush(&CONTAINER_OF(t, struct worker_link, retry)->flush);
}

void worker_link_submit(struct worker_link *w, struct request *r)
{
	list_append(&w->outgoing, &r->node);
	loop_defer(&w->d->loop, &w->flush);
}

void worker_link_control(struct worker_link *w, struct request *r)
{
	if (!node_linked(&r->control))
		list_append(&w->controls, &r->control);
	loop_defer(&w->d->loop, &w->flush);
}

/* ---- commands ------------------------------------------------------------------------------------------------------------- */

static void call_end(struct worker_call *c, const json_t *reply, const struct error *e)
{
	worker_reply_fn *fn = c->fn;
	void *ctx = c->ctx;

	timer_clear(&c->w->d->loop.timers, &c->timeout);
	c->id = 0;
	fn(c->w->d, ctx, reply, e);
}

static void on_call_timeout(struct timer *t, uint64_t now_ns)
{
	struct error e;

	(void)now_ns;
	(void)error_set(&e, TENON_E_TIMEOUT, "worker: no answer in time");
	call_end(CONTAINER_OF(t, struct worker_call, timeout), NULL, &e);
}

static struct worker_call *call_slot(struct worker_link *w, uint64_t id)
{
	for (size_t i = 0; i < WORKER_CALLS_MAX; i++)
		if (w->calls[i].id == id)
			return &w->calls[i];
	return NULL;
}

static bool put_json(struct worker_link *w, const json_t *cmd, uint64_t id)
{
	char *text = cmd ? json_dumps(cmd, JSON_COMPACT) : NULL;
	size_t len = text ? strlen(text) : 0;
	bool bad = false;
	void *at = NULL;

	if (len && len <= JSON_MAX_BYTES)
		at = ring_put(&w->io.link.out, WIRE_ADMIN, 0, id, (uint32_t)len, &bad);
	if (at)
		memcpy(at, text, len);
	free(text);
	return at != NULL;
}

void worker_link_call(struct worker_link *w, json_t *cmd, uint64_t timeout_ms, worker_reply_fn *fn, void *ctx)
{
	bool up = w->state == WORKER_UP || w->state == WORKER_STARTING;
	struct worker_call *c = up ? call_slot(w, 0) : NULL;
	uint64_t id = w->next_call + 1;
	struct error e;

	if (c && put_json(w, cmd, id)) {
		w->next_call = id;
		*c = (struct worker_call){
			.id = id, .fn = fn, .ctx = ctx, .w = w, .timeout.fire = on_call_timeout
		};
		if (timeout_ms)
			(void)timer_set(
				&w->d->loop.timers, &c->timeout, w->d->loop.now_ns + timeout_ms * NS_PER_MS);
		loop_defer(&w->d->loop, &w->flush);
		json_decref(cmd);
		return;
	}
	json_decref(cmd);
	(void)error_set(&e, up ? TENON_E_BUSY : TENON_E_GONE,
		up ? "worker: too many commands are waiting" : "worker: none is running");
	fn(w->d, ctx, NULL, &e);
}

static int on_reply(struct worker_link *w, uint64_t id, const uint8_t *body, uint32_t bytes, struct error *e)
{
	struct worker_call *c = id ? call_slot(w, id) : NULL;
	json_t *reply, *err;
	struct error why;

	if (id > w->next_call || !id)
		return error_set(e, TENON_E_PROTOCOL, "reply to a command that was never given");
	if (!c)
		return TENON_OK; /* timed out meanwhile */
	reply = json_loadb((const char *)body, bytes, 0, NULL);
	if (!json_is_object(reply)) {
		json_decref(reply);
		return error_set(e, TENON_E_PROTOCOL, "reply is no JSON object");
	}
	err = json_object_get(reply, "error");
	if (json_is_object(err)) {
		json_int_t code = json_integer_value(json_object_get(err, "code"));
		const char *text = json_string_value(json_object_get(err, "text"));

		(void)error_set(&why, code < 0 && code > -100 ? (int)code : TENON_E_INTERNAL, "%s",
			text ? text : "worker failed");
		call_end(c, NULL, &why);
	} else {
		call_end(c, reply, NULL);
	}
	json_decref(reply);
	return TENON_OK;
}

static void end_calls(struct worker_link *w)
{
	struct error e;

	(void)error_set(&e, TENON_E_GONE, "worker: it has died");
	for (size_t i = 0; i < WORKER_CALLS_MAX; i++)
		if (w->calls[i].id)
			call_end(&w->calls[i], NULL, &e);
}

/* ---- from the worker -------------------------------------------------------------------------------------------------------- */

static int on_frame(struct worker_link *w, const struct wire_head *h, const uint8_t *body, struct error *e)
{
	uint32_t bytes = h->bytes - (uint32_t)sizeof *h;

	switch (h->type) {
	case WIRE_ADMIN_REPLY:
		return on_reply(w, h->id, body, bytes, e);
	case WIRE_PONG:
		return TENON_OK;
	case WIRE_HEALTH:
		if (frame_event_check(h, body, e))
			return TENON_E_PROTOCOL;
		memcpy(&w->health, body, sizeof w->health);
		return TENON_OK;
	default:
		return request_event(w->d, h, body, e);
	}
}

static int take_frames(struct worker_ring *ring, bool *more_than_health, struct error *e)
{
	struct worker_link *w = ring->w;
	struct daemon *d = w->d;
	struct wire_head h;
	int rc = TENON_OK;

	for (int n = 0; n < PUMP_FRAMES && !rc; n++) {
		rc = ring_take(&ring->link.in, &h, d->frame, d->frame_room);
		if (rc == TENON_E_PROTOCOL || rc == TENON_E_TOO_LONG)
			(void)error_set(e, TENON_E_PROTOCOL, "ring: impossible indices or length");
		else if (!rc)
			rc = on_frame(w, &h, d->frame, e);
		*more_than_health |= !rc && h.type != WIRE_HEALTH;
	}
	ring_consumed(&ring->link.in);
	return rc;
}

static struct worker_ring *of_source(struct source *s) { return CONTAINER_OF(s, struct worker_ring, source); }
static bool source_ready(struct source *s) { return ring_ready(&of_source(s)->link.in); }

static bool source_pump(struct source *s)
{
	struct worker_ring *ring = of_source(s);
	struct worker_link *w = ring->w;
	uint64_t now_ns = w->d->loop.now_ns, published_ns = ring == &w->tok ? box_published_ns(&w->box) : 0;
	struct error e = { 0 };
	bool active = false;
	char why[300];
	int rc;

	w->heard_ns = now_ns;
	w->transport_ns = published_ns && published_ns < now_ns && now_ns - published_ns < TRANSPORT_MAX_NS
		? now_ns - published_ns
		: 0;
	rc = take_frames(ring, &active, &e);
	if (rc && rc != TENON_E_AGAIN) {
		(void)snprintf(why, sizeof why, "broke the protocol: %s", e.text);
		worker_link_kill(w, why);
	}
	return active;
}

static bool source_doze(struct source *s)
{
	return park_begin(&of_source(s)->link.tx, &of_source(s)->link.in);
}
static void source_rise(struct source *s) { park_end(&of_source(s)->link.tx); }

static void on_bell(struct watch *watch, uint32_t events)
{
	struct worker_ring *ring = CONTAINER_OF(watch, struct worker_ring, bell);

	(void)events;
	bell_drain(ring->link.bell);
	loop_wake(&ring->w->d->loop, &ring->source);
}

/* What it writes to stderr (aborts, sanitizers) is not the log's, but its last words are worth keeping. */
static void on_words(struct watch *watch, uint32_t events)
{
	struct worker_link *w = CONTAINER_OF(watch, struct worker_link, words_fd);
	char part[512];
	ssize_t n = read(watch->fd, part, sizeof part);
	size_t keep, room = sizeof w->words - 1;

	(void)events;
	if (n <= 0) {
		int fd = watch->fd;

		loop_unwatch(&w->d->loop, watch);
		(void)close(fd);
		return;
	}
	for (ssize_t i = 0; i < n; i++)
		if ((unsigned char)part[i] < ' ' || (unsigned char)part[i] > '~')
			part[i] = ' ';
	keep = MIN_OF(w->words_len, room - (size_t)n);
	memmove(w->words, w->words + w->words_len - keep, keep);
	memcpy(w->words + keep, part, (size_t)n);
	w->words_len = keep + (size_t)n;
	w->words[w->words_len] = 0;
}

/* ---- start --------------------------------------------------------------------------------------------------------------------- */

static void gone(struct worker_link *w, const char *text, bool outsider);

static void on_end(struct watch *watch, uint32_t events)
{
	struct worker_link *w = CONTAINER_OF(watch, struct worker_link, end);
	char text[160];
	bool outsider = false;

	(void)events;
	if (worker_wait(w, text, sizeof text, &outsider))
		gone(w, text, outsider);
}

static json_t *setup_command(const struct daemon *d)
{
	const struct conf *c = &d->conf;
	json_t *dirs = json_array(), *options = json_array();

	for (uint32_t i = 0; i < c->n_plugin_dirs; i++)
		(void)json_array_append_new(dirs, json_string(c->plugin_dirs[i]));
	for (uint32_t i = 0; i < c->n_plugin_options; i++)
		(void)json_array_append_new(options,
			json_pack("[s,s,s]", c->plugin_options[i].plugin, c->plugin_options[i].key,
				c->plugin_options[i].value));
	return json_pack("{s:s, s:s, s:I, s:o, s:s, s:o}", "cmd", "setup", "backend", c->backend, "device",
		(json_int_t)c->device, "plugin_dirs", dirs, "plugin_cache_dir", c->plugin_cache_dir,
		"options", options);
}

static void on_setup(struct daemon *d, void *ctx, const json_t *reply, const struct error *e)
{
	struct worker_link *w = ctx;

	if (w->state != WORKER_STARTING || (!reply && e->code == TENON_E_GONE))
		return;
	if (!reply) { /* nothing that another try would change soon */
		w->n_early = d->conf.worker.deaths;
		(void)error_set(&w->last_death, TENON_E_BACKEND, "worker: %s", e->text);
		worker_link_kill(w, e->text);
		return;
	}
	w->state = WORKER_UP;
	w->n_early = 0;
	json_decref(w->about);
	w->about = json_deep_copy(reply);
	TOPIC_LOG(d, LOG_INFO, "worker", "up pid=%d backend=%s in_ms=%llu", w->pid,
		json_string_value(json_object_get(reply, "backend"))
			? json_string_value(json_object_get(reply, "backend"))
			: "?",
		(unsigned long long)((d->loop.now_ns - w->started_ns) / NS_PER_MS));
	loop_defer(&d->loop, &w->flush);
	models_worker_up(d);
}

static int ring_open(struct worker_ring *ring, struct link *peer, uint64_t bytes, struct error *e)
{
	struct loop *l = &ring->w->d->loop;
	int rc = link_pair(bytes, &ring->link, peer, e);

	if (!rc)
		rc = loop_watch(l, &ring->bell, bell_fd(ring->link.bell), EPOLLIN, e);
	if (!rc)
		loop_add(l, &ring->source);
	return rc;
}

static void ring_close(struct worker_ring *ring)
{
	loop_unwatch(&ring->w->d->loop, &ring->bell);
	loop_remove(&ring->w->d->loop, &ring->source);
	link_close(&ring->link);
}

static int launch(struct worker_link *w, struct error *e)
{
	struct worker_ends *ends = mem_zalloc(MEM_DAEMON, 1, sizeof *ends);
	int rc, fd;

	if (!ends)
		return error_set(e, TENON_E_NOMEM, "worker: out of memory");
	rc = box_create(&w->box, e);
	if (!rc)
		rc = ring_open(&w->io, &ends->io, w->d->conf.worker.ring_bytes, e);
	if (!rc)
		rc = ring_open(&w->tok, &ends->tok, TOK_RING_BYTES, e);
	fd = rc ? -1 : dup(w->box.fd);
	if (!rc)
		rc = fd < 0 ? error_set(e, TENON_E_NOMEM, "worker: no descriptor")
			    : box_open(&ends->box, fd, e);
	if (rc) {
		worker_ends_free(ends);
		return rc;
	}
	return w->start(w, ends, e);
}

void worker_link_start(struct worker_link *w)
{
	struct error e = { 0 };

	w->state = WORKER_STARTING;
	w->n_starts++;
	w->started_ns = w->heard_ns = w->d->loop.now_ns;
	w->done_before = w->d->requests.n_done;
	w->oom_kills = worker_count_oom_kills();
	w->words_len = 0;
	w->words[0] = w->why[0] = 0;
	w->load_hung = false;
	w->health = (struct wire_health){ 0 };
	if (launch(w, &e)) {
		gone(w, e.text, true);
		return;
	}
	watch_closely(w);
	worker_link_call(w, setup_command(w->d), 0, on_setup, w);
}

static void on_restart(struct timer *t, uint64_t now_ns)
{
	(void)now_ns;
	worker_link_start(CONTAINER_OF(t, struct worker_link, restart));
}

/* ---- death ----------------------------------------------------------------------------------------------------------------------- */

/* What it published before it died is as good as ever. */
static void take_rest(struct worker_ring *ring)
{
	struct error e;
	bool active = false;

	if (ring->link.in.capacity)
		for (int n = 0; n < 64 && ring_ready(&ring->link.in) && !take_frames(ring, &active, &e); n++)
			;
}

static void next_backoff(struct worker_link *w, bool early)
{
	const struct conf *c = &w->d->conf;
	bool good = w->d->requests.n_done > w->done_before || w->d->loop.now_ns - w->started_ns > SETTLED_NS;

	if (good || !w->backoff_ms)
		w->backoff_ms = c->worker.backoff_ms;
	else
		w->backoff_ms = MIN_OF(2 * w->backoff_ms, c->worker.backoff_max_ms);
	w->n_early = early ? MIN_OF(w->n_early + 1, UINT32_MAX / 2) : 0;
}

static void describe(struct worker_link *w, const struct box_reading *box, const char *text)
{
	const char *words = w->words + (w->words_len > 100 ? w->words_len - 100 : 0);

	(void)error_set(&w->last_death, TENON_E_BACKEND, "worker: %s%s%s%s%s%s%s", *w->why ? w->why : text,
		box->phase > BOX_START ? ", in " : "",
		box->phase > BOX_START ? box_phase_name(box->phase) : "", *box->model ? " of " : "",
		box->model, *words ? "; last words: " : "", words);
}

/* A load beside the steps is the likelier cause of a death than a step: files are strange more often than steps are. When
 * we have killed it for a step that hung, the step is. */
static void blame_load(const struct worker_link *w, struct box_reading *box)
{
	if (!*box->beside || (*w->why && !w->load_hung))
		return;
	box->phase = BOX_LOAD;
	memcpy(box->model, box->beside, sizeof box->model);
}

static void gone(struct worker_link *w, const char *text, bool outsider)
{
	struct daemon *d = w->d;
	bool early = w->state == WORKER_STARTING, ours = *w->why != 0;
	struct box_reading box = { .phase = BOX_IDLE };

	while (w->words_fd.fd >= 0)
		on_words(&w->words_fd, 0);
	take_rest(&w->io);
	take_rest(&w->tok);
	if (w->box.page)
		box_read(&w->box, &box);
	blame_load(w, &box);
	describe(w, &box, text);
	w->n_deaths++;
	next_backoff(w, early);
	w->state = WORKER_DOWN;
	loop_unwatch(&d->loop, &w->end);
	ring_close(&w->io);
	ring_close(&w->tok);
	box_close(&w->box);
	timer_clear(&d->loop.timers, &w->watchdog);
	timer_clear(&d->loop.timers, &w->retry);
	w->pid = 0;
	TOPIC_LOG(d, LOG_ERROR, "worker", "%s; the next one starts in %u ms", w->last_death.text,
		w->backoff_ms);
	end_calls(w);
	models_worker_down(d, *box.model && box.phase > BOX_START && (ours || !outsider) ? box.model : NULL,
		w->last_death.text);
	requests_requeue(d);
	if (worker_link_hopeless(w))
		models_worker_failed(d, TENON_E_BACKEND, w->last_death.text);
	(void)timer_set(&d->loop.timers, &w->restart, d->loop.now_ns + w->backoff_ms * NS_PER_MS);
}

void worker_link_kill(struct worker_link *w, const char *why)
{
	if (*w->why || w->state == WORKER_DOWN || w->state == WORKER_ENDED)
		return;
	(void)snprintf(w->why, sizeof w->why, "%s", why);
	TOPIC_LOG(w->d, LOG_ERROR, "worker", "pid=%d is replaced: %s", w->pid, why);
	worker_terminate(w);
}

static bool any_call(const struct worker_link *w)
{
	for (size_t i = 0; i < WORKER_CALLS_MAX; i++)
		if (w->calls[i].id)
			return true;
	return false;
}

/* A step or load beyond its time, or an IO thread that has fallen silent. */
static void on_watchdog(struct timer *t, uint64_t now_ns)
{
	struct worker_link *w = CONTAINER_OF(t, struct worker_link, watchdog);
	const struct conf *c = &w->d->conf;
	uint64_t step_ns = c->worker.step_timeout_ms * NS_PER_MS,
		 load_ns = c->worker.load_timeout_s * NS_PER_S, most, took;
	bool busy = w->state == WORKER_STARTING || w->d->requests.n_at_worker || any_call(w);
	struct box_reading box;
	char why[160];

	box_read(&w->box, &box);
	most = box.phase == BOX_STEP ? step_ns : load_ns;
	took = box.phase != BOX_IDLE && box.since_ns && box.since_ns < now_ns ? now_ns - box.since_ns : 0;
	if (box.beside_ns && box.beside_ns < now_ns && now_ns - box.beside_ns > load_ns) {
		w->load_hung = true;
		worker_link_kill(w, "hung: load beside the steps");
	} else if (took > most) {
		(void)snprintf(why, sizeof why, "hung: %s for %llu ms", box_phase_name(box.phase),
			(unsigned long long)(took / NS_PER_MS));
		worker_link_kill(w, why);
	} else if (w->state == WORKER_UP && !ring_ready(&w->io.link.in) &&
		now_ns - w->heard_ns > step_ns + 2 * NS_PER_S) {
		worker_link_kill(w, "hung: its IO thread is silent");
	}
	if (busy || box.phase != BOX_IDLE || box.beside_ns)
		(void)timer_set(&w->d->loop.timers, t, now_ns + watch_interval(w));
}

/* ---- life ------------------------------------------------------------------------------------------------------------------------- */

static void ring_init(struct worker_ring *ring, struct worker_link *w)
{
	ring->w = w;
	ring->bell = (struct watch){ .fd = -1, .ready = on_bell };
	ring->source = (struct source){
		.ready = source_ready, .pump = source_pump, .doze = source_doze, .rise = source_rise
	};
}

int worker_link_init(struct daemon *d, struct error *e)
{
	struct worker_link *w = &d->worker;

	(void)e;
	*w = (struct worker_link){ .d = d, .box.fd = -1 };
	w->start = d->options.start;
	if (!w->start)
		w->start = d->conf.isolation == ISOLATION_THREAD ? worker_start_thread : worker_start_process;
	ring_init(&w->io, w);
	ring_init(&w->tok, w);
	list_init(&w->outgoing);
	list_init(&w->controls);
	w->flush.run = flush;
	w->retry.fire = on_retry;
	w->restart.fire = on_restart;
	w->watchdog.fire = on_watchdog;
	w->end = (struct watch){ .fd = -1, .ready = on_end };
	w->words_fd = (struct watch){ .fd = -1, .ready = on_words };
	return TENON_OK;
}

void worker_no_reply(struct daemon *d, void *ctx, const json_t *reply, const struct error *e)
{
	(void)d;
	(void)ctx;
	(void)reply;
	(void)e;
}

void worker_link_stop(struct worker_link *w, int wait_ms)
{
	uint64_t until = clock_now_ns() + (uint64_t)wait_ms * NS_PER_MS;
	char text[160];
	bool outsider;

	if (!w->d || w->state == WORKER_ENDED)
		return;
	timer_clear(&w->d->loop.timers, &w->restart);
	timer_clear(&w->d->loop.timers, &w->watchdog);
	timer_clear(&w->d->loop.timers, &w->retry);
	if (w->state != WORKER_DOWN) {
		worker_link_call(w, json_pack("{s:s}", "cmd", "stop"), 0, worker_no_reply, NULL);
		link_flush(&w->io.link);
		while (!worker_wait(w, text, sizeof text, &outsider)) {
			if (w->threaded && clock_now_ns() > until + THREAD_WAIT_NS)
				break; /* hung for good: the process's end is its end */
			if (!w->threaded && clock_now_ns() > until)
				worker_terminate(w);
			(void)usleep(1000);
		}
	}
	w->state = WORKER_ENDED;
	while (w->words_fd.fd >= 0)
		on_words(&w->words_fd, 0);
	end_calls(w);
	loop_unwatch(&w->d->loop, &w->end);
	ring_close(&w->io);
	ring_close(&w->tok);
	box_close(&w->box);
}

void worker_link_finish(struct worker_link *w)
{
	json_decref(w->about);
	w->about = NULL;
}

json_t *worker_link_json(struct worker_link *w)
{
	struct box_reading box = { .phase = BOX_IDLE };
	uint64_t now_ns = w->d->loop.now_ns;
	json_t *o;

	if (w->box.page)
		box_read(&w->box, &box);
	o = json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:s, s:I, s:I, s:I, s:O?}", "state",
		worker_state_name(w->state), "isolation", w->threaded ? "thread" : "process", "pid",
		(json_int_t)w->pid, "starts", (json_int_t)w->n_starts, "deaths", (json_int_t)w->n_deaths,
		"uptime_ms", (json_int_t)(w->state == WORKER_UP ? (now_ns - w->started_ns) / NS_PER_MS : 0),
		"doing", box_phase_name(box.phase), "steps", (json_int_t)w->health.steps, "running",
		(json_int_t)w->health.running, "waiting", (json_int_t)w->health.waiting, "about", w->about);
	if (o && *box.model)
		(void)json_object_set_new(o, "model", json_string(box.model));
	if (o && *box.beside)
		(void)json_object_set_new(o, "loading", json_string(box.beside));
	if (o && box.phase != BOX_IDLE && box.since_ns < now_ns)
		(void)json_object_set_new(
			o, "doing_ms", json_integer((json_int_t)((now_ns - box.since_ns) / NS_PER_MS)));
	if (o && w->last_death.code)
		(void)json_object_set_new(o, "last_death", json_string(w->last_death.text));
	return o;
}

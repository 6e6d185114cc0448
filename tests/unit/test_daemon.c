/* SPDX-License-Identifier: Apache-2.0
 * The daemon against a worker by hand: the way of a request, replay, slow readers, hostile workers, supervision, what
 * passing a token on costs. Everything runs in one thread, turn by turn.
 */
#include "ipc/shared.h"
#include "tests/unit/daemon_world.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* ---- the way of a request --------------------------------------------------------------------------------------------------------- */

static void a_request_goes_there_and_back(void **state)
{
	struct daemon *d = ((struct world *)*state)->d;
	struct peer *c = attach(d);
	struct fake_request *r;
	struct wire_done done;

	assert_int_equal(d->worker.state, WORKER_UP);
	begin(c, "hello", (struct wire_request){ .max_tokens = 10 });
	assert_int_equal(next(c), WIRE_STATE); /* LOADING */
	assert_int_equal(fake.n_loads, 1);
	r = fake_find("hello");
	assert_non_null(r);
	assert_true(r->whole);
	assert_int_equal(r->n_history, 0);
	fake_tokens(r->id, 100, 1, "wo");
	fake_tokens(r->id, 101, 2, "rld");
	fake_done(r->id);
	fake_flush();
	turn(d, 4);
	assert_int_equal(skip_states(c), WIRE_TOKENS);
	assert_int_equal(c->h.id, 1);
	assert_memory_equal(c->body + 12, "wo", 2);
	assert_int_equal(next(c), WIRE_TOKENS);
	assert_memory_equal(c->body + 16, "rld", 3);
	assert_int_equal(next(c), WIRE_DONE);
	memcpy(&done, c->body, sizeof done);
	assert_int_equal(done.n_generated, 3);
	assert_true(done.time.load_ns > 0 && done.time.first_token_ns <= done.time.total_ns);
	assert_true(done.time.transport_ns > 0 && done.time.arrived_ns > 0);
	assert_calm(d);
	detach(c);
	assert_int_equal(d->sessions.n_open, 0);
}

static void a_dead_worker_costs_nothing_but_time(void **state)
{
	struct daemon *d = ((struct world *)*state)->d;
	struct peer *c = attach(d);
	struct fake_request *r;
	struct wire_done done;

	begin(c, "one", (struct wire_request){ 0 });
	begin(c, "two", (struct wire_request){ 0 });
	r = fake_find("one");
	fake_tokens(r->id, 7, 3, "abc");
	fake_flush();
	turn(d, 3);
	fake_tokens(r->id, 10, 1, "d"); /* published, but not read by the daemon before the death */
	fake_die();
	TURN_UNTIL(d, fake.n_starts == 2 && fake_find("two"));
	r = fake_find("one");
	assert_non_null(r);
	assert_int_equal(r->n_history, 4);
	assert_int_equal(r->history_text, 4);
	assert_int_equal(r->history[3], 10);
	assert_int_equal(fake_find("two")->n_history, 0);
	assert_true(fake_find("one")->id < fake_find("two")->id); /* in the order of arrival */
	fake_tokens(r->id, 11, 1, "e");
	fake_done(r->id);
	fake_done(fake_find("two")->id);
	fake_flush();
	turn(d, 4);
	assert_int_equal(skip_states(c), WIRE_TOKENS);
	assert_int_equal(next(c), WIRE_TOKENS);
	assert_int_equal(skip_states(c), WIRE_TOKENS);
	assert_memory_equal(c->body + 12, "e", 1);
	assert_int_equal(next(c), WIRE_DONE);
	memcpy(&done, c->body, sizeof done);
	assert_int_equal(done.n_replayed, 1);
	assert_int_equal(done.n_generated, 5);
	assert_int_equal(next(c), WIRE_DONE);
	assert_calm(d);
	detach(c);
}

static void cancel_works_in_every_state(void **state)
{
	struct daemon *d = ((struct world *)*state)->d;
	struct peer *c = attach(d);
	bool bad;

	fake.mute = true; /* the model stays loading */
	begin(c, "waiting", (struct wire_request){ 0 });
	send_frame(c, WIRE_CANCEL, 1);
	expect_error(c, 1, TENON_E_CANCELLED);
	assert_calm(d);
	fake.mute = false;
	turn(d, 4);
	begin(c, "running", (struct wire_request){ 0 });
	fake.answer_cancel = false;
	send_frame(c, WIRE_CANCEL, 2);
	expect_error(c, 2, TENON_E_CANCELLED); /* at once, whatever the worker does */
	assert_true(fake_find("running")->cancelled);
	assert_int_equal(d->requests.n_orphans, 1);
	fake_tokens(fake_find("running")->id, 1, 1, "late");
	fake_error(fake_find("running")->id, TENON_E_CANCELLED, "x");
	fake_flush();
	turn(d, 3);
	assert_int_equal(next(c), 0);
	assert_calm(d);
	fake.answer_cancel = true;
	{ /* half of its payload */
		struct frame_request f = {
			.r = { .input = WIRE_TEXT, .payload_bytes = 10, .top_p = 1, .repeat_penalty = 1 }
		};
		void *at = ring_put(&c->link.out, WIRE_BEGIN, 0, ++c->id, frame_request_bytes(&f), &bad);

		(void)frame_request_write(&f, at, frame_request_bytes(&f));
		link_flush(&c->link);
		turn(d, 3);
	}
	assert_int_equal(d->requests.n_open, 1);
	send_frame(c, WIRE_CANCEL, 3);
	expect_error(c, 3, TENON_E_CANCELLED);
	assert_calm(d);
	begin(c, "gone", (struct wire_request){ 0 });
	detach(c); /* a client's death is a cancel */
	assert_true(fake_find("gone")->cancelled);
	turn(d, 3);
	assert_calm(d);
}

static void deadlines_are_kept(void **state)
{
	struct daemon *d = ((struct world *)*state)->d;
	struct peer *c = attach(d);

	begin(c, "late", (struct wire_request){ .deadline_ns = 200 * NS_PER_MS });
	TURN_UNTIL(d, fake_find("late") && fake_find("late")->cancelled && !d->requests.n_orphans);
	expect_error(c, 1, TENON_E_TIMEOUT);
	assert_calm(d);
	detach(c);
}

static void quotas_are_kept(void **state)
{
	struct daemon *d = ((struct world *)*state)->d;
	struct peer *c = attach(d);

	for (int i = 0; i < 3; i++)
		begin(c, "x", (struct wire_request){ 0 });
	expect_error(c, 3, TENON_E_FULL);
	assert_non_null(strstr(error_text(c), "in_flight_per_uid"));
	send_frame(c, WIRE_CANCEL, 1);
	expect_error(c, 1, TENON_E_CANCELLED);
	begin(c, "y", (struct wire_request){ 0 });
	assert_non_null(fake_find("y"));
	detach(c);
	turn(d, 3);
	assert_calm(d);
}

/* ---- slow readers -------------------------------------------------------------------------------------------------------------------- */

static void fill(struct peer *c, uint64_t id, int n)
{
	for (int i = 0; i < n; i++) {
		fake_tokens(id, i, 1, "some text of a token");
		fake_flush();
		loop_turn(&c->d->loop, 0);
	}
}

static void a_slow_reader_is_paused_and_loses_nothing(void **state)
{
	struct daemon *d = ((struct world *)*state)->d;
	struct peer *c = attach(d);
	int n = 2500, seen = 0; /* 48 bytes each: nearly twice the ring */
	int32_t id;

	begin(c, "x", (struct wire_request){ 0 });
	fill(c, fake_find("x")->id, n);
	TURN_UNTIL(d, fake.n_pauses == 1);
	assert_true(fake_find("x")->paused);
	for (uint64_t until = clock_now_ns() + 60 * NS_PER_S; seen < n && clock_now_ns() < until; turn(d, 1))
		while (skip_states(c) == WIRE_TOKENS) {
			memcpy(&id, c->body + 8, 4);
			assert_int_equal(id, seen++);
		}
	assert_int_equal(seen, n);
	TURN_UNTIL(d, fake.n_resumes == 1);
	assert_false(fake_find("x")->paused);
	fake_done(fake_find("x")->id);
	fake_flush();
	turn(d, 3);
	assert_int_equal(next(c), WIRE_DONE);
	assert_calm(d);
	detach(c);
}

static uint16_t skip_tokens(struct peer *c)
{
	uint16_t type;

	while ((type = skip_states(c)) == WIRE_TOKENS)
		;
	return type;
}

static void a_reader_that_never_reads_is_cancelled(void **state)
{
	struct daemon *d = ((struct world *)*state)->d;
	struct peer *c = attach(d), *other = attach(d);

	begin(c, "x", (struct wire_request){ 0 });
	fill(c, fake_find("x")->id, 2000);
	begin(other, "y", (struct wire_request){ 0 }); /* others do not notice */
	fake_tokens(fake_find("y")->id, 1, 1, "t");
	fake_done(fake_find("y")->id);
	fake_flush();
	turn(d, 3);
	assert_int_equal(skip_states(other), WIRE_TOKENS);
	assert_int_equal(next(other), WIRE_DONE);
	TURN_UNTIL(d, fake_find("x")->cancelled && !d->requests.n_open);
	assert_calm(d);
	TURN_UNTIL(d, skip_tokens(c) == WIRE_ERROR);
	assert_non_null(
		strstr((memcpy(c->body + c->h.bytes - 16, "", 1), error_text(c)), "not read in time"));
	detach(c);
	detach(other);
}

/* Whose backlog is too long to take more is not waited for with its flag up; it is when it has read, without a sweep. */
static void a_reader_that_catches_up_is_heard(void **state)
{
	struct daemon *d = ((struct world *)*state)->d;
	struct peer *c = attach(d);
	struct session *s = CONTAINER_OF(list_first(&d->sessions.open), struct session, node);

	begin(c, "x", (struct wire_request){ 0 });
	fill(c, fake_find("x")->id, 4000); /* a ring and more than a backlog may be */
	TURN_UNTIL(d, fake_find("x")->cancelled && !d->requests.n_open);
	send_frame(c, WIRE_PING, 7);
	TURN_UNTIL(d, !s->source.awake);
	assert_int_equal(shared_asleep(&c->link.rx) & 1, 0);
	for (uint64_t until = clock_now_ns() + 60 * NS_PER_S; s->blocked_ns && clock_now_ns() < until;
		turn(d, 1)) {
		d->loop.swept_ns = clock_now_ns();
		(void)skip_tokens(c);
	}
	assert_true(s->source.awake || shared_asleep(&c->link.rx) & 1);
	TURN_UNTIL(d, skip_tokens(c) == WIRE_PONG);
	detach(c);
}

/* ---- hostile workers --------------------------------------------------------------------------------------------------------------------- */

static void bad_worker_is_replaced(
	struct daemon *d, struct peer *c, uint16_t type, uint64_t id, const void *body, uint32_t bytes)
{
	uint32_t starts = fake.n_starts;

	fake_put(type, id, body, bytes);
	fake_flush();
	for (uint64_t until = clock_now_ns() + 60 * NS_PER_S; clock_now_ns() < until; turn(d, 1))
		if (fake.n_starts > starts && fake_find("x"))
			break;
	if (fake.n_starts != starts + 1)
		fail_msg("frame of type %u, %u bytes: believed", type, bytes);
	assert_non_null(strstr(d->worker.last_death.text, "broke the protocol"));
	assert_false(c->link.in.head == 0); /* the client lives */
}

static void what_a_worker_sends_is_checked(void **state)
{
	struct daemon *d = ((struct world *)*state)->d;
	struct peer *c = attach(d);
	const struct wire_tokens lie = { .n_tokens = 1000, .text_bytes = 0 },
				 none = { .n_tokens = 0, .text_bytes = 2 };
	const struct wire_done done = { .finish = 99 };
	uint8_t many[sizeof(struct wire_tokens) + 4 * 11] = { 0 }, broken[sizeof none + 2],
						      embedding[12] = { 1, 0, 0, 0 };
	const struct wire_tokens eleven = { .n_tokens = 11 };

	d->conf.worker.backoff_max_ms = 5;
	begin(c, "x", (struct wire_request){ .max_tokens = 10 });
	(void)skip_states(c);
	memcpy(many, &eleven, sizeof eleven);
	memcpy(broken, &none, sizeof none);
	memcpy(broken + sizeof none, "\xff\xfe", 2);
	bad_worker_is_replaced(d, c, 77, fake_find("x")->id, NULL, 0);
	bad_worker_is_replaced(d, c, WIRE_TOKENS, fake_find("x")->id, &lie, sizeof lie);
	bad_worker_is_replaced(d, c, WIRE_TOKENS, fake_find("x")->id, many, sizeof many);
	bad_worker_is_replaced(d, c, WIRE_TOKENS, fake_find("x")->id, broken, sizeof broken);
	bad_worker_is_replaced(d, c, WIRE_TOKENS, UINT64_MAX, many, 8 + 4);
	bad_worker_is_replaced(d, c, WIRE_DONE, fake_find("x")->id, &done, sizeof done);
	bad_worker_is_replaced(d, c, WIRE_EMBEDDING, fake_find("x")->id, embedding, sizeof embedding);
	bad_worker_is_replaced(d, c, WIRE_ADMIN_REPLY, 999999, "{}", 2);
	bad_worker_is_replaced(d, c, WIRE_BEGIN, fake_find("x")->id, NULL, 0);
	fake_done(fake_find("x")->id);
	fake_flush();
	turn(d, 3);
	assert_int_equal(skip_states(c), WIRE_DONE);
	assert_calm(d);
	detach(c);
}

/* ---- supervision ---------------------------------------------------------------------------------------------------------------------------- */

static void a_model_that_kills_is_taken_out_of_service(void **state)
{
	struct daemon *d = ((struct world *)*state)->d;
	struct peer *c = attach(d);
	struct model_entry *m = models_lookup(d, "m");
	uint32_t starts = fake.n_starts;

	begin(c, "x", (struct wire_request){ 0 });
	for (int i = 0; i < 5; i++) {
		TURN_UNTIL(d, fake.n_starts == starts && m->state == MODEL_LOADED);
		starts++;
		box_begin(&fake.ends->box, BOX_STEP, "m");
		fake_die();
	}
	TURN_UNTIL(d, fake.n_starts == starts && d->worker.state == WORKER_UP);
	assert_int_equal(m->state, MODEL_QUARANTINED);
	expect_error(c, 1, TENON_E_BACKEND);
	assert_non_null(strstr(error_text(c), "out of service after 5 deaths"));
	assert_non_null(strstr(error_text(c), "step of m"));
	begin(c, "y", (struct wire_request){ 0 });
	expect_error(c, 2, TENON_E_BACKEND);
	model_revive(m);
	begin(c, "z", (struct wire_request){ 0 });
	assert_non_null(fake_find("z"));
	detach(c);
}

static void a_death_at_rest_is_nobodys_fault(void **state)
{
	struct daemon *d = ((struct world *)*state)->d;
	struct peer *c = attach(d);
	uint32_t starts = fake.n_starts;

	begin(c, "x", (struct wire_request){ 0 });
	for (int i = 0; i < 6; i++) {
		fake_die();
		starts++;
		TURN_UNTIL(d, fake.n_starts == starts && fake_find("x"));
	}
	assert_int_equal(models_lookup(d, "m")->n_deaths, 0);
	assert_true(d->worker.backoff_ms > 5); /* it doubles while nothing gets done */
	assert_non_null(fake_find("x"));
	fake_done(fake_find("x")->id);
	fake_flush();
	turn(d, 3);
	fake_die();
	turn(d, 3);
	assert_int_equal(d->worker.backoff_ms, 5);
	detach(c);
}

static void a_hung_step_is_noticed(void **state)
{
	struct daemon *d = ((struct world *)*state)->d;
	struct peer *c = attach(d);
	uint32_t starts = fake.n_starts;
	uint64_t began;

	begin(c, "x", (struct wire_request){ 0 });
	began = clock_now_ns();
	box_begin(&fake.ends->box, BOX_STEP, "m");
	turn_for(d, 50);
	if (clock_now_ns() - began < 100 * NS_PER_MS) /* else this test was held up itself */
		assert_int_equal(fake.n_starts, starts);
	TURN_UNTIL(d, fake.n_starts == starts + 1);
	assert_non_null(strstr(d->worker.last_death.text, "hung: step for"));
	assert_int_equal(models_lookup(d, "m")->n_deaths, 1);
	detach(c);
}

static void no_backend_is_told_at_once(void **state)
{
	struct daemon *d = ((struct world *)*state)->d;
	struct peer *c = attach(d);

	fake.refuse_setup = true;
	fake_die();
	TURN_UNTIL(d, worker_link_hopeless(&d->worker));
	begin(c, "x", (struct wire_request){ 0 });
	expect_error(c, 1, TENON_E_BACKEND);
	assert_non_null(strstr(error_text(c), "backend x: none"));
	fake.refuse_setup = false;
	TURN_UNTIL(d, d->worker.state == WORKER_UP);
	begin(c, "y", (struct wire_request){ 0 });
	assert_non_null(fake_find("y"));
	detach(c);
}

static void a_load_that_fails_is_told(void **state)
{
	struct daemon *d = ((struct world *)*state)->d;
	struct peer *c = attach(d);

	fake.refuse_load = true;
	begin(c, "x", (struct wire_request){ 0 });
	expect_error(c, 1, TENON_E_FORMAT);
	fake.refuse_load = false;
	begin(c, "y", (struct wire_request){ 0 });
	assert_non_null(fake_find("y"));
	detach(c);
}

static void idle_models_are_unloaded(void **state)
{
	struct daemon *d = ((struct world *)*state)->d;
	struct peer *c = attach(d);

	begin(c, "x", (struct wire_request){ 0 });
	turn_for(d, 1200);
	assert_int_equal(fake.n_unloads, 0); /* in use */
	fake_done(fake_find("x")->id);
	fake_flush();
	TURN_UNTIL(d, fake.n_unloads == 1);
	turn(d, 3);
	begin(c, "y", (struct wire_request){ 0 });
	assert_int_equal(fake.n_loads, 2);
	detach(c);
}

/* ---- what a token costs ---------------------------------------------------------------------------------------------------------------------- */

static _Atomic int n_syscalls, last_syscall;

static void on_sigsys(int sig, siginfo_t *si, void *uc)
{
	(void)sig;
	(void)uc;
	n_syscalls++;
	last_syscall = si->si_syscall;
}

/* From here on every system call of this thread but its exit is refused and counted. */
static void forbid_syscalls(void)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { .len = COUNT_OF(f), .filter = f };

	assert_int_equal(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	assert_int_equal(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0), 0);
}

struct passing {
	struct daemon *d;
	struct peer *c;
	uint64_t id, allocs;
	int n, seen, syscalls;
	bool guarded;
};

static void pass_tokens(struct passing *p)
{
	uint64_t before = mem_n_allocs();

	for (int i = 0; i < p->n; i++) {
		fake_tokens(p->id, i, 1, "token");
		fake_flush();
		(void)loop_work(&p->d->loop);
		p->seen += ring_take(&p->c->link.in, &p->c->h, p->c->body, sizeof p->c->body) == TENON_OK &&
			p->c->h.type == WIRE_TOKENS;
		ring_consumed(&p->c->link.in);
	}
	p->allocs = mem_n_allocs() - before;
}

static void *pass_main(void *arg)
{
	struct passing *p = arg;

	forbid_syscalls();
	pass_tokens(p);
	p->syscalls = n_syscalls;
	(void)syscall(SYS_exit, 0); /* without the C library's own farewell */
	return NULL;
}

static void passing_a_token_on_is_free(void **state)
{
	struct daemon *d = ((struct world *)*state)->d;
	struct passing p = { .d = d, .n = 5000 };
	struct sigaction sa = { .sa_sigaction = on_sigsys, .sa_flags = SA_SIGINFO }, old;
	pthread_t t;

	if (SANITIZED)
		skip();
	p.c = attach(d);
	begin(p.c, "x", (struct wire_request){ .max_tokens = 8000 });
	(void)skip_states(p.c);
	p.id = fake_find("x")->id;
	fake_tokens(p.id, 0, 1, "first");
	fake_flush();
	turn(d, 2);
	assert_int_equal(next(p.c), WIRE_TOKENS);
	loop_wake(&d->loop, &d->worker.tok.source); /* nobody sleeps */
	assert_int_equal(sigaction(SIGSYS, &sa, &old), 0);
	assert_int_equal(pthread_create(&t, NULL, pass_main, &p), 0);
	(void)pthread_join(t, NULL);
	(void)sigaction(SIGSYS, &old, NULL);
	assert_int_equal(p.seen, p.n);
	assert_int_equal(p.allocs, 0);
	if (p.syscalls)
		fail_msg("%d system calls, the last of them number %d", p.syscalls, last_syscall);
	detach(p.c);
}

/* ---- parts ------------------------------------------------------------------------------------------------------------------------------------ */

static uint64_t fired[64];
static uint32_t n_fired;

static void note(struct timer *t, uint64_t now_ns)
{
	(void)now_ns;
	fired[n_fired++] = t->at_ns;
}

static void timers_fire_in_order(void **state)
{
	static struct timer t[50];
	struct timers all = { 0 };
	uint32_t left = 0;

	(void)state;
	n_fired = 0;
	for (uint32_t i = 0; i < 50; i++) {
		t[i].fire = note;
		assert_true(timer_set(&all, &t[i], (i * 37) % 50 + 1));
	}
	for (uint32_t i = 0; i < 50; i += 3)
		timer_clear(&all, &t[i]);
	assert_true(timer_set(&all, &t[1], 100));
	for (uint32_t i = 0; i < 50; i++)
		left += t[i].place != 0;
	timers_run(&all, 50);
	assert_int_equal(n_fired, left - 1);
	for (uint32_t i = 1; i < n_fired; i++)
		assert_true(fired[i - 1] <= fired[i]);
	assert_int_equal(timers_next(&all), 100);
	timers_run(&all, 100);
	assert_int_equal(timers_next(&all), TIMER_NEVER);
	timers_finish(&all);
}

struct poke { /* a descriptor whose handler leaves a task, and a ring that stays empty */
	struct loop l;
	struct watch watch;
	struct task task;
	struct source source;
	uint32_t n_run;
};

static bool poke_ready(struct source *s) { return !s; }
static bool poke_doze(struct source *s) { return s != NULL; }
static void poke_rise(struct source *s) { (void)s; }
static void poke_run(struct task *t) { CONTAINER_OF(t, struct poke, task)->n_run++; }

static void poke_served(struct watch *w, uint32_t events)
{
	struct poke *p = CONTAINER_OF(w, struct poke, watch);
	uint64_t n;

	(void)events;
	assert_int_equal(read(w->fd, &n, sizeof n), sizeof n);
	loop_defer(&p->l, &p->task);
}

/* What a descriptor served while the loop spins has left to do is done before the loop sleeps. */
static void tasks_of_a_spin_come_before_the_park(void **state)
{
	struct poke p = { .n_run = 0 };
	const uint64_t one = 1;
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	(void)state;
	assert_int_equal(loop_init(&p.l, NULL), TENON_OK);
	p.watch = (struct watch){ .fd = -1, .ready = poke_served };
	p.task.run = poke_run;
	p.source = (struct source){
		.ready = poke_ready, .pump = poke_ready, .doze = poke_doze, .rise = poke_rise
	};
	assert_int_equal(loop_watch(&p.l, &p.watch, fd, EPOLLIN, NULL), TENON_OK);
	loop_add(&p.l, &p.source);
	p.l.n_cpus = 2;
	for (int i = 0; i < 1000 && !p.l.n_spins;
		i++) { /* one that is held up between these two lines does not spin */
		assert_int_equal(write(fd, &one, sizeof one), sizeof one);
		p.l.spinning_pays = true;
		loop_wake(&p.l, &p.source);
		p.l.n_parks = 0;
		p.l.active_ns = clock_now_ns();
		loop_turn(&p.l, 1);
	}
	assert_int_equal(p.l.n_spins, 1);
	assert_int_equal(p.l.n_parks, 0);
	assert_true(p.n_run > 0);
	loop_remove(&p.l, &p.source);
	loop_unwatch(&p.l, &p.watch);
	loop_finish(&p.l);
	(void)close(fd);
}

static void the_box_believes_nothing(void **state)
{
	struct box a, b;
	struct box_reading r;
	struct error e;

	(void)state;
	assert_int_equal(box_create(&a, &e), TENON_OK);
	assert_int_equal(box_open(&b, dup(a.fd), &e), TENON_OK);
	assert_int_not_equal(ftruncate(b.fd, 0), 0);
	box_begin(&b, BOX_LOAD, "some-model");
	box_beside(&b, "another");
	box_read(&a, &r);
	assert_int_equal(r.phase, BOX_LOAD);
	assert_string_equal(r.model, "some-model");
	assert_string_equal(r.beside, "another");
	assert_true(r.beside_ns > 0);
	box_beside(&b, NULL);
	box_read(&a, &r);
	assert_true(!r.beside[0] && !r.beside_ns);
	memset(b.page, 0xff, 4096); /* a worker gone mad */
	box_read(&a, &r);
	assert_int_equal(r.phase, BOX_IDLE);
	assert_int_equal(r.model[0], 0);
	assert_int_equal(r.beside[0], 0);
	box_close(&a);
	box_close(&b);
	assert_int_equal(box_open(&b, open("/dev/null", O_RDONLY | O_CLOEXEC), &e), TENON_E_PROTOCOL);
}

/* Each allocation of the way fails once: an error somewhere, but never a crash, a leak or a wedge. */
static void survives_no_memory(void **state)
{
	struct daemon *d = ((struct world *)*state)->d;
	struct peer *c = attach(d);
	struct fake_request *r;

	begin(c, "warm", (struct wire_request){ 0 });
	fake_done(fake_find("warm")->id);
	fake_flush();
	turn(d, 3);
	assert_int_equal(skip_states(c), WIRE_DONE);
	for (uint64_t n = 1; n < 12; n++) {
		char name[16];

		(void)snprintf(name, sizeof name, "n%llu", (unsigned long long)n);
		mem_fail_at(n);
		begin(c, name, (struct wire_request){ .max_tokens = 4 });
		mem_fail_at(0);
		r = fake_find(name);
		if (r) {
			fake_done(r->id);
			fake_flush();
			turn(d, 3);
			assert_int_equal(skip_states(c), WIRE_DONE);
		} else {
			expect_error(c, c->id, TENON_E_NOMEM);
		}
		assert_calm(d);
	}
	detach(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(timers_fire_in_order),
		cmocka_unit_test(tasks_of_a_spin_come_before_the_park),
		cmocka_unit_test(the_box_believes_nothing),
		cmocka_unit_test_setup_teardown(a_request_goes_there_and_back, setup, teardown),
		cmocka_unit_test_setup_teardown(a_dead_worker_costs_nothing_but_time, setup, teardown),
		cmocka_unit_test_setup_teardown(cancel_works_in_every_state, setup, teardown),
		cmocka_unit_test_setup_teardown(deadlines_are_kept, setup, teardown),
		cmocka_unit_test_setup_teardown(quotas_are_kept, setup_few, teardown),
		cmocka_unit_test_setup_teardown(a_slow_reader_is_paused_and_loses_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(a_reader_that_never_reads_is_cancelled, setup_slow, teardown),
		cmocka_unit_test_setup_teardown(a_reader_that_catches_up_is_heard, setup, teardown),
		cmocka_unit_test_setup_teardown(what_a_worker_sends_is_checked, setup, teardown),
		cmocka_unit_test_setup_teardown(a_model_that_kills_is_taken_out_of_service, setup, teardown),
		cmocka_unit_test_setup_teardown(a_death_at_rest_is_nobodys_fault, setup, teardown),
		cmocka_unit_test_setup_teardown(a_hung_step_is_noticed, setup, teardown),
		cmocka_unit_test_setup_teardown(no_backend_is_told_at_once, setup, teardown),
		cmocka_unit_test_setup_teardown(a_load_that_fails_is_told, setup, teardown),
		cmocka_unit_test_setup_teardown(idle_models_are_unloaded, setup_brief, teardown),
		cmocka_unit_test_setup_teardown(survives_no_memory, setup, teardown),
		cmocka_unit_test_setup_teardown(passing_a_token_on_is_free, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

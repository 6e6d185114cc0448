/* SPDX-License-Identifier: Apache-2.0
 * Links: both segments, ring ends and the bell of one session, as one side holds them; pairs of links without a
 * socket, between tenond and its workers. Thread: see ipc.h; a link has no lock.
 */
#include "ipc/bell_priv.h"
#include "ipc/link_priv.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

void link_init(struct link *l) { *l = (struct link){ .tx.fd = -1, .rx.fd = -1, .sock = -1, .pidfd = -1 }; }

void link_rings(struct link *l)
{
	ring_out_init(&l->out, &l->tx, &l->rx);
	ring_in_init(&l->in, &l->rx, &l->tx);
}

static void link_close_fd(int fd)
{
	if (fd > 0)
		(void)close(fd);
}

void link_close(struct link *l)
{
	bell_close(l->bell);
	segment_close(&l->tx);
	segment_close(&l->rx);
	link_close_fd(l->sock);
	link_close_fd(l->pidfd);
	link_init(l);
}

void link_abandon(struct link *l)
{
	link_close_fd(l->tx.fd);
	link_close_fd(l->rx.fd);
	link_close_fd(l->sock);
	link_close_fd(l->pidfd);
	link_init(l);
}

void link_flush(struct link *l)
{
	if (l->out.published == l->out.tail)
		return;
	ring_publish(&l->out);
	(void)peer_wake(&l->rx, l->bell);
}

static int link_copy_fd(int fd) { return fcntl(fd, F_DUPFD_CLOEXEC, 3); }

/* Two bells on two eventfds, crossed over. Each bell owns copies of its own. */
static int link_pair_bells(struct link *a, struct link *b, struct error *e)
{
	int fd[2] = { eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK), eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK) };
	int copy[2] = { link_copy_fd(fd[0]), link_copy_fd(fd[1]) };
	int rc;

	if (fd[0] < 0 || fd[1] < 0 || copy[0] < 0 || copy[1] < 0) {
		rc = error_errno(e, TENON_E_NOMEM, errno, "link: cannot make an eventfd");
		for (int i = 0; i < 2; i++) {
			link_close_fd(fd[i]);
			link_close_fd(copy[i]);
		}
		return rc;
	}
	rc = bell_eventfd_create(fd[0], fd[1], &a->bell, e);
	if (!rc)
		return bell_eventfd_create(copy[1], copy[0], &b->bell, e);
	link_close_fd(copy[0]);
	link_close_fd(copy[1]);
	return rc;
}

static int link_pair_segment(
	struct segment *made, struct segment *opened, uint64_t ring_bytes, bool peer_writes, struct error *e)
{
	int fd, rc = segment_create(made, ring_bytes, peer_writes, e);

	if (rc)
		return rc;
	fd = link_copy_fd(made->fd);
	if (fd < 0)
		return error_errno(e, TENON_E_NOMEM, errno, "link: cannot copy a descriptor");
	return segment_open(opened, fd, ring_bytes, peer_writes, e);
}

int link_pair(uint64_t ring_bytes, struct link *a, struct link *b, struct error *e)
{
	int rc;

	link_init(a);
	link_init(b);
	rc = link_pair_segment(&a->tx, &b->rx, ring_bytes, false, e);
	if (!rc)
		rc = link_pair_segment(&a->rx, &b->tx, ring_bytes, true, e);
	if (!rc)
		rc = link_pair_bells(a, b, e);
	if (rc) {
		link_close(a);
		link_close(b);
		return rc;
	}
	link_rings(a);
	link_rings(b);
	return TENON_OK;
}

struct link_fds link_export(const struct link *l)
{
	struct link_fds f = {
		.tx = l->tx.fd, .rx = l->rx.fd, .ring = -1, .wait = -1, .ring_bytes = l->tx.ring_bytes
	};

	(void)bell_eventfd_fds(l->bell, &f.ring, &f.wait);
	return f;
}

int link_import(const struct link_fds *f, struct link *l, struct error *e)
{
	int rc, rc_rx, rc_bell;

	link_init(l);
	rc = segment_open(&l->tx, f->tx, f->ring_bytes, true, e);
	rc_rx = segment_open(&l->rx, f->rx, f->ring_bytes, false, rc ? NULL : e);
	rc_bell = bell_eventfd_create(f->ring, f->wait, &l->bell, rc || rc_rx ? NULL : e);
	rc = rc ? rc : rc_rx ? rc_rx : rc_bell;
	if (rc)
		link_close(l);
	else
		link_rings(l);
	return rc;
}

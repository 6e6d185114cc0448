/* SPDX-License-Identifier: Apache-2.0
 * Tenon inside somebody's own poll loop, beside stdin: each line typed is a prompt.
 */
#include <poll.h>
#include <stdio.h>
#include <tenon/client.h>

int main(void)
{
	struct tenon *t;
	struct tenon_event ev;
	struct tenon_request r = TENON_REQUEST_INIT;
	struct pollfd p[2] = { { .fd = 0, .events = POLLIN }, { .events = POLLIN } };
	char line[4096];
	int rc = tenon_connect(NULL, &t, NULL), open = 0;

	if (rc)
		return fprintf(stderr, "connect: %s\n", tenon_error_name(rc)), 1;
	p[1].fd = tenon_fd(t);
	while (p[0].fd >= 0 || open) {
		while ((rc = tenon_next(t, &ev, 0)) == TENON_OK) {
			if (ev.kind == TENON_EVENT_TOKENS)
				fwrite(ev.text, 1, ev.text_len, stdout);
			open -= ev.last;
		}
		fflush(stdout);
		if (rc != TENON_E_AGAIN)
			break;
		if ((p[0].fd >= 0 || open) && tenon_poll_arm(t) == TENON_OK)
			poll(p, 2, -1);
		if (!(p[0].revents & (POLLIN | POLLHUP)))
			continue;
		p[0].revents = 0;
		r.prompt = line;
		if (!fgets(line, sizeof line, stdin))
			p[0].fd = -1;
		else if (!tenon_submit_wait(t, &r, 1000, NULL, NULL))
			open++;
	}
	tenon_close(t);
	return open != 0;
}

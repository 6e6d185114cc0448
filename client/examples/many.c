/* SPDX-License-Identifier: Apache-2.0
 * Many requests at once over one session; answers come interleaved: many PROMPT...
 */
#include <stdio.h>
#include <tenon/client.h>

int main(int argc, char **argv)
{
	struct tenon *t;
	struct tenon_error err;
	struct tenon_event ev;
	struct tenon_request r = TENON_REQUEST_INIT;
	int open = 0;

	r.max_tokens = 32;
	if (tenon_connect(NULL, &t, &err)) {
		fprintf(stderr, "connect: %s\n", err.text);
		return 1;
	}
	for (int i = 1; i < argc; i++) {
		r.prompt = argv[i];
		if (tenon_submit_wait(t, &r, 1000, NULL, &err))
			fprintf(stderr, "%s: %s\n", argv[i], err.text);
		else
			open++;
	}
	while (open && !tenon_next(t, &ev, -1)) {
		if (ev.kind == TENON_EVENT_TOKENS)
			printf("[%llu] %s\n", (unsigned long long)ev.request, ev.text);
		open -= ev.last;
	}
	tenon_close(t);
	return open != 0;
}

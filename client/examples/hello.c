/* SPDX-License-Identifier: Apache-2.0
 * Streams one answer: hello "Why is the sky blue?" [MODEL]
 */
#include <stdio.h>
#include <tenon/client.h>

int main(int argc, char **argv)
{
	struct tenon *t;
	struct tenon_error err;
	struct tenon_event ev;
	struct tenon_request r = TENON_REQUEST_INIT;

	r.prompt = argc > 1 ? argv[1] : "Why is the sky blue?";
	r.model = argc > 2 ? argv[2] : NULL;
	r.max_tokens = 64;
	if (tenon_connect(NULL, &t, &err)) {
		fprintf(stderr, "connect: %s\n", err.text);
		return 1;
	}
	if (tenon_submit(t, &r, NULL, &err)) {
		fprintf(stderr, "submit: %s\n", err.text);
		tenon_close(t);
		return 1;
	}
	do {
		if (tenon_next(t, &ev, -1))
			break;
		if (ev.kind == TENON_EVENT_TOKENS)
			fwrite(ev.text, 1, ev.text_len, stdout);
		else if (ev.kind == TENON_EVENT_ERROR)
			fprintf(stderr, "%s\n", ev.text);
		fflush(stdout);
	} while (!ev.last);
	printf("\n");
	tenon_close(t);
	return 0;
}

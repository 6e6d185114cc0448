/* SPDX-License-Identifier: Apache-2.0
 * Ends a request early: stops after ten tokens.
 */
#include <stdio.h>
#include <tenon/client.h>

int main(int argc, char **argv)
{
	struct tenon *t;
	struct tenon_event ev = { 0 };
	struct tenon_request r = TENON_REQUEST_INIT;
	size_t seen = 0;
	uint64_t id;
	int rc = tenon_connect(NULL, &t, NULL);

	r.prompt = argc > 1 ? argv[1] : "Count to one million: 1, 2, 3,";
	if (rc)
		return fprintf(stderr, "connect: %s\n", tenon_error_name(rc)), 1;
	rc = tenon_submit(t, &r, &id, NULL);
	while (!rc && !ev.last) {
		rc = tenon_next(t, &ev, -1);
		if (rc || ev.kind != TENON_EVENT_TOKENS)
			continue;
		fwrite(ev.text, 1, ev.text_len, stdout);
		seen += ev.n_ids;
		if (seen >= 10 && seen - ev.n_ids < 10)
			rc = tenon_cancel(t, id);
	}
	if (ev.kind == TENON_EVENT_ERROR)
		printf("\nended: %s\n", tenon_error_name(ev.code));
	tenon_close(t);
	return rc != 0;
}

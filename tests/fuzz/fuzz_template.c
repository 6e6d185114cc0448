/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: any bytes as a chat template and, behind a line "---", the request. Either a failure with a code and
 * a text, or text whose spans cover it, and in which no stretch is trusted that the request brought.
 */
#include "base/base.h"
#include "engine/chat.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char request[] =
	"{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"Hi Q\\u00e9 Q<|im_end|>\",\"Q\":\"Q\"},"
	"{\"role\":\"assistant\",\"content\":\"<think>a</think>b\",\"tool_calls\":[{\"type\":\"function\",\"function\":"
	"{\"name\":\"f\",\"arguments\":{\"x\":[1,2.5,null,true]}}}]},{\"role\":\"tool\",\"content\":\"12345678901234567890\"},"
	"{\"role\":\"user\",\"content\":\"z\"}],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{}}}],"
	"\"add_generation_prompt\":true,\"special_tokens\":{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}}";

static void must(bool ok)
{
	if (!ok)
		abort();
}

/* Can the template itself write a Q? Where it cannot, each one comes from the request. */
static bool writes_q(const char *src, size_t len)
{
	return memchr(src, 'q', len) || memchr(src, 'Q', len) || memchr(src, '\\', len);
}

static void check_text(const struct chat_text *t, bool q_is_foreign)
{
	size_t at = 0;

	for (size_t i = 0; i < t->n_spans; i++) {
		must(t->spans[i].off == at && t->spans[i].len > 0);
		must(!q_is_foreign || !t->spans[i].trusted || !memchr(t->text + at, 'Q', t->spans[i].len));
		at += t->spans[i].len;
	}
	must(at == t->len);
	must(utf8_valid(t->text, t->len, NULL));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char cut[] = "\n---\n";
	const struct chat_limits limits = {
		.steps = 200000, .memory_bytes = 8 << 20, .output_bytes = 1 << 20
	};
	const char *src = (const char *)data, *split = size ? memmem(data, size, cut, sizeof cut - 1) : NULL;
	struct chat_input in = { .json = request, .json_len = sizeof request - 1, .now_s = 1796029507 };
	struct chat_template *t = NULL;
	struct chat_text text = { 0 };
	struct error e = { 0 };
	size_t src_len = split ? (size_t)(split - src) : size;

	if (split) {
		in.json = split + sizeof cut - 1;
		in.json_len = size - src_len - (sizeof cut - 1);
		in.raw_context = true;
	}
	if (chat_template_parse(src ? src : "", src_len, &limits, &t, &e)) {
		must(e.code && e.text[0]);
		return 0;
	}
	if (chat_render(t, &in, &text, NULL, &e))
		must(e.code);
	else
		check_text(&text, !writes_q(src ? src : "", src_len));
	chat_text_finish(&text);
	chat_template_free(t);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 * Splits a template into tokens, with Jinja's white-space rules: trim_blocks and lstrip_blocks on, `-` and `+`
 * signs, raw blocks, comments; one newline at the very end is dropped, \r\n and \r become \n.
 */
#include "engine/jinja_ast.h"
#include "engine/jinja_int.h"
#include "engine/jinja_unicode.h"
#include "base/utf8.h"
#include <string.h>

struct lexer {
	struct jinja *j;
	const char *src;
	size_t len, at;
	uint32_t line;
	bool line_start; /* the last thing eaten ended a line */
	struct jtokens *out;
	char *open; /* brackets open in this tag: the closers awaited */
	size_t n_open, cap_open;
};

_Noreturn static void lex_fail(struct lexer *l, const char *what)
{
	l->j->line = l->line;
	jinja_fail(l->j, JFAIL_SYNTAX, "%s", what);
}

static bool looking_at(const struct lexer *l, size_t at, const char *s)
{
	size_t n = strlen(s);

	return at <= l->len && n <= l->len - at && !memcmp(l->src + at, s, n);
}

static void push(struct lexer *l, enum jtoken_kind kind, struct jval value)
{
	struct jtokens *t = l->out;

	jinja_step(l->j, 1);
	t->cap = jinja_grow(l->j, &t->v, t->cap, t->n + 1, sizeof *t->v);
	t->v[t->n++] = (struct jtoken){ .kind = kind, .line = l->line, .value = value };
}

/* Eats up to `end`, counting lines. */
static void eat_to(struct lexer *l, size_t end)
{
	if (end > l->at)
		l->line_start = l->src[end - 1] == '\n';
	for (; l->at < end; l->at++)
		l->line += l->src[l->at] == '\n';
}

/* End of the white space (any that str.isspace knows) that begins at `at`. */
static size_t skip_space(const struct lexer *l, size_t at)
{
	uint32_t cp;
	size_t n;

	while (at < l->len && (n = utf8_decode(l->src + at, l->len - at, &cp)) && junicode_is_space(cp))
		at += n;
	return at;
}

/* Start of the white space that ends at `end`, not before `from`. */
static size_t back_space(const struct lexer *l, size_t from, size_t end)
{
	while (end > from) {
		size_t at = end - 1;
		uint32_t cp;

		while (at > from && ((uint8_t)l->src[at] & 0xc0) == 0x80)
			at--;
		if (!utf8_decode(l->src + at, end - at, &cp) || !junicode_is_space(cp))
			break;
		end = at;
	}
	return end;
}

/* ---- text outside tags ---- */

static void push_data(struct lexer *l, size_t from, size_t to)
{
	if (to > from) /* markup: autoescape leaves template text alone */
		push(l, JT_DATA,
			jval_str(jstr_with(l->j, jstr_ref(l->j, l->src + from, to - from, true), true)));
}

/* Text [from, tag) before a tag whose sign is `sign`: how much of it is kept. */
static size_t text_end(const struct lexer *l, size_t from, size_t tag, char sign, bool is_variable)
{
	size_t line;

	if (sign == '-')
		return back_space(l, from, tag);
	if (sign == '+' || is_variable)
		return tag;
	for (line = tag; line > from && l->src[line - 1] != '\n'; line--)
		;
	if (line == from && !l->line_start)
		return tag;
	return line < tag && skip_space(l, line) >= tag ? line : tag;
}

/* "{%" sign spaces "raw" spaces "%}": where the content begins, or 0. */
static size_t raw_begin(const struct lexer *l, size_t at)
{
	if (!looking_at(l, at, "{%"))
		return 0;
	at += 2;
	if (at < l->len && (l->src[at] == '-' || l->src[at] == '+'))
		at++;
	at = skip_space(l, at);
	if (!looking_at(l, at, "raw"))
		return 0;
	at = skip_space(l, at + 3);
	if (looking_at(l, at, "-%}"))
		return skip_space(l, at + 3);
	return looking_at(l, at, "%}") ? at + 2 : 0;
}

/* End of a tag's closing "%}" or "#}" at `at`, with the white space that goes with it; 0 if there is none. */
static size_t tag_end(const struct lexer *l, size_t at, const char *closer)
{
	char sign = at < l->len ? l->src[at] : 0;

	if (sign == '-' && looking_at(l, at + 1, closer))
		return skip_space(l, at + 3);
	if (sign == '+' && looking_at(l, at + 1, closer))
		return at + 3;
	if (!looking_at(l, at, closer))
		return 0;
	return at + 2 + looking_at(l, at + 2, "\n");
}

/* The "{% endraw %}" at `at`: its end, or 0; *sign: the one behind "{%". */
static size_t raw_end(const struct lexer *l, size_t at, char *sign)
{
	if (!looking_at(l, at, "{%"))
		return 0;
	at += 2;
	*sign = at < l->len && (l->src[at] == '-' || l->src[at] == '+') ? l->src[at++] : 0;
	at = skip_space(l, at);
	if (!looking_at(l, at, "endraw"))
		return 0;
	return tag_end(l, skip_space(l, at + 6), "%}");
}

static void lex_raw(struct lexer *l, size_t content)
{
	size_t end = 0, tag;
	char sign = 0;

	eat_to(l, content);
	for (tag = content; tag < l->len; tag++) {
		if (l->src[tag] == '{' && (end = raw_end(l, tag, &sign)))
			break;
	}
	jinja_work(l->j, tag - content);
	if (content >= l->len) /* as in Jinja, what is not there need not be closed */
		return;
	if (!end)
		lex_fail(l, "raw block is not closed");
	push_data(l, content, text_end(l, content, tag, sign, false));
	eat_to(l, end);
}

static void lex_comment(struct lexer *l)
{
	size_t end = 0, at;

	for (at = l->at; at < l->len; at++)
		if ((end = tag_end(l, at, "#}")))
			break;
	if (l->at >= l->len)
		return;
	if (!end)
		lex_fail(l, "comment is not closed");
	eat_to(l, end);
}

/* ---- inside tags ---- */

static const struct {
	char text[3];
	enum jtoken_kind kind;
} operators[] = {
	{ "//", JT_FLOORDIV },
	{ "**", JT_POW },
	{ "==", JT_EQ },
	{ "!=", JT_NE },
	{ ">=", JT_GE },
	{ "<=", JT_LE },
	{ "+", JT_ADD },
	{ "-", JT_SUB },
	{ "/", JT_DIV },
	{ "*", JT_MUL },
	{ "%", JT_MOD },
	{ "~", JT_TILDE },
	{ "[", JT_LBRACKET },
	{ "]", JT_RBRACKET },
	{ "(", JT_LPAREN },
	{ ")", JT_RPAREN },
	{ "{", JT_LBRACE },
	{ "}", JT_RBRACE },
	{ ">", JT_GT },
	{ "<", JT_LT },
	{ "=", JT_ASSIGN },
	{ ".", JT_DOT },
	{ ":", JT_COLON },
	{ "|", JT_PIPE },
	{ ",", JT_COMMA },
	{ ";", JT_SEMICOLON },
};
enum { N_OPERATORS = sizeof operators / sizeof operators[0] };

const char *jtoken_describe(const struct jtoken *t, char *out, size_t room)
{
	static const char *const words[] = { [JT_EOF] = "the end of the template",
		[JT_DATA] = "template text",
		[JT_BLOCK_BEGIN] = "{%",
		[JT_BLOCK_END] = "%}",
		[JT_VAR_BEGIN] = "{{",
		[JT_VAR_END] = "}}",
		[JT_STRING] = "a string",
		[JT_INTEGER] = "an integer",
		[JT_FLOAT] = "a number",
		[JT_NAME] = "a name" };

	if (t->kind == JT_NAME && t->value.kind == JV_STR)
		return jstr_show(t->value.u.s, out, room);
	if (t->kind < sizeof words / sizeof words[0])
		return words[t->kind];
	for (size_t i = 0; i < N_OPERATORS; i++)
		if (operators[i].kind == t->kind)
			return operators[i].text;
	return "?";
}

static void bracket(struct lexer *l, char c)
{
	char msg[48] = "unexpected 'x'";

	if (strchr("([{", c)) {
		if (l->n_open >= l->j->depth_max)
			jinja_fail_depth(l->j);
		l->cap_open = jinja_grow(l->j, &l->open, l->cap_open, l->n_open + 1, 1);
		l->open[l->n_open++] = c == '(' ? ')' : c == '[' ? ']' : '}';
	} else if (strchr(")]}", c)) {
		msg[12] = c;
		if (!l->n_open)
			lex_fail(l, msg);
		if (l->open[--l->n_open] != c) {
			memcpy(msg + 14, ", expected 'x'", 15);
			msg[26] = l->open[l->n_open];
			lex_fail(l, msg);
		}
	}
}

static bool lex_operator(struct lexer *l)
{
	for (size_t i = 0; i < N_OPERATORS; i++) {
		if (!looking_at(l, l->at, operators[i].text))
			continue;
		bracket(l, operators[i].text[0]);
		push(l, operators[i].kind, jval_none());
		eat_to(l, l->at + strlen(operators[i].text));
		return true;
	}
	return false;
}

/* Length of digits of `base` from `at`, with single underscores between them. */
static size_t digits_len(const struct lexer *l, size_t at, int base, bool under_first)
{
	size_t from = at, good = at;

	if (under_first && at < l->len && l->src[at] == '_')
		at++;
	for (; at < l->len; at++) {
		char c = l->src[at];
		bool digit =
			base == 16 ? strchr("0123456789abcdefABCDEF", c) != NULL : c >= '0' && c < '0' + base;

		if (c && digit)
			good = at + 1;
		else if (c != '_' || at == from || l->src[at - 1] == '_' || good != at)
			break;
	}
	return good - from;
}

static struct jstr *without_underscores(struct lexer *l, size_t from, size_t len)
{
	struct jtext *t = jtext_new(l->j, len);

	for (size_t i = from; i < from + len; i++)
		if (l->src[i] != '_')
			jtext_putc(l->j, t, l->src[i], true);
	return jtext_str(l->j, t);
}

/* Digits, then a fraction or an exponent or both: the length, or 0 when it is no float. */
static size_t float_len(const struct lexer *l)
{
	size_t at = l->at + digits_len(l, l->at, 10, false), n;
	bool fraction = false, exponent = false;

	if (at == l->at || (l->at && l->src[l->at - 1] == '.'))
		return 0;
	if (at < l->len && l->src[at] == '.' && (n = digits_len(l, at + 1, 10, false))) {
		at += 1 + n;
		fraction = true;
	}
	if (at < l->len && (l->src[at] | 32) == 'e') {
		size_t e = at + 1;

		if (e < l->len && (l->src[e] == '+' || l->src[e] == '-'))
			e++;
		n = digits_len(l, e, 10, false);
		exponent = n > 0;
		if (exponent)
			at = e + n;
	}
	return fraction || exponent ? at - l->at : 0;
}

static bool lex_integer(struct lexer *l)
{
	static const struct {
		const char *lower, *upper;
		int base;
	} prefixes[] = { { "0b", "0B", 2 }, { "0o", "0O", 8 }, { "0x", "0X", 16 } };
	size_t n = 0;
	struct jstr *digits;
	uint32_t base = 10;

	for (size_t i = 0; i < 3 && !n; i++) {
		if (!looking_at(l, l->at, prefixes[i].lower) && !looking_at(l, l->at, prefixes[i].upper))
			continue;
		n = digits_len(l, l->at + 2, prefixes[i].base, true);
		base = (uint32_t)prefixes[i].base;
		if (n) {
			digits = without_underscores(l, l->at + 2, n);
			push(l, JT_INTEGER, jint_parse(l->j, digits->p, digits->len, base, false));
			eat_to(l, l->at + 2 + n);
			return true;
		}
	}
	n = digits_len(l, l->at, l->src[l->at] == '0' ? 1 : 10,
		false); /* a number that begins with 0 is only zeros */
	if (!n)
		return false;
	digits = without_underscores(l, l->at, n);
	if (digits->len > JINT_MAX_DIGITS)
		lex_fail(l, "an integer of too many digits");
	push(l, JT_INTEGER, jint_parse(l->j, digits->p, digits->len, 10, false));
	eat_to(l, l->at + n);
	return true;
}

static bool lex_number(struct lexer *l)
{
	size_t n;
	struct jstr *text;
	double f;

	if (l->src[l->at] < '0' || l->src[l->at] > '9')
		return false;
	n = float_len(l);
	if (!n)
		return lex_integer(l);
	text = without_underscores(l, l->at, n);
	if (!jfloat_parse(text->p, text->len, &f))
		lex_fail(l, "a malformed number");
	push(l, JT_FLOAT, jval_float(f));
	eat_to(l, l->at + n);
	return true;
}

static bool lex_name(struct lexer *l)
{
	size_t at = l->at, n;
	uint32_t cp;

	while (at < l->len && (n = utf8_decode(l->src + at, l->len - at, &cp)) &&
		(junicode_is_word(cp) || junicode_is_name_part(cp)))
		at += n;
	if (at == l->at)
		return false;
	for (size_t i = l->at; i < at; i += n) {
		n = utf8_decode(l->src + i, l->len - i, &cp);
		if (i == l->at ? !junicode_is_name_start(cp) : !junicode_is_name_part(cp))
			lex_fail(l, "a character that names cannot have");
	}
	push(l, JT_NAME, jval_str(jstr_ref(l->j, l->src + l->at, at - l->at, true)));
	eat_to(l, at);
	return true;
}

/* Value of the hex digits of \x, \u or \U. */
static uint32_t hex_escape(struct lexer *l, const char *p, const char *end, int n)
{
	uint32_t v = 0;

	for (int i = 0; i < n; i++) {
		char c = p + i < end ? p[i] : 0;

		if (!c || !strchr("0123456789abcdefABCDEF", c))
			lex_fail(l, "a truncated \\x, \\u or \\U escape in a string");
		v = v * 16 + (uint32_t)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
	}
	return v;
}

/* One escape, p behind the backslash; returns what follows it. */
static const char *escape(struct lexer *l, struct jtext *t, const char *p, const char *end)
{
	static const char from[] = "abfnrtv\\'\"", to[] = "\a\b\f\n\r\t\v\\'\"";
	const char *known = *p ? strchr(from, *p) : NULL;
	int n = *p == 'x' ? 2 : *p == 'u' ? 4 : *p == 'U' ? 8 : 0;
	uint32_t v = 0;

	if (*p == '\n')
		return p + 1;
	if (known) {
		jtext_putc(l->j, t, to[known - from], true);
		return p + 1;
	}
	if (*p >= '0' && *p <= '7') {
		for (n = 0; n < 3 && p + n < end && p[n] >= '0' && p[n] <= '7'; n++)
			v = v * 8 + (uint32_t)(p[n] - '0');
		jtext_put_cp(l->j, t, v, true);
		return p + n;
	}
	if (n) {
		v = hex_escape(l, p + 1, end, n);
		if (v > 0x10ffff || (v >= 0xd800 && v <= 0xdfff))
			lex_fail(l, "an escape in a string that is no character");
		jtext_put_cp(l->j, t, v, true);
		return p + 1 + n;
	}
	if (*p == 'N')
		lex_fail(l, "\\N{name} escapes are not supported; write \\u and four digits");
	jtext_putc(l->j, t, '\\', true); /* any other backslash stands for itself */
	if ((uint8_t)*p >=
		0x80) { /* Python decodes text whose other characters were turned into escapes before */
		size_t len = utf8_decode(p, (size_t)(end - p), &v);

		jtext_printf(l->j, t, true, v < 0x100 ? "x%02x" : v < 0x10000 ? "u%04x" : "U%08x", v);
		return p + len;
	}
	return p;
}

static bool lex_string(struct lexer *l)
{
	char quote = l->src[l->at];
	const char *p = l->src + l->at + 1, *end = p, *stop = l->src + l->len;
	struct jtext *t;
	struct jstr *s;

	if (quote != '"' && quote != '\'')
		return false;
	while (end < stop && *end != quote)
		end += *end == '\\' ? 2 : 1;
	if (end >= stop)
		return false;
	t = jtext_new(l->j, (size_t)(end - p));
	while (p < end) {
		const char *slash = memchr(p, '\\', (size_t)(end - p));

		jtext_put(l->j, t, p, (size_t)((slash ? slash : end) - p), true);
		p = slash ? escape(l, t, slash + 1, end) : end;
	}
	s = jtext_str(l->j, t);
	s->text = NULL; /* shared between threads: nothing may be appended to it */
	push(l, JT_STRING, jval_str(s));
	eat_to(l, (size_t)(end + 1 - l->src));
	return true;
}

static void lex_tag(struct lexer *l, bool is_variable)
{
	char msg[64];

	l->n_open = 0;
	for (;;) {
		size_t end = 0, space = skip_space(l, l->at);

		if (!l->n_open) {
			if (!is_variable)
				end = tag_end(l, l->at, "%}");
			else if (looking_at(l, l->at, "-}}"))
				end = skip_space(l, l->at + 3);
			else if (looking_at(l, l->at, "}}"))
				end = l->at + 2;
		}
		if (end) {
			push(l, is_variable ? JT_VAR_END : JT_BLOCK_END, jval_none());
			eat_to(l, end);
			return;
		}
		if (space > l->at) {
			eat_to(l, space);
			continue;
		}
		if (l->at >= l->len)
			return; /* the parser meets the end of the template */
		if (lex_number(l) || lex_name(l) || lex_string(l) || lex_operator(l))
			continue;
		memcpy(msg, "unexpected character ' '", 25);
		msg[22] = l->src[l->at];
		lex_fail(l, (uint8_t)l->src[l->at] < 0x80 ? msg : "unexpected character");
	}
}

/* ---- the whole ---- */

static size_t find_tag(const struct lexer *l, size_t at)
{
	for (; at + 1 < l->len; at++)
		if (l->src[at] == '{' &&
			(l->src[at + 1] == '%' || l->src[at + 1] == '{' || l->src[at + 1] == '#'))
			return at;
	return l->len;
}

static bool lex_next(struct lexer *l)
{
	size_t tag = find_tag(l, l->at), raw, from = l->at, keep;
	char kind, sign;

	jinja_work(l->j, tag - l->at);
	if (tag >= l->len) {
		push_data(l, from, l->len);
		return false;
	}
	kind = l->src[tag + 1];
	raw = kind == '%' ? raw_begin(l, tag) : 0;
	sign = tag + 2 < l->len && (l->src[tag + 2] == '-' || l->src[tag + 2] == '+') ? l->src[tag + 2] : 0;
	keep = text_end(l, from, tag, sign, kind == '{');
	push_data(l, from, keep);
	eat_to(l, tag);
	if (raw) {
		lex_raw(l, raw);
		return true;
	}
	if (kind != '#')
		push(l, kind == '%' ? JT_BLOCK_BEGIN : JT_VAR_BEGIN, jval_none());
	eat_to(l, tag + 2 + (sign != 0));
	if (kind == '#')
		lex_comment(l);
	else
		lex_tag(l, kind == '{');
	return l->at < l->len;
}

static void normal_newlines(struct lexer *l, const char *src, size_t len)
{
	char *copy = jinja_alloc(l->j, len + 1);
	size_t n = 0;

	jinja_work(l->j, len);
	for (size_t i = 0; i < len; i++) {
		if (src[i] == '\r' && i + 1 < len && src[i + 1] == '\n')
			continue;
		copy[n++] = src[i] == '\r' ? '\n' : src[i];
	}
	if (n && copy[n - 1] == '\n')
		n--;
	copy[n] = 0;
	l->src = copy;
	l->len = n;
}

void jinja_lex(struct jinja *j, const char *src, size_t len, struct jtokens *out)
{
	struct lexer l = { .j = j, .line = 1, .line_start = true, .out = out };
	size_t bad;

	if (!utf8_valid(src, len, &bad))
		jinja_fail(j, JFAIL_SYNTAX, "not valid UTF-8 at byte %zu", bad);
	normal_newlines(&l, src, len);
	while (l.at < l.len && lex_next(&l))
		;
	push(&l, JT_EOF, jval_none());
}

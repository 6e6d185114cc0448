/* SPDX-License-Identifier: Apache-2.0
 * Manifests: libconfig syntax, read as hostile text. Every key is known and typed, or the file is refused with file
 * and line. Includes are refused before the library sees them: a manifest stands alone.
 */
#include "plugins/plugins_priv.h"
#include <libconfig.h>
#include <stdio.h>
#include <string.h>

struct reader {
	const char *path;
	struct error *e;
};

static unsigned line_of(const config_setting_t *s) { return config_setting_source_line(s); }

static int fail(const struct reader *r, unsigned line, const char *key, const char *why)
{
	return error_set(r->e, TENON_E_CONFIG, "%.120s:%u: '%.40s': %s", r->path, line, key ? key : "?", why);
}

static int fail_at(const struct reader *r, const config_setting_t *s, const char *why)
{
	return fail(r, line_of(s), config_setting_name(s), why);
}

static int take_string(const struct reader *r, const config_setting_t *s, char *out, size_t room)
{
	const char *v = config_setting_get_string(s);

	if (!v)
		return fail_at(r, s, "must be a string in double quotes");
	if (!*v || strlen(v) >= room)
		return fail_at(r, s, "is empty or too long");
	for (const char *p = v; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			return fail_at(r, s, "holds a control character");
	if (!utf8_valid(v, strlen(v), NULL))
		return fail_at(r, s, "is not valid UTF-8");
	memcpy(out, v, strlen(v) + 1);
	return TENON_OK;
}

static bool only_of(const char *s, const char *set) { return s[strspn(s, set)] == 0; }

#define WORD "abcdefghijklmnopqrstuvwxyz0123456789_-"

static int take_word(const struct reader *r, const config_setting_t *s, char *out, size_t room)
{
	int rc = take_string(r, s, out, room);

	if (!rc && !only_of(out, WORD))
		rc = fail_at(r, s, "may hold a-z, 0-9, '_' and '-' only");
	return rc;
}

static int take_file(const struct reader *r, const config_setting_t *s, char *out, size_t room)
{
	int rc = take_string(r, s, out, room);

	if (!rc && (strchr(out, '/') || out[0] == '.'))
		rc = fail_at(r, s, "must be a file beside the manifest, without a folder");
	return rc;
}

static int take_int(const struct reader *r, const config_setting_t *s, int lo, int hi, int *out)
{
	if (config_setting_type(s) != CONFIG_TYPE_INT)
		return fail_at(r, s, "must be a whole number");
	*out = config_setting_get_int(s);
	return *out < lo || *out > hi ? fail_at(r, s, "is out of range") : TENON_OK;
}

static int hex_digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int take_sha256(const struct reader *r, const config_setting_t *s, struct manifest_variant *v)
{
	char hex[65];
	int rc = take_string(r, s, hex, sizeof hex);

	if (rc)
		return rc;
	if (strlen(hex) != 64 || !only_of(hex, "0123456789abcdef"))
		return fail_at(r, s, "must be 64 hexadecimal digits in lower case");
	for (size_t i = 0; i < 32; i++)
		v->sha256[i] = (uint8_t)(hex_digit(hex[2 * i]) << 4 | hex_digit(hex[2 * i + 1]));
	v->has_sha256 = true;
	return TENON_OK;
}

/* An array of 1 (or, with `none`, 0) to `most` elements. */
static int check_array(const struct reader *r, const config_setting_t *s, bool none, int most)
{
	if (config_setting_type(s) != CONFIG_TYPE_ARRAY)
		return fail_at(r, s, "must be an array: [ ... ]");
	if (config_setting_length(s) > most || (!none && !config_setting_length(s)))
		return fail_at(r, s, "has too few or too many elements");
	return TENON_OK;
}

static int take_isa(const struct reader *r, const config_setting_t *s, struct manifest_variant *v)
{
	int rc = check_array(r, s, true, MANIFEST_MAX_ISA);

	for (int i = 0; !rc && i < config_setting_length(s); i++) {
		const char *f = config_setting_get_string_elem(s, i);

		if (!f || !*f || strlen(f) >= sizeof v->isa[0] || !only_of(f, WORD))
			return fail_at(r, s, "must hold names of processor features");
		memcpy(v->isa[v->n_isa++], f, strlen(f) + 1);
	}
	return rc;
}

static int take_majors(const struct reader *r, const config_setting_t *s, struct manifest *m)
{
	int rc = check_array(r, s, false, MANIFEST_MAX_MAJORS);

	for (int i = 0; !rc && i < config_setting_length(s); i++) {
		const config_setting_t *el = config_setting_get_elem(s, (unsigned)i);

		if (config_setting_type(el) != CONFIG_TYPE_INT || config_setting_get_int(el) < 1)
			return fail_at(r, s, "must hold ABI majors: whole numbers from 1");
		m->major[m->n_majors++] = (uint32_t)config_setting_get_int(el);
	}
	return rc;
}

/* Keys that stand at the top for the only variant, or inside one of `variants`. */
static int take_variant_key(
	const struct reader *r, const config_setting_t *s, struct manifest_variant *v, bool *known)
{
	const char *key = config_setting_name(s);

	*known = true;
	if (!strcmp(key, "file"))
		return take_file(r, s, v->file, sizeof v->file);
	if (!strcmp(key, "isa"))
		return take_isa(r, s, v);
	if (!strcmp(key, "sha256"))
		return take_sha256(r, s, v);
	*known = false;
	return TENON_OK;
}

static int take_variant(const struct reader *r, const config_setting_t *group, struct manifest_variant *v)
{
	if (!config_setting_is_group(group))
		return fail(r, line_of(group), "variants", "must hold groups: ( { ... }, ... )");
	for (int i = 0; i < config_setting_length(group); i++) {
		const config_setting_t *s = config_setting_get_elem(group, (unsigned)i);
		const char *key = config_setting_name(s);
		bool known;
		int rc = take_variant_key(r, s, v, &known);

		if (!rc && !known && !strcmp(key, "name"))
			rc = take_word(r, s, v->name, sizeof v->name);
		else if (!rc && !known && !strcmp(key, "rank"))
			rc = take_int(r, s, 0, 1000, &v->rank);
		else if (!rc && !known)
			rc = fail_at(r, s, "unknown key in a variant; known: name, file, isa, rank, sha256");
		if (rc)
			return rc;
	}
	if (!v->name[0] || !v->file[0])
		return fail(r, line_of(group), "variants", "a variant needs name and file");
	return TENON_OK;
}

static int take_variants(const struct reader *r, const config_setting_t *s, struct manifest *m)
{
	int n = config_setting_length(s);

	if (config_setting_type(s) != CONFIG_TYPE_LIST)
		return fail_at(r, s, "must be a list: ( { ... }, ... )");
	if (n < 1 || n > MANIFEST_MAX_VARIANTS)
		return fail_at(r, s, "needs 1 to 16 variants");
	for (int i = 0; i < n; i++) {
		int rc = take_variant(r, config_setting_get_elem(s, (unsigned)i), &m->variant[i]);

		for (int j = 0; !rc && j < i; j++)
			if (!strcmp(m->variant[i].name, m->variant[j].name))
				rc = fail_at(r, s, "two variants have the same name");
		if (rc)
			return rc;
	}
	m->n_variants = (uint32_t)n;
	return TENON_OK;
}

static int take_top(
	const struct reader *r, const config_setting_t *s, struct manifest *m, struct manifest_variant *only)
{
	const char *key = config_setting_name(s);
	int version = 0, rc;
	bool known;

	if (!strcmp(key, "manifest")) {
		rc = take_int(r, s, 1, 1, &version);
		return rc ? fail_at(r, s, "must be 1; a newer manifest needs a newer Tenon") : TENON_OK;
	}
	if (!strcmp(key, "name"))
		return take_word(r, s, m->name, sizeof m->name);
	if (!strcmp(key, "vendor"))
		return take_string(r, s, m->vendor, sizeof m->vendor);
	if (!strcmp(key, "description"))
		return take_string(r, s, m->description, sizeof m->description);
	if (!strcmp(key, "abi"))
		return take_majors(r, s, m);
	if (!strcmp(key, "rank"))
		return take_int(r, s, 0, 1000, &m->rank);
	if (!strcmp(key, "variants"))
		return take_variants(r, s, m);
	if (!strcmp(key, "self_check")) {
		m->no_self_check = !config_setting_get_bool(s);
		return config_setting_type(s) == CONFIG_TYPE_BOOL ? TENON_OK
								  : fail_at(r, s, "must be true or false");
	}
	rc = take_variant_key(r, s, only, &known);
	return known
		? rc
		: fail_at(r, s,
			  "unknown key; known: manifest, name, vendor, description, abi, rank, self_check, file, isa, sha256, variants");
}

static int take_root(const struct reader *r, const config_setting_t *root, struct manifest *m)
{
	struct manifest_variant only = { .name = "default" };

	for (int i = 0; i < config_setting_length(root); i++) {
		int rc = take_top(r, config_setting_get_elem(root, (unsigned)i), m, &only);

		if (rc)
			return rc;
	}
	if (!config_setting_get_member(root, "manifest"))
		return fail(r, 1, "manifest", "is missing; write manifest = 1;");
	if (!m->name[0] || !m->n_majors)
		return fail(r, 1, m->name[0] ? "abi" : "name", "is missing");
	if (m->n_variants && (only.file[0] || only.n_isa || only.has_sha256))
		return fail(r, 1, "variants", "stands beside file, isa or sha256; use one or the other");
	if (!m->n_variants && !only.file[0])
		return fail(r, 1, "file", "is missing");
	if (!m->n_variants)
		m->variant[m->n_variants++] = only;
	return TENON_OK;
}

/* The library would read the named file while parsing, so the directive never gets that far. */
static int refuse_includes(const struct reader *r, const char *text)
{
	unsigned line = 1;

	for (const char *p = text; *p; line++) {
		const char *end = p + strcspn(p, "\n");

		p += strspn(p, " \t\r\f\v");
		if (*p == '@')
			return fail(r, line, "@include", "is not allowed in a manifest");
		p = *end ? end + 1 : end;
	}
	return TENON_OK;
}

int manifest_parse(const char *path, const char *text, size_t len, struct manifest *out, struct error *e)
{
	struct reader r = { .path = path, .e = e };
	struct manifest m = { 0 };
	config_t c;
	char *copy;
	int rc;

	if (len > MANIFEST_MAX_BYTES)
		return fail(&r, 1, "manifest", "longer than 64 KiB");
	if (memchr(text, 0, len))
		return fail(&r, 1, "manifest", "holds a zero byte");
	copy = mem_strndup(MEM_PLUGIN, text, len);
	if (!copy)
		return error_set(e, TENON_E_NOMEM, "%.120s: no memory to read it", path);
	config_init(&c);
	rc = refuse_includes(&r, copy);
	if (!rc && !config_read_string(&c, copy))
		rc = error_set(e, TENON_E_CONFIG, "%.120s:%d: %s", path, config_error_line(&c),
			config_error_text(&c));
	if (!rc)
		rc = take_root(&r, config_root_setting(&c), &m);
	config_destroy(&c);
	mem_free(copy);
	if (!rc)
		*out = m;
	return rc;
}

static const char *missing_feature(const struct manifest_variant *v)
{
	for (uint32_t i = 0; i < v->n_isa; i++)
		if (!isa_has(v->isa[i]))
			return v->isa[i];
	return NULL;
}

const struct manifest_variant *manifest_choose(const struct manifest *m, char *why, size_t room)
{
	const struct manifest_variant *best = NULL;

	for (uint32_t i = 0; i < m->n_variants; i++) {
		const struct manifest_variant *v = &m->variant[i];
		const char *no = missing_feature(v);

		if (no && !best)
			(void)snprintf(why, room, "variant '%s' needs '%s', which this machine does not have",
				v->name, no);
		if (!no && (!best || v->rank > best->rank))
			best = v;
	}
	if (best)
		*why = 0;
	return best;
}

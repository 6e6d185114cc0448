/* SPDX-License-Identifier: Apache-2.0
 * What the parts of the parser share: statements in jinja_parser.c, expressions in jinja_expr.c, variables in
 * jinja_scope.c.
 */
#ifndef ENGINE_JINJA_PARSER_H
#define ENGINE_JINJA_PARSER_H
#include "engine/jinja_call.h"

struct jparser {
	struct jinja *j;
	struct jinja_template *t;
	struct jtokens toks;
	size_t at;
	uint32_t loops; /* for-tags around the current place */
};

_Noreturn void jparser_fail(struct jparser *p, uint32_t line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
struct jtoken *jparser_peek(struct jparser *p, size_t ahead);
bool jparser_is(struct jparser *p, enum jtoken_kind kind);
bool jparser_is_word(struct jparser *p, size_t ahead, const char *word);
bool jparser_skip(struct jparser *p, enum jtoken_kind kind); /* true if it was there */
bool jparser_skip_word(struct jparser *p, const char *word);
struct jtoken *jparser_next(struct jparser *p);
struct jtoken *jparser_expect(struct jparser *p, enum jtoken_kind kind, const char *what);
struct jname *jparser_name(struct jparser *p); /* expects a name */
struct jnode *jparser_node(struct jparser *p, enum jnode_kind kind, uint32_t line);
/* One level of nesting; the C stack that a level takes makes it count for several. */
enum { JPARSER_LEVEL = 4 };
void jparser_enter(struct jparser *p);
void jparser_leave(struct jparser *p);

enum jtuple_mode {
	JTUPLE_PLAIN = 0,
	JTUPLE_TARGET = 1,
	JTUPLE_NO_COND = 2,
	JTUPLE_PARENS = 4,
	JTUPLE_NAMESPACE = 8
};
struct jnode *jexpr_parse(struct jparser *p, bool with_cond);
struct jnode *jexpr_tuple(struct jparser *p, unsigned mode, const char *end_word);
struct jnode *jexpr_filters(
	struct jparser *p, struct jnode *node, bool inline_start); /* "|a|b"; inline_start: "a|b" */
struct jnode *jexpr_target(struct jparser *p, unsigned mode, const char *end_word);
struct jnode *jexpr_target_name(struct jparser *p);

void jscope_resolve(struct jinja *j, struct jinja_template *t);
#endif

/* SPDX-License-Identifier: Apache-2.0
 * Intrusive ring lists: a node sits in at most one list and knows how to leave it. Owner: whoever owns the nodes.
 */
#ifndef DAEMON_LIST_H
#define DAEMON_LIST_H
#include <stdbool.h>
#include <stddef.h>

struct node {
	struct node *next, *prev; /* NULL: in no list */
};
struct list {
	struct node head;
};

#define CONTAINER_OF(p, type, member) ((type *)(void *)((char *)(p)-offsetof(type, member)))
/* The loop's body may remove `n`, and nothing else. */
#define LIST_EACH(l, n)                                                                                      \
	for (struct node *n = (l)->head.next, *n##_next = n->next; n != &(l)->head;                          \
		n = n##_next, n##_next = n->next)

static inline void list_init(struct list *l) { l->head.next = l->head.prev = &l->head; }
static inline bool list_empty(const struct list *l) { return l->head.next == &l->head; }
static inline struct node *list_first(struct list *l) { return list_empty(l) ? NULL : l->head.next; }
static inline bool node_linked(const struct node *n) { return n->next != NULL; }

static inline void list_append(struct list *l, struct node *n)
{
	n->prev = l->head.prev;
	n->next = &l->head;
	l->head.prev->next = n;
	l->head.prev = n;
}

/* In no list: nothing happens. */
static inline void node_remove(struct node *n)
{
	if (!n->next)
		return;
	n->prev->next = n->next;
	n->next->prev = n->prev;
	n->next = n->prev = NULL;
}
#endif

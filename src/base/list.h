/* Intrusive doubly linked list: the node lives in the object, so that linking never fails. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct list {
	struct list *next, *prev;
};

#define LIST_INIT(name)          \
	{                        \
		&(name), &(name) \
	}

static inline void list_init(struct list *l)
{
	l->next = l->prev = l;
}

static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}

static inline void list_append(struct list *head, struct list *node)
{
	node->prev = head->prev;
	node->next = head;
	head->prev->next = node;
	head->prev = node;
}

/* Safe on a node that is in no list, if it was initialised. */
static inline void list_remove(struct list *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	list_init(node);
}

/* The current node may be removed while walking. */
#define LIST_EACH(head, node)                                                             \
	for (struct list *node = (head)->next, *node##_next = node->next; node != (head); \
		node = node##_next, node##_next = node->next)

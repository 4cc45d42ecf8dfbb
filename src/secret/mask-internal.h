/* What the two files of the masker share: the machine. */
#pragma once

#include "secret/mask.h"

struct node {
	uint32_t child, sibling; /* 0: none */
	uint32_t fail;           /* the longest end of its string that is a node */
	uint32_t out;            /* the longest end of its string that is a needle; 0: none */
	uint32_t depth;
	uint16_t name; /* of a needle */
	unsigned char c;
	bool is_needle;
};

struct mask_needles {
	int n_refs;
	bool is_built;
	struct node *nodes; /* the root is 0 */
	uint32_t n_nodes, cap_nodes;
	uint32_t root[256]; /* its children, by byte */
	char **names;
	size_t n_names, n_needles;
};

/* Makes the machine of what was added; once. */
void needles_build(struct mask_needles *n);

static inline uint32_t needles_child(const struct mask_needles *n, uint32_t at, unsigned char c)
{
	uint32_t child;

	if (at == 0)
		return n->root[c];
	for (child = n->nodes[at].child; child && n->nodes[child].c != c;)
		child = n->nodes[child].sibling;
	return child;
}

static inline uint32_t needles_step(const struct mask_needles *n, uint32_t at, unsigned char c)
{
	uint32_t next;

	while ((next = needles_child(n, at, c)) == 0 && at != 0)
		at = n->nodes[at].fail;
	return next;
}

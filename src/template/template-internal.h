/* The template room's own objects, shared by its files. */
#pragma once

#include "template/template.h"

enum {
	TAG_SIZE = 65,
	MAX_TAGS = 100, /* of one template */
};

struct tag {
	char template_id[TEMPLATE_ID_SIZE], name[TAG_SIZE];
	int64_t created_us;
	struct list node;
};

struct template_book {
	int dir_fd;
	struct store *store; /* NULL until the tags are loaded */
	struct list tags;    /* oldest first */
	struct limit_set defaults;
};

bool tag_is_known(const struct template_book *book, const char *template_id, struct str name);
void tags_free(struct template_book *book);

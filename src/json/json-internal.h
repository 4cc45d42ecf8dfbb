/* What the files of this room share beyond the tree. */
#pragma once

#include "json/json.h"
#include "json/tree.h"

enum {
	JSON_PATH_SIZE = 128, /* where an error is, as text; longer paths are cut */
};

/* decode.c: on failure `e` says what is wrong and `where` the path to it, empty for the document.
 */
int json_node_decode(struct arena *a, struct json_t *root, const struct json_shape *shape,
	void *out, char where[JSON_PATH_SIZE], struct err *e);

/* write.c: the string in quotes, escaped, with U+FFFD for what is not UTF-8. */
void json_quote(struct buf *out, struct str s);

/* raw.c: the value as compact JSON text. */
void json_write_node(struct buf *out, struct json_t *node);

/* The value tree behind both decoders. jansson's JSON_OBJECT and the door's cannot meet in one
 * file, so tree.c includes this and jansson, and nobody else includes jansson: everywhere else its
 * values go by their struct name and these calls. */
#pragma once

#include "base/base.h"

struct json_t;

enum {
	JSON_MAX_DEPTH = 32,
	/* A value costs some 60 bytes of tree for as little as two of text: this bounds the tree at
	 * about 16 MiB, and is far above any document of the protocols. */
	JSON_MAX_VALUES = 1 << 18,
};

enum json_node_kind {
	NODE_OBJECT,
	NODE_ARRAY,
	NODE_STRING,
	NODE_INT,
	NODE_REAL,
	NODE_BOOL,
	NODE_NULL,
};

/* ---- reading ---- */
int json_node_check(struct str text, size_t max_values, struct err *e); /* as json_check */
int json_node_parse(struct str text, struct json_t **ret, struct err *e);
struct json_t *json_node_free(struct json_t *node);
DEFINE_CLEANUP(struct json_t, json_node_free)

enum json_node_kind json_node_kind(const struct json_t *node);
struct str json_node_string(const struct json_t *node); /* borrowed from the node */
int64_t json_node_int(const struct json_t *node);
double json_node_real(const struct json_t *node);
bool json_node_bool(const struct json_t *node);
size_t json_node_count(const struct json_t *node); /* of an array or an object */
struct json_t *json_node_at(const struct json_t *array, size_t i);

/* Walks an object in the order of its text; start with a zeroed member. */
struct json_member {
	struct str key;
	struct json_t *value;
	void *at;
};
bool json_node_next(struct json_t *object, struct json_member *member);

/* ---- building: NULL when memory is out or a string is not UTF-8 ---- */
struct json_t *json_node_new_object(void);
struct json_t *json_node_new_array(void);
struct json_t *json_node_new_string(struct str s);
struct json_t *json_node_new_int(int64_t value);
struct json_t *json_node_new_bool(bool value);
struct json_t *json_node_get(const struct json_t *object, struct str key); /* NULL: not there */
/* Both take the value, also when they fail (a NULL value fails): 0 or -ENOMEM. */
int json_node_take_member(struct json_t *object, struct str key, struct json_t *value);
int json_node_take_item(struct json_t *array, struct json_t *value);

/* A value back to its text, for JSON_RAW. jansson's own dump would turn 0.1 into
 * 0.10000000000000001. */
#include "json/json-internal.h"

/* The fewest digits that read back as the same number; 17 always do. A real stays a real ("1.0").
 */
static void write_real(struct buf *out, double value)
{
	char text[40];

	for (int digits = 15; digits <= 17; digits++) {
		(void)snprintf(text, sizeof text, "%.*g", digits, value);
		if (strtod(text, NULL) == value)
			break;
	}
	buf_adds(out, text);
	if (!strpbrk(text, ".e"))
		buf_adds(out, ".0");
}

static void write_object(struct buf *out, struct json_t *node)
{
	struct json_member member = { 0 };
	const char *separator = "";

	buf_addc(out, '{');
	while (json_node_next(node, &member)) {
		buf_adds(out, separator);
		json_quote(out, member.key);
		buf_addc(out, ':');
		json_write_node(out, member.value);
		separator = ",";
	}
	buf_addc(out, '}');
}

static void write_array(struct buf *out, const struct json_t *node)
{
	buf_addc(out, '[');
	for (size_t i = 0; i < json_node_count(node); i++) {
		if (i > 0)
			buf_addc(out, ',');
		json_write_node(out, json_node_at(node, i));
	}
	buf_addc(out, ']');
}

/* Recurses as deep as the parser let the document nest. */
void json_write_node(struct buf *out, struct json_t *node)
{
	switch (json_node_kind(node)) {
	case NODE_OBJECT:
		write_object(out, node);
		break;
	case NODE_ARRAY:
		write_array(out, node);
		break;
	case NODE_STRING:
		json_quote(out, json_node_string(node));
		break;
	case NODE_INT:
		buf_printf(out, "%" PRId64, json_node_int(node));
		break;
	case NODE_REAL:
		write_real(out, json_node_real(node));
		break;
	case NODE_BOOL:
		buf_adds(out, json_node_bool(node) ? "true" : "false");
		break;
	case NODE_NULL:
		buf_adds(out, "null");
		break;
	}
}

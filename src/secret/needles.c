/* What is looked for: a secret's value, and what it looks like when a program encodes it. */
#include "secret/mask-internal.h"

#include "json/json.h"

enum {
	FIRST_NODES = 256,
	NAME_MAX_BYTES = 128,
	FORM_MAX_BYTES = 1 << 20, /* of one encoded form: three times the longest value */
};

struct mask_needles *mask_needles_new(void)
{
	struct mask_needles *n = XNEW(struct mask_needles);

	n->n_refs = 1;
	n->cap_nodes = FIRST_NODES;
	n->nodes = XNEW_N(struct node, n->cap_nodes);
	n->n_nodes = 1;
	return n;
}

struct mask_needles *mask_needles_ref(struct mask_needles *n)
{
	n->n_refs++;
	return n;
}

struct mask_needles *mask_needles_unref(struct mask_needles *n)
{
	if (!n || --n->n_refs > 0)
		return NULL;
	explicit_bzero(n->nodes, n->cap_nodes * sizeof *n->nodes);
	free(n->nodes);
	for (size_t i = 0; i < n->n_names; i++)
		free(n->names[i]);
	free(n->names);
	free(n);
	return NULL;
}

bool mask_needles_empty(const struct mask_needles *n)
{
	return n->n_needles == 0;
}

size_t mask_needles_bytes(const struct mask_needles *n)
{
	return n ? n->cap_nodes * sizeof *n->nodes : 0;
}

/* ---- adding ---- */

static uint32_t node_add(struct mask_needles *n, uint32_t parent, unsigned char c)
{
	struct node *node;

	if (n->n_nodes == n->cap_nodes) {
		struct node *grown = XNEW_N(struct node, (size_t)2 * n->cap_nodes);

		memcpy(grown, n->nodes, n->n_nodes * sizeof *grown);
		explicit_bzero(n->nodes, n->n_nodes * sizeof *grown);
		free(n->nodes);
		n->nodes = grown;
		n->cap_nodes *= 2;
	}
	node = &n->nodes[n->n_nodes];
	node->c = c;
	node->depth = n->nodes[parent].depth + 1;
	node->sibling = n->nodes[parent].child;
	n->nodes[parent].child = n->n_nodes;
	if (parent == 0)
		n->root[c] = n->n_nodes;
	return n->n_nodes++;
}

static int add_form(struct mask_needles *n, uint16_t name, struct str form)
{
	uint32_t at = 0;

	if (form.n < MASK_MIN_BYTES)
		return 0;
	if (form.n > MASK_MAX_NODES - n->n_nodes || n->n_needles >= MASK_MAX_NEEDLES)
		return -E2BIG;
	for (size_t i = 0; i < form.n; i++) {
		unsigned char c = (unsigned char)form.p[i];
		uint32_t child = needles_child(n, at, c);

		at = child ? child : node_add(n, at, c);
	}
	if (n->nodes[at].is_needle)
		return 0;
	n->nodes[at].is_needle = true;
	n->nodes[at].name = name;
	n->n_needles++;
	return 0;
}

/* Of the base64 of a text that holds the value somewhere: what is the same whatever stands before
 * and behind it. `shift` is how far into a group of three bytes the value begins. */
static int add_base64(struct mask_needles *n, uint16_t name, struct str value, size_t shift)
{
	static const size_t spoilt[] = { 0, 2, 3 }; /* characters that the bytes before decide on */
	size_t bytes = shift + value.n, whole = bytes * 8 / 6;
	cleanup_free char *plain = XNEW_N(char, bytes + 1);
	cleanup_free char *text = XNEW_N(char, base64_size(bytes) + 1);
	struct str core = { text + spoilt[shift], whole - spoilt[shift] };
	int r;

	if (whole <= spoilt[shift])
		return 0;
	memcpy(plain + shift, value.p, value.n);
	base64_encode(plain, bytes, text);
	r = add_form(n, name, core);
	for (size_t i = 0; i < core.n; i++) {
		char *c = &text[spoilt[shift] + i];

		*c = *c == '+' ? '-' : *c == '/' ? '_' : *c;
	}
	if (r == 0)
		r = add_form(n, name, core); /* the alphabet of URLs */
	explicit_bzero(plain, bytes);
	explicit_bzero(text, base64_size(bytes));
	return r;
}

/* The whole of it, when nothing stands before or behind: the last character counts as well. */
static int add_base64_whole(struct mask_needles *n, uint16_t name, struct str value)
{
	size_t size = base64_size(value.n), end = size;
	cleanup_free char *text = XNEW_N(char, size + 1);
	int r;

	base64_encode(value.p, value.n, text);
	while (end > 0 && text[end - 1] == '=')
		end--;
	r = add_form(n, name, str_make(text, size));
	if (r == 0)
		r = add_form(n, name, str_make(text, end));
	for (size_t i = 0; i < end; i++)
		text[i] = text[i] == '+' ? '-' : text[i] == '/' ? '_' : text[i];
	if (r == 0)
		r = add_form(n, name, str_make(text, end));
	explicit_bzero(text, size);
	return r;
}

static void lower_escapes(struct buf *text)
{
	for (size_t i = 0; i + 2 < text->n; i++)
		if (text->p[i] == '%')
			for (size_t k = 1; k <= 2; k++)
				if (text->p[i + k] >= 'A' && text->p[i + k] <= 'F')
					text->p[i + k] = (char)(text->p[i + k] - 'A' + 'a');
}

/* As in URLs, as in forms, and with either case of digits. */
static int add_percent(struct mask_needles *n, uint16_t name, struct str value)
{
	CLEANUP(buf_done)
	struct buf text = BUF_INIT(FORM_MAX_BYTES), form = BUF_INIT(FORM_MAX_BYTES);
	int r = percent_encode(value, &text);

	for (size_t i = 0; r == 0 && i < text.n; i++)
		if (i + 2 < text.n && memcmp(text.p + i, "%20", 3) == 0) {
			r = buf_addc(&form, '+');
			i += 2;
		} else {
			r = buf_addc(&form, text.p[i]);
		}
	for (int lower = 0; r == 0 && lower < 2; lower++) {
		r = add_form(n, name, buf_str(&text));
		if (r == 0)
			r = add_form(n, name, buf_str(&form));
		lower_escapes(&text);
		lower_escapes(&form);
	}
	if (text.p)
		explicit_bzero(text.p, text.cap);
	if (form.p)
		explicit_bzero(form.p, form.cap);
	return r;
}

/* As a string of JSON: keys of several lines come so in configurations, and in our own records. */
static int add_json(struct mask_needles *n, uint16_t name, struct str value)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(FORM_MAX_BYTES);
	struct jsonw w;
	int r;

	if (!str_is_utf8(value))
		return 0;
	jsonw_init(&w, &text);
	jsonw_str(&w, NULL, value);
	if (!text.p)
		return -E2BIG;
	r = text.failed ? -E2BIG : add_form(n, name, str_make(text.p + 1, text.n - 2));
	explicit_bzero(text.p, text.cap);
	return r;
}

static int add_forms(struct mask_needles *n, uint16_t name, struct str value)
{
	int r = add_form(n, name, value);

	if (r == 0)
		r = add_json(n, name, value);
	if (r == 0)
		r = add_base64_whole(n, name, value);
	for (size_t shift = 0; r == 0 && shift < 3; shift++)
		r = add_base64(n, name, value, shift);
	return r < 0 ? r : add_percent(n, name, value);
}

/* A shell takes the newlines away that a value read from a file ends with. */
static struct str without_newlines(struct str value)
{
	while (value.n > 0 && strchr("\r\n", value.p[value.n - 1]))
		value.n--;
	return value;
}

int mask_needles_add(struct mask_needles *n, struct str name, struct str value, struct err *e)
{
	struct str bare = without_newlines(value);
	char **names;

	assert(!n->is_built);
	if (value.n < MASK_MIN_BYTES)
		return err_set(e, -EINVAL,
			"secret '%.*s' has fewer than %d bytes: it could not be masked in output, "
			"so it is not given to commands",
			STR_ARG(name), MASK_MIN_BYTES);
	if (n->n_names >= UINT16_MAX)
		return err_set(e, -E2BIG, "too many secrets to mask");
	names = XNEW_N(char *, n->n_names + 1);
	for (size_t i = 0; i < n->n_names; i++)
		names[i] = n->names[i];
	names[n->n_names] = strndup(name.p, MIN(name.n, (size_t)NAME_MAX_BYTES));
	free(n->names);
	n->names = names;
	n->n_names++;
	if (add_forms(n, (uint16_t)(n->n_names - 1), value) < 0 ||
		(bare.n < value.n && bare.n >= MASK_MIN_BYTES &&
			add_forms(n, (uint16_t)(n->n_names - 1), bare) < 0))
		return err_set(e, -E2BIG, "the secrets are too large to mask: %d KiB in all forms",
			MASK_MAX_NODES >> 10);
	return 0;
}

/* ---- the machine ---- */

static void link_node(struct mask_needles *n, uint32_t at, uint32_t parent)
{
	struct node *node = &n->nodes[at];
	uint32_t fail = n->nodes[parent].fail, next = 0;

	if (parent != 0) {
		while ((next = needles_child(n, fail, node->c)) == 0 && fail != 0)
			fail = n->nodes[fail].fail;
	}
	node->fail = next;
	node->out = node->is_needle ? at : n->nodes[next].out;
}

/* Breadth first: a node's links need those of all shorter strings. */
void needles_build(struct mask_needles *n)
{
	cleanup_free uint32_t *queue = NULL;
	uint32_t head = 0, tail = 0;

	if (n->is_built)
		return;
	n->is_built = true;
	queue = XNEW_N(uint32_t, n->n_nodes);
	queue[tail++] = 0;
	while (head < tail) {
		uint32_t parent = queue[head++];

		for (uint32_t at = n->nodes[parent].child; at; at = n->nodes[at].sibling) {
			link_node(n, at, parent);
			queue[tail++] = at;
		}
	}
}

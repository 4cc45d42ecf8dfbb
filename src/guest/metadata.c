#include "guest/metadata.h"

#include <sys/xattr.h>

enum {
	METADATA_MAX_KEY =
		255 - (int)(sizeof METADATA_PREFIX - 1), /* the kernel's limit on names */
	METADATA_MAX_TOTAL = 4096,                       /* ext4 keeps them in one block */
	XATTR_LIST_BYTES = 64 << 10,
	XATTR_NAME_SIZE = 256,
	XATTR_VALUE_SIZE = 64 << 10,
};

static int check_text(struct str s, const char *what, struct str key, struct err *e)
{
	for (size_t i = 0; i < s.n; i++)
		if (s.p[i] < 0x20 || s.p[i] > 0x7e)
			return err_set(e, -EINVAL,
				"metadata %s '%.*s' contains non-printable-ASCII byte 0x%02x at "
				"offset %zu",
				what, STR_ARG(key), (unsigned)(unsigned char)s.p[i], i);
	return 0;
}

int metadata_check(const struct json_map *m, struct err *e)
{
	size_t total = 0;

	for (size_t i = 0; i < m->n; i++) {
		struct str key = m->v[i].key, value = m->v[i].value;
		int r;

		if (!key.n)
			return err_set(e, -EINVAL, "metadata key must not be empty");
		if (key.n > METADATA_MAX_KEY)
			return err_set(e, -EINVAL, "metadata key exceeds %d bytes",
				METADATA_MAX_KEY);
		r = check_text(key, "key", key, e);
		if (r == 0)
			r = check_text(value, "value for key", key, e);
		if (r < 0)
			return r;
		total += sizeof METADATA_PREFIX - 1 + key.n + value.n;
	}
	if (total > METADATA_MAX_TOTAL)
		return err_set(e, -EINVAL, "total metadata size %zu exceeds %d bytes", total,
			METADATA_MAX_TOTAL);
	return 0;
}

static bool is_in(const struct json_map *m, const char *name)
{
	for (size_t i = 0; i < m->n; i++)
		if (str_is(m->v[i].key, name))
			return true;
	return false;
}

static int remove_others(int fd, const struct json_map *m, struct err *e)
{
	static const size_t skip = sizeof METADATA_PREFIX - 1;
	char names[XATTR_LIST_BYTES];
	ssize_t n = flistxattr(fd, names, sizeof names);

	if (n < 0)
		return err_sys(e, -errno, "list attributes");
	for (const char *at = names; at < names + n; at += strlen(at) + 1) {
		if (strncmp(at, METADATA_PREFIX, skip) != 0 || is_in(m, at + skip))
			continue;
		if (fremovexattr(fd, at) < 0 && errno != ENODATA)
			return err_sys(e, -errno, "remove attribute");
	}
	return 0;
}

int metadata_write(int fd, const struct json_map *m, struct err *e)
{
	int r = remove_others(fd, m, e);

	for (size_t i = 0; r == 0 && i < m->n; i++) {
		char name[XATTR_NAME_SIZE];

		(void)snprintf(name, sizeof name, METADATA_PREFIX "%.*s", STR_ARG(m->v[i].key));
		if (fsetxattr(fd, name, m->v[i].value.p, m->v[i].value.n, 0) < 0)
			r = err_sys(e, -errno, "set attribute");
	}
	return r;
}

static void write_pair(struct jsonw *w, const char *key, const char *path, const char *name,
	bool *opened)
{
	char value[XATTR_VALUE_SIZE];
	struct str word = str_of(name + sizeof METADATA_PREFIX - 1);
	ssize_t n = getxattr(path, name, value, sizeof value);

	/* Set by hand it may be anything; one strange attribute must not spoil the whole answer. */
	if (n < 0 || !str_is_utf8(word) || !str_is_utf8(str_make(value, (size_t)n)))
		return;
	if (!*opened)
		jsonw_object(w, key);
	*opened = true;
	jsonw_pair(w, word, str_make(value, (size_t)n));
}

void metadata_write_json(struct jsonw *w, const char *key, const char *path)
{
	char names[XATTR_LIST_BYTES];
	ssize_t n = listxattr(path, names, sizeof names);
	bool opened = false;

	if (n <= 0)
		return;
	for (const char *at = names; at < names + n; at += strlen(at) + 1)
		if (strncmp(at, METADATA_PREFIX, sizeof METADATA_PREFIX - 1) == 0)
			write_pair(w, key, path, at, &opened);
	if (opened)
		jsonw_end_object(w);
}

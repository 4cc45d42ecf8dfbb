#include "cli/tar.h"

enum {
	MAX_SIZE_LOG2 = 50, /* no entry is larger than a PiB */
};

/* The fields of a ustar header: where, and how long. */
enum {
	AT_NAME = 0,
	AT_MODE = 100,
	AT_SIZE = 124,
	AT_MTIME = 136,
	AT_CHECKSUM = 148,
	AT_TYPE = 156,
	AT_LINK = 157,
	AT_MAGIC = 257,
	AT_PREFIX = 345,
	N_NAME = 100,
	N_NUMBER = 12,
	N_SHORT_NUMBER = 8,
	N_PREFIX = 155,
};

static void forget_extensions(struct tar_reader *t)
{
	t->path[0] = t->target[0] = '\0';
	t->size_bytes = t->mtime_s = -1;
}

void tar_reader_init(struct tar_reader *t, const struct tar_handlers *handlers)
{
	*t = (struct tar_reader){ .handlers = *handlers };
	t->extension = BUF_INIT(TAR_EXTENSION_MAX);
	forget_extensions(t);
}

void tar_reader_done(struct tar_reader *t)
{
	buf_done(&t->extension);
}

/* ---- numbers and names ---- */

/* Octal text, or with the top bit set a big-endian binary number. */
static int number(const char *p, size_t n, int64_t *ret)
{
	int64_t value = 0;
	size_t i = 0;

	if ((unsigned char)p[0] & 0x80) {
		if ((unsigned char)p[0] != 0x80)
			return -EPROTO;
		for (i = 1; i < n; i++) {
			if (value >> (MAX_SIZE_LOG2 - 8))
				return -EPROTO;
			value = value << 8 | (unsigned char)p[i];
		}
		*ret = value;
		return 0;
	}
	while (i < n && p[i] == ' ')
		i++;
	for (; i < n && p[i] >= '0' && p[i] <= '7'; i++) {
		if (value >> (MAX_SIZE_LOG2 - 3))
			return -EPROTO;
		value = value << 3 | (p[i] - '0');
	}
	if (i < n && p[i] != '\0' && p[i] != ' ')
		return -EPROTO;
	*ret = value;
	return 0;
}

static bool checksum_fits(const char *block)
{
	int64_t stated, sum = 0;

	for (size_t i = 0; i < TAR_BLOCK; i++)
		sum += i >= AT_CHECKSUM && i < AT_CHECKSUM + N_SHORT_NUMBER
			       ? ' '
			       : (unsigned char)block[i];
	return number(block + AT_CHECKSUM, N_SHORT_NUMBER, &stated) == 0 && stated == sum;
}

static void header_path(const struct tar_reader *t, char *path)
{
	const char *b = t->block;
	int name_n = (int)strnlen(b + AT_NAME, N_NAME);
	int prefix_n =
		memcmp(b + AT_MAGIC, "ustar\0", 6) == 0 ? (int)strnlen(b + AT_PREFIX, N_PREFIX) : 0;

	(void)snprintf(path, TAR_PATH_MAX, "%.*s%s%.*s", prefix_n, b + AT_PREFIX,
		prefix_n ? "/" : "", name_n, b + AT_NAME);
}

/* ---- extensions ---- */

static int keep_text(struct str text, char *to, struct err *e)
{
	if (text.n >= TAR_PATH_MAX || (text.n && memchr(text.p, '\0', text.n)))
		return err_set(e, -EPROTO, "a path in the archive is too long");
	if (text.n)
		memcpy(to, text.p, text.n);
	to[text.n] = '\0';
	return 0;
}

static int pax_pair(struct tar_reader *t, struct str key, struct str value, struct err *e)
{
	if (str_is(key, "path"))
		return keep_text(value, t->path, e);
	if (str_is(key, "linkpath"))
		return keep_text(value, t->target, e);
	if (str_has_prefix(key, STR("GNU.sparse.")))
		return err_set(e, -EPROTO, "the archive holds a sparse file");
	if (str_is(key, "size") &&
		str_to_int(value, 0, (int64_t)1 << MAX_SIZE_LOG2, &t->size_bytes) < 0)
		return err_set(e, -EPROTO, "the archive states a strange size");
	if (str_is(key, "mtime")) {
		struct str seconds;

		if (str_split(&value, '.', &seconds))
			(void)str_to_int(seconds, 0, INT32_MAX, &t->mtime_s);
	}
	return 0;
}

/* "LENGTH KEY=VALUE\n", where the length counts all of it. */
static int pax_record(struct tar_reader *t, struct str *rest, struct err *e)
{
	ptrdiff_t space = str_find(*rest, ' ');
	struct str record, key;
	int64_t length;

	if (space <= 0 ||
		str_to_int(str_make(rest->p, (size_t)space), space + 3, (int64_t)rest->n, &length) <
			0 ||
		rest->p[length - 1] != '\n')
		return err_set(e, -EPROTO, "a pax header of the archive is broken");
	record = str_make(rest->p + space + 1, (size_t)(length - space) - 2);
	*rest = str_from(*rest, (size_t)length);
	if (!str_split(&record, '=', &key))
		return err_set(e, -EPROTO, "a pax header of the archive is broken");
	return pax_pair(t, key, record, e);
}

static int apply_extension(struct tar_reader *t, struct err *e)
{
	struct str text = buf_str(&t->extension);
	int r = 0;

	switch (t->extension_type) {
	case 'L':
		r = keep_text(str_make(text.p, strnlen(text.p, text.n)), t->path, e);
		break;
	case 'K':
		r = keep_text(str_make(text.p, strnlen(text.p, text.n)), t->target, e);
		break;
	case 'x':
		while (r == 0 && text.n > 0)
			r = pax_record(t, &text, e);
		break;
	}
	buf_clear(&t->extension);
	return r;
}

/* ---- blocks ---- */

static int kind_of(char type, enum tar_kind *ret)
{
	switch (type) {
	case '0':
	case '7':
	case '\0':
		*ret = TAR_FILE;
		return 0;
	case '1':
		*ret = TAR_HARDLINK;
		return 0;
	case '2':
		*ret = TAR_SYMLINK;
		return 0;
	case '5':
		*ret = TAR_DIRECTORY;
		return 0;
	case '3':
	case '4':
	case '6':
		*ret = TAR_SPECIAL;
		return 0;
	default:
		return -EPROTO;
	}
}

static void expect_data(struct tar_reader *t, enum tar_state state, int64_t size_bytes)
{
	t->state = state;
	t->left = size_bytes;
	t->padding = (size_t)(-size_bytes & (TAR_BLOCK - 1));
}

static int next_state(struct tar_reader *t, struct err *e);

static int begin_entry(struct tar_reader *t, char type, int64_t size_bytes, struct err *e)
{
	struct tar_entry entry = { .path = t->path, .target = t->target };
	int64_t mode = 0, mtime_s = 0;
	int r = kind_of(type, &entry.kind);

	if (r < 0 || number(t->block + AT_MODE, N_SHORT_NUMBER, &mode) < 0)
		return err_set(e, -EPROTO, "the archive holds an entry of unknown kind");
	if (!t->path[0])
		header_path(t, t->path);
	if (!t->target[0])
		(void)snprintf(t->target, sizeof t->target, "%.*s",
			(int)strnlen(t->block + AT_LINK, N_NAME), t->block + AT_LINK);
	(void)number(t->block + AT_MTIME, N_NUMBER, &mtime_s); /* a bad time spoils nothing */
	entry.mode = (uint32_t)mode & 0777;
	entry.mtime_s = t->mtime_s >= 0 ? t->mtime_s : mtime_s;
	if (t->size_bytes >= 0)
		size_bytes = t->size_bytes;
	if (entry.kind == TAR_SYMLINK || entry.kind == TAR_HARDLINK || entry.kind == TAR_DIRECTORY)
		size_bytes = 0; /* some writers state the target's */
	entry.size_bytes = size_bytes;
	r = t->handlers.entry(t->handlers.arg, &entry, e);
	if (r < 0)
		return r;
	forget_extensions(t);
	expect_data(t, TAR_IN_DATA, size_bytes);
	return next_state(t, e);
}

static int on_header(struct tar_reader *t, struct err *e)
{
	static const char zeroes[TAR_BLOCK];
	char type = t->block[AT_TYPE];
	int64_t size_bytes;

	t->block_n = 0;
	if (memcmp(t->block, zeroes, TAR_BLOCK) == 0) {
		t->state = TAR_AT_END;
		return 0;
	}
	if (!checksum_fits(t->block) || number(t->block + AT_SIZE, N_NUMBER, &size_bytes) < 0)
		return err_set(e, -EPROTO, "these bytes are not a tar archive");
	if (type != 'x' && type != 'g' && type != 'L' && type != 'K')
		return begin_entry(t, type, size_bytes, e);
	if (size_bytes >= TAR_EXTENSION_MAX)
		return err_set(e, -EPROTO, "a header of the archive is too long");
	t->extension_type = type;
	expect_data(t, TAR_IN_EXTENSION, size_bytes);
	return next_state(t, e);
}

/* Leaves a state that has nothing left. */
static int next_state(struct tar_reader *t, struct err *e)
{
	int r = 0;

	if (t->left > 0)
		return 0;
	if (t->state == TAR_IN_DATA)
		r = t->handlers.entry_end(t->handlers.arg, e);
	else if (t->state == TAR_IN_EXTENSION)
		r = apply_extension(t, e);
	t->state = t->state != TAR_IN_PADDING && t->padding ? TAR_IN_PADDING : TAR_IN_HEADER;
	t->left = (int64_t)t->padding;
	t->padding = 0;
	return r;
}

static int take_data(struct tar_reader *t, struct str bytes, struct err *e)
{
	int r = 0;

	if (t->state == TAR_IN_DATA)
		r = t->handlers.data(t->handlers.arg, bytes, e);
	else if (t->state == TAR_IN_EXTENSION && buf_add_str(&t->extension, bytes) < 0)
		r = err_set(e, -ENOMEM, "archive: out of memory");
	t->left -= (int64_t)bytes.n;
	return r < 0 ? r : next_state(t, e);
}

int tar_reader_feed(struct tar_reader *t, struct str bytes, struct err *e)
{
	int r = 0;

	while (bytes.n > 0 && r == 0 && t->state != TAR_AT_END) {
		size_t n;

		if (t->state == TAR_IN_HEADER) {
			n = MIN(bytes.n, TAR_BLOCK - t->block_n);
			memcpy(t->block + t->block_n, bytes.p, n);
			t->block_n += n;
			if (t->block_n == TAR_BLOCK)
				r = on_header(t, e);
		} else {
			n = (size_t)MIN((int64_t)bytes.n, t->left);
			r = take_data(t, str_make(bytes.p, n), e);
		}
		bytes = str_from(bytes, n);
	}
	return r;
}

int tar_reader_finish(const struct tar_reader *t, struct err *e)
{
	return t->state == TAR_AT_END ? 0 : err_set(e, -EPROTO, "the archive broke off");
}

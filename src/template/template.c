#include "template/template-internal.h"

#include "json/json.h"

#include <ctype.h>
#include <dirent.h>
#include <sys/stat.h>

struct template_toml {
	struct limit_in limits;
	struct str user, workdir, start, runtime;
	struct json_bool nested;
};

static const struct json_field toml_fields[] = { JSON_FIELD(struct template_toml, user, "user",
							 JSON_STR, .max = 63),
	JSON_FIELD(struct template_toml, workdir, "workdir", JSON_STR,
		.max = TEMPLATE_TEXT_SIZE - 1),
	JSON_FIELD(struct template_toml, start, "start", JSON_STR, .max = TEMPLATE_TEXT_SIZE - 1),
	JSON_FIELD(struct template_toml, runtime, "runtime", JSON_STR,
		.max = TEMPLATE_RUNTIME_SIZE - 1),
	JSON_FIELD(struct template_toml, nested, "nested", JSON_BOOL),
#define LIMIT_FIELD(kind, name, key, unit, least, most, standard, ceiling)              \
	JSON_FIELD(struct template_toml, limits.v[kind], key, JSON_INT, .min = (least), \
		.max = (most)),
	LIMIT_TABLE(LIMIT_FIELD) };
static const struct json_shape toml_shape = JSON_SHAPE(struct template_toml, toml_fields);

int template_book_new(const char *dir, struct template_book **ret, struct err *e)
{
	CLEANUP(template_book_freep) struct template_book *book = XNEW(struct template_book);

	list_init(&book->tags);
	book->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (book->dir_fd < 0)
		return err_sys(e, -errno, "open the templates directory %s", dir);
	*ret = TAKE(book);
	return 0;
}

void template_set_defaults(struct template_book *book, const struct limit_set *defaults)
{
	book->defaults = *defaults;
}

struct template_book *template_book_free(struct template_book *book)
{
	if (!book)
		return NULL;
	close_fdp(&book->dir_fd);
	tags_free(book);
	free(book);
	return NULL;
}

/* [a-z0-9][a-z0-9-_]*, so that a name is one safe path component; upper case is folded. */
static int fold_name(struct str s, char out[TEMPLATE_NAME_SIZE])
{
	if (s.n == 0 || s.n >= TEMPLATE_NAME_SIZE)
		return -EINVAL;
	for (size_t i = 0; i < s.n; i++) {
		char c = (char)tolower((unsigned char)s.p[i]);

		if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
			    (i > 0 && (c == '-' || c == '_'))))
			return -EINVAL;
		out[i] = c;
	}
	out[s.n] = '\0';
	return 0;
}

bool template_is_id(struct str text)
{
	if (text.n != TEMPLATE_ID_SIZE - 1)
		return false;
	for (size_t i = 0; i < text.n; i++)
		if (!isascii((unsigned char)text.p[i]) || !isalnum((unsigned char)text.p[i]))
			return false;
	return true;
}

/* An id that never changes and says nothing: digits of the name's hash. */
static void id_of(const char *name, char id[TEMPLATE_ID_SIZE])
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	uint8_t digest[SHA256_SIZE];

	sha256(name, strlen(name), digest);
	for (size_t i = 0; i < TEMPLATE_ID_SIZE - 1; i++)
		id[i] = letters[digest[i] % 36];
	id[TEMPLATE_ID_SIZE - 1] = '\0';
}

static void copy_text(char *to, size_t size, struct str from)
{
	(void)snprintf(to, size, "%.*s", STR_ARG(from));
}

static void fill(struct template *t, const char *name, const struct template_toml *toml,
	const struct limit_set *defaults)
{
	*t = (struct template){ 0 };
	limit_set_read(&toml->limits, &t->limits);
	for (size_t i = 0; i < LIMIT_KINDS; i++)
		if (!t->limits.v[i])
			t->limits.v[i] = defaults->v[i];
	limit_set_default(&t->limits);
	copy_text(t->name, sizeof t->name, str_of(name));
	id_of(name, t->id);
	copy_text(t->user, sizeof t->user, toml->user.n ? toml->user : STR("user"));
	copy_text(t->workdir, sizeof t->workdir, toml->workdir);
	copy_text(t->start, sizeof t->start, toml->start);
	copy_text(t->runtime, sizeof t->runtime, toml->runtime);
	t->is_nested = toml->nested.value;
}

/* Reads DIR/NAME. A few system calls on small local files: cheaper than keeping a copy true. */
static int load(struct template_book *book, const char *name, struct template *ret, struct err *e)
{
	cleanup_close int dir =
		openat(book->dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	CLEANUP(buf_done) struct buf text = BUF_INIT(64 << 10);
	struct template_toml toml = { 0 };
	struct err missing = { 0 };
	struct arena *arena;
	struct stat st;
	int r;

	if (dir < 0 || fstatat(dir, "rootfs", &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode))
		return err_set(e, -ENOENT, "template '%s' not found", name);
	r = file_read(dir, "template.toml", &text, &missing);
	if (r < 0 && r != -ENOENT)
		return err_set(e, -EBADMSG, "template '%s': %s", name, missing.msg);
	arena = arena_new(64 << 10);
	r = toml_decode(arena, buf_str(&text), &toml_shape, &toml, e);
	if (r >= 0)
		fill(ret, name, &toml, &book->defaults);
	(void)arena_free(arena);
	if (r < 0)
		return err_wrap(e, -EBADMSG, "template '%s': template.toml", name);
	ret->made_us = (int64_t)st.st_mtim.tv_sec * 1000000 + st.st_mtim.tv_nsec / 1000;
	return 0;
}

struct by_id {
	const char *id;
	struct template *ret;
};

static int match_id(void *arg, const struct template *t)
{
	struct by_id *want = arg;

	if (strcmp(t->id, want->id) != 0)
		return 0;
	*want->ret = *t;
	return 1;
}

static bool find_id(struct template_book *book, const char *id, struct template *ret)
{
	struct by_id want = { id, ret };

	return template_is_id(str_of(id)) && template_each(book, match_id, &want) > 0;
}

int template_find(struct template_book *book, struct str wanted, struct template *ret,
	struct err *e)
{
	struct str name = wanted, tag = STR_NONE;
	ptrdiff_t colon = str_find(wanted, ':'), slash;
	char folded[TEMPLATE_NAME_SIZE];
	int r;

	if (colon >= 0) {
		name.n = (size_t)colon;
		tag = str_from(wanted, (size_t)colon + 1);
	}
	slash = str_find(name, '/');
	if (slash >= 0)
		name = str_from(name, (size_t)slash + 1);
	if (fold_name(name, folded) < 0)
		return err_set(e, -EINVAL,
			"invalid template reference '%.*s': use letters, digits, '-' and '_'",
			STR_ARG(wanted));
	r = find_id(book, folded, ret) ? 0 : load(book, folded, ret, e);
	if (r < 0)
		return r;
	if (tag.n && !tag_is_known(book, ret->id, tag))
		return err_set(e, -ENOENT, "tag '%.*s' does not exist for template '%s'",
			STR_ARG(tag), folded);
	return 0;
}

static int is_visible(const struct dirent *entry)
{
	return entry->d_name[0] != '.' && !strchr(entry->d_name, '.');
}

int template_each(struct template_book *book, int (*fn)(void *arg, const struct template *t),
	void *arg)
{
	struct dirent **names = NULL;
	int n = scandirat(book->dir_fd, ".", &names, is_visible, alphasort), r = 0;

	for (int i = 0; i < n; i++) {
		struct template t;

		if (r == 0 && load(book, names[i]->d_name, &t, NULL) == 0)
			r = fn(arg, &t);
		free(names[i]);
	}
	free(names);
	return r;
}

void template_build_id(const struct template *t, char out[UUID_SIZE])
{
	uint8_t digest[SHA256_SIZE];
	char text[64];
	int n = snprintf(text, sizeof text, "%s %" PRId64, t->id, t->made_us);

	sha256(text, (size_t)n, digest);
	uuid_format(digest, out);
}

#include "guest/entry.h"

#include "guest/metadata.h"
#include "guest/path.h"

#include <limits.h>
#include <time.h>

void entry_mode_text(mode_t mode, char out[ENTRY_MODE_SIZE])
{
	static const char rwx[] = "rwxrwxrwx";
	size_t n = 0;

	/* Go's order of letters: d L D p S u g c t. */
	if (S_ISDIR(mode))
		out[n++] = 'd';
	if (S_ISLNK(mode))
		out[n++] = 'L';
	if (S_ISBLK(mode) || S_ISCHR(mode))
		out[n++] = 'D';
	if (S_ISFIFO(mode))
		out[n++] = 'p';
	if (S_ISSOCK(mode))
		out[n++] = 'S';
	if (mode & S_ISUID)
		out[n++] = 'u';
	if (mode & S_ISGID)
		out[n++] = 'g';
	if (S_ISCHR(mode))
		out[n++] = 'c';
	if (mode & S_ISVTX)
		out[n++] = 't';
	if (n == 0)
		out[n++] = '-';
	for (int i = 0; i < 9; i++)
		out[n++] = mode & (1U << (8 - i)) ? rwx[i] : '-';
	out[n] = '\0';
}

static const char *type_name(mode_t mode)
{
	if (S_ISREG(mode))
		return "FILE_TYPE_FILE";
	if (S_ISDIR(mode))
		return "FILE_TYPE_DIRECTORY";
	return "FILE_TYPE_UNSPECIFIED";
}

static void write_time(struct jsonw *w, const char *key, const struct timespec *t)
{
	char text[64];
	struct tm tm;
	size_t n;

	if (t->tv_sec == 0 && t->tv_nsec == 0)
		return;
	/* A file may claim any year; a timestamp can only say these. */
	if (!gmtime_r(&t->tv_sec, &tm) || tm.tm_year < 1000 - 1900 || tm.tm_year > 9999 - 1900)
		return;
	n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
	(void)snprintf(text + n, sizeof text - n, ".%09ldZ", t->tv_nsec);
	jsonw_strz(w, key, text);
}

/* What a link leads to is what it is for the client; one that leads nowhere is nothing. */
static void write_kind(struct jsonw *w, const char *path, const struct stat *st)
{
	char target[PATH_MAX];
	struct stat at;
	mode_t mode = st->st_mode;
	const char *real = path;

	if (S_ISLNK(mode)) {
		real = realpath(path, target) ? target : path;
		mode = stat(real, &at) == 0 ? at.st_mode : 0;
	}
	jsonw_strz(w, "type", mode ? type_name(mode) : "FILE_TYPE_UNSPECIFIED");
	jsonw_int(w, "mode", mode & 0777);
	if (S_ISLNK(st->st_mode))
		jsonw_strz(w, "symlinkTarget", real);
}

void entry_write_stat(struct jsonw *w, const char *key, const char *path, const char *shown,
	const struct users *users, const struct stat *st)
{
	char permissions[ENTRY_MODE_SIZE], name[USER_NAME_SIZE];

	jsonw_object(w, key);
	jsonw_str(w, "name", path_base(shown));
	write_kind(w, path, st);
	jsonw_strz(w, "path", shown);
	jsonw_int64_str(w, "size", st->st_size);
	entry_mode_text(st->st_mode, permissions);
	jsonw_strz(w, "permissions", permissions);
	users_owner_name(users, st->st_uid, name);
	jsonw_strz(w, "owner", name);
	users_group_name(users, st->st_gid, name);
	jsonw_strz(w, "group", name);
	write_time(w, "modifiedTime", &st->st_mtim);
	metadata_write_json(w, "metadata", path);
	jsonw_end_object(w);
}

int entry_write(struct jsonw *w, const char *key, const char *path, const char *shown,
	const struct users *users)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return -errno;
	entry_write_stat(w, key, path, shown, users, &st);
	return 0;
}

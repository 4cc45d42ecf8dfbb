#include "server/said.h"

#include <limits.h>

/* One file's own: it became another kind of file while it was read. A file that is gone is none. */
static const int of_one_file[] = { ENOTDIR, ELOOP, EISDIR, ENXIO, ENAMETOOLONG };
/* No file's own: the disk, or the machine. */
static const int of_the_disk[] = { EIO, ENOSPC, EDQUOT, EROFS, ENOMEM, EMFILE, ENFILE, EPERM,
	EACCES, EBADMSG, EUCLEAN, ENODEV, ESTALE };

static bool ends_with(struct str line, int error)
{
	char text[SAID_TAIL];
	int n = snprintf(text, sizeof text, ": %s", strerror(error));

	return n > 0 && n < (int)sizeof text && line.n >= (size_t)n &&
	       memcmp(line.p + line.n - n, text, (size_t)n) == 0;
}

static bool ends_with_one(struct str line, const int *errors, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (ends_with(line, errors[i]))
			return true;
	return false;
}

/* It got shorter while it was read, or tar came upon a part that cannot be read, which it does not
 * tell apart. It has gone on with zeros. */
static bool has_shrunk(struct str line)
{
	static const struct str words = { "; padding with zeros", 20 };

	return line.n >= words.n && memcmp(line.p + line.n - words.n, words.p, words.n) == 0;
}

/* Owners, attributes and the like, on a disk that has none. Names have no such colon. */
static bool is_warning(struct str line)
{
	static const struct str words = { ": Warning: ", 11 };

	return memmem(line.p, line.n, words.p, words.n);
}

static void keep(char ret[SAID_SIZE], struct str line, bool is_cut)
{
	int tail = SAID_SIZE / 2 - 4;

	if (line.n < SAID_SIZE && !is_cut)
		(void)snprintf(ret, SAID_SIZE, "%.*s", STR_ARG(line));
	else
		(void)snprintf(ret, SAID_SIZE, "%.*s...%.*s", SAID_SIZE / 2, line.p, tail,
			line.p + line.n - tail);
}

static void lose(struct said *said, struct str line)
{
	if (said->lost.n++ == 0)
		keep(said->lost.first, line, said->is_cut);
}

static void hear_error(struct said *said, struct str line)
{
	static const struct str volumes = { "tar: volumes/", 13 }, tar = { "tar: ", 5 };
	struct str rest = str_has_prefix(line, tar) ? str_from(line, tar.n) : line;
	/* Those with a dot are images, which are whole or nothing. */
	bool is_file =
		str_has_prefix(line, volumes) && line.n > volumes.n && line.p[volumes.n] != '.';

	if (is_warning(line) || str_is(rest, "Exiting with failure status due to previous errors"))
		return;
	if (is_file && said->kind == SAID_READING && ends_with(line, ENOENT))
		return;
	if (is_file && said->kind == SAID_READING)
		is_file = has_shrunk(line) ||
			  ends_with_one(line, of_one_file, ARRAY_SIZE(of_one_file));
	else if (is_file)
		is_file = !ends_with_one(line, of_the_disk, ARRAY_SIZE(of_the_disk));
	if (is_file)
		lose(said, rest);
	else if (!said->cause[0])
		keep(said->cause, rest, said->is_cut);
}

static void end_line(struct said *said)
{
	struct str line = str_make(said->line, said->n);

	said->has_spoken = true;
	if (said->kind != SAID_NAMES)
		hear_error(said, line);
	else if (said->name_bytes >= PATH_MAX)
		lose(said, line);
	said->n = said->name_bytes = 0;
	said->escape = 0;
	said->is_cut = false;
}

/* tar writes \n, \\ and \303 for one byte. */
static void count(struct said *said, char c)
{
	if (said->escape == 0)
		said->name_bytes++;
	if (said->escape == 0)
		said->escape = c == '\\' ? 1 : 0;
	else if (said->escape == 1)
		said->escape = c >= '0' && c <= '7' ? 2 : 0;
	else
		said->escape = (said->escape + 1) % 4;
}

void said_feed(struct said *said, const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (p[i] == '\n') {
			end_line(said);
			continue;
		}
		if (said->n == sizeof said->line) {
			memmove(said->line + SAID_HEAD, said->line + SAID_HEAD + SAID_TAIL,
				SAID_TAIL);
			said->n -= SAID_TAIL;
			said->is_cut = true;
		}
		said->line[said->n++] = p[i];
		count(said, p[i]);
	}
}

void said_add_lost(struct said_lost *to, const struct said_lost *lost)
{
	if (to->n == 0)
		*to = *lost;
	else
		to->n += lost->n;
}

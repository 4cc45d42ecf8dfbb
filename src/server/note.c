#include "server/note.h"

#include <elf.h>
#include <link.h>

static const char *const state_names[NOTE_STATES] = { "serving", "checking", "stopping",
	"starting" };

/* ---- which program this is ---- */

static void find_build(const char *from, size_t n, struct note_program *ret)
{
	while (n >= sizeof(ElfW(Nhdr))) {
		ElfW(Nhdr) head;
		size_t name, bytes, whole;

		memcpy(&head, from, sizeof head);
		name = ((size_t)head.n_namesz + 3) & ~(size_t)3;
		bytes = ((size_t)head.n_descsz + 3) & ~(size_t)3;
		whole = sizeof head + name + bytes;
		if (whole > n)
			return;
		if (head.n_type == NT_GNU_BUILD_ID && head.n_namesz == sizeof "GNU" &&
			memcmp(from + sizeof head, "GNU", sizeof "GNU") == 0)
			hex_encode((const uint8_t *)from + sizeof head + name,
				MIN((size_t)head.n_descsz, (sizeof ret->build - 1) / 2),
				ret->build);
		from += whole;
		n -= whole;
	}
}

/* The first that is told is the program itself; the others are its libraries. */
static int look_at_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)size;
	for (size_t i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];

		if (part->p_type == PT_NOTE)
			find_build((const char *)(uintptr_t)(info->dlpi_addr + part->p_vaddr),
				part->p_memsz, arg);
	}
	return 1;
}

void note_program_own(struct note_program *ret)
{
	*ret = (struct note_program){ .version = ATOLL_VERSION };
	(void)dl_iterate_phdr(look_at_object, ret);
}

/* ---- as text ---- */

/* A line of the file holds it, and the terminal that it is shown on takes no orders. */
static void copy_plain(struct str from, char *to, size_t size)
{
	size_t n = MIN(from.n, size - 1);

	for (size_t i = 0; i < n; i++)
		to[i] = (char)((unsigned char)from.p[i] < ' ' || from.p[i] == 0x7f ? ' '
										   : from.p[i]);
	to[n] = '\0';
}

size_t note_format(const struct note *note, char text[NOTE_TEXT_SIZE])
{
	char why[NOTE_WHY_SIZE];
	int n;

	copy_plain(str_of(note->why), why, sizeof why);
	n = snprintf(text, NOTE_TEXT_SIZE,
		"atoll-keeper 1\npid %d\nstart %" PRIu64 "\nstate %s\nasked %" PRId64
		"\nrefused %d\nwhy %s\nversion %s\nbuild %s\nbefore-version %s\nbefore-build %s\n"
		"stopped %" PRId64 "\naway %" PRId64 "\nhad %" PRId64 "\nhas %" PRId64 "\n",
		(int)note->pid, note->start_time, state_names[note->state], note->asked,
		note->is_refused, why, note->now.version, note->now.build, note->before.version,
		note->before.build, note->stopped_ms, note->away_ms, note->had, note->has);
	return (size_t)n;
}

/* The next line must be `name` and a value, which may be empty. */
static bool take_line(struct str *rest, const char *name, struct str *ret)
{
	struct str word;

	return str_split(rest, '\n', ret) && str_split(ret, ' ', &word) && str_is(word, name);
}

static bool take_int(struct str *rest, const char *name, int64_t min, int64_t *ret)
{
	struct str value;

	return take_line(rest, name, &value) && str_to_int(value, min, INT64_MAX, ret) >= 0;
}

static bool take_text(struct str *rest, const char *name, char *ret, size_t size)
{
	struct str value;

	if (!take_line(rest, name, &value) || value.n >= size)
		return false;
	copy_plain(value, ret, size);
	return true;
}

static bool take_state(struct str *rest, enum note_state *ret)
{
	struct str value;

	if (!take_line(rest, "state", &value))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(state_names); i++)
		if (str_is(value, state_names[i])) {
			*ret = (enum note_state)i;
			return true;
		}
	return false;
}

int note_parse(struct str text, struct note *ret)
{
	int64_t format, pid, start, refused;
	struct note n = { 0 };

	if (!take_int(&text, "atoll-keeper", 1, &format) || format != 1 ||
		!take_int(&text, "pid", 2, &pid) || pid > INT32_MAX ||
		!take_int(&text, "start", 0, &start) || !take_state(&text, &n.state) ||
		!take_int(&text, "asked", 0, &n.asked) ||
		!take_int(&text, "refused", 0, &refused) ||
		!take_text(&text, "why", n.why, sizeof n.why) ||
		!take_text(&text, "version", n.now.version, sizeof n.now.version) ||
		!take_text(&text, "build", n.now.build, sizeof n.now.build) ||
		!take_text(&text, "before-version", n.before.version, sizeof n.before.version) ||
		!take_text(&text, "before-build", n.before.build, sizeof n.before.build) ||
		!take_int(&text, "stopped", 0, &n.stopped_ms) ||
		!take_int(&text, "away", 0, &n.away_ms) || !take_int(&text, "had", -1, &n.had) ||
		!take_int(&text, "has", -1, &n.has))
		return -EBADMSG;
	/* A later build may have more to say: the one that asks can be the older. */
	n.pid = (pid_t)pid;
	n.start_time = (uint64_t)start;
	n.is_refused = refused;
	*ret = n;
	return 0;
}

/* ---- on disk ---- */

static int open_dir(const char *path, struct err *e)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? err_sys(e, -errno, "open the data directory %s", path) : fd;
}

int note_write(const char *data_dir, const struct note *note, struct err *e)
{
	cleanup_close int dir = open_dir(data_dir, e);
	char text[NOTE_TEXT_SIZE];
	size_t n = note_format(note, text);

	return dir < 0 ? dir : file_replace(dir, "keeper", str_make(text, n), 0600, e);
}

int note_read(const char *data_dir, struct note *ret, struct err *e)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(4096);
	cleanup_close int dir = open_dir(data_dir, e), fd = -EBADF;
	int r = dir;

	if (r >= 0)
		r = fd = file_open_own(dir, "keeper", 0, e);
	if (r >= 0)
		r = fd_read_all(fd, &text);
	if (fd >= 0 && r >= 0)
		r = note_parse(buf_str(&text), ret);
	if (fd >= 0 && r < 0)
		return err_sys(e, r, "read %s/keeper", data_dir);
	return MIN(r, 0);
}

#include "warden/state.h"
#include "warden/net.h"
#include "warden/proto.h"

int state_write(int dir_fd, const struct state *s, struct err *e)
{
	char text[160];
	int n = snprintf(text, sizeof text,
		"atoll-slot 1\nkey %s\npid %d\nstart %" PRIu64 "\nnumber %d\nloop %d\nengine %d\n",
		s->key, (int)s->pid, s->start_time, s->number, s->loop, s->engine);

	return file_replace(dir_fd, "state", str_make(text, (size_t)n), 0600, e);
}

/* The next line must be `name` and a value. */
static bool take_line(struct str *rest, const char *name, struct str *ret)
{
	struct str line, word;

	if (!str_split(rest, '\n', &line) || !str_split(&line, ' ', &word) || !str_is(word, name))
		return false;
	*ret = line;
	return true;
}

static bool take_int(struct str *rest, const char *name, int64_t min, int64_t max, int64_t *ret)
{
	struct str value;

	return take_line(rest, name, &value) && str_to_int(value, min, max, ret) >= 0;
}

static bool is_key(struct str s)
{
	for (size_t i = 0; i < s.n; i++)
		if (!strchr("abcdefghijklmnopqrstuvwxyz0123456789", s.p[i]) || !s.p[i])
			return false;
	return s.n == sizeof((struct state *)0)->key - 1;
}

int state_parse(struct str text, struct state *ret)
{
	int64_t version, pid, start, number, loop, engine = WARDEN_LOCAL;
	struct state s = { 0 };
	struct str key;

	if (!take_int(&text, "atoll-slot", 1, 1, &version) || !take_line(&text, "key", &key) ||
		!is_key(key) || !take_int(&text, "pid", 2, INT32_MAX, &pid) ||
		!take_int(&text, "start", 0, INT64_MAX, &start) ||
		!take_int(&text, "number", 1, NET_MAX_NUMBER, &number) ||
		!take_int(&text, "loop", -1, 1 << 20, &loop))
		return -EINVAL;
	/* What was made before there were engines says nothing of them. */
	if (text.n &&
		(!take_int(&text, "engine", WARDEN_LOCAL, WARDEN_ENGINES - 1, &engine) || text.n))
		return -EINVAL;
	memcpy(s.key, key.p, key.n);
	s.pid = (pid_t)pid;
	s.start_time = (uint64_t)start;
	s.number = (int)number;
	s.loop = (int)loop;
	s.engine = (int)engine;
	*ret = s;
	return 0;
}

/* Only a file that root wrote counts. */
int state_read(int dir_fd, struct state *ret, struct err *e)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(4096);
	cleanup_close int fd = file_open_own(dir_fd, "state", 0, e);
	int r;

	if (fd < 0)
		return fd;
	r = fd_read_all(fd, &text);
	if (r >= 0)
		r = state_parse(buf_str(&text), ret);
	return r < 0 ? err_sys(e, r, "read state") : 0;
}

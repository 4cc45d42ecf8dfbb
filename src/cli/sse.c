#include "cli/sse.h"

void sse_init(struct sse *s, sse_fn fn, void *arg)
{
	*s = (struct sse){ .line = BUF_INIT(SSE_MAX_BYTES),
		.name = BUF_INIT(4096),
		.id = BUF_INIT(4096),
		.data = BUF_INIT(SSE_MAX_BYTES),
		.fn = fn,
		.arg = arg };
}

void sse_done(struct sse *s)
{
	buf_done(&s->line);
	buf_done(&s->name);
	buf_done(&s->id);
	buf_done(&s->data);
}

static void forget_event(struct sse *s)
{
	buf_clear(&s->name);
	buf_clear(&s->id);
	buf_clear(&s->data);
	s->has_data = false;
}

void sse_reset(struct sse *s)
{
	buf_clear(&s->line);
	forget_event(s);
	s->skips_lf = false;
}

static int dispatch(struct sse *s, struct err *e)
{
	struct sse_event event = { .name = buf_str(&s->name),
		.id = buf_str(&s->id),
		.data = s->has_data ? buf_str(&s->data) : STR_NONE };
	int r = s->has_data || s->id.n ? s->fn(s->arg, &event, e) : 0;

	forget_event(s);
	return r;
}

static void take_field(struct sse *s, struct str name, struct str value)
{
	if (value.n && value.p[0] == ' ')
		value = str_from(value, 1);
	if (str_is(name, "event")) {
		buf_clear(&s->name);
		(void)buf_add_str(&s->name, value);
	} else if (str_is(name, "id")) {
		buf_clear(&s->id);
		(void)buf_add_str(&s->id, value);
	} else if (str_is(name, "data")) {
		if (s->has_data)
			(void)buf_addc(&s->data, '\n');
		s->has_data = true;
		(void)buf_add_str(&s->data, value);
	}
}

/* A line without ':' is a name alone; one that begins with it is a comment, such as a heartbeat. */
static int take_line(struct sse *s, struct err *e)
{
	struct str line = buf_str(&s->line), name = line, value = STR("");
	ptrdiff_t colon = str_find(line, ':');
	int r = 0;

	if (line.n == 0)
		r = dispatch(s, e);
	if (colon >= 0) {
		name.n = (size_t)colon;
		value = str_from(line, (size_t)colon + 1);
	}
	if (name.n)
		take_field(s, name, value);
	buf_clear(&s->line);
	return r;
}

static bool is_full(const struct sse *s)
{
	return s->line.failed || s->name.failed || s->id.failed || s->data.failed;
}

int sse_feed(struct sse *s, struct str bytes, struct err *e)
{
	for (size_t i = 0; i < bytes.n; i++) {
		char c = bytes.p[i];
		bool was_cr = s->skips_lf;
		int r;

		s->skips_lf = c == '\r';
		if (c == '\n' && was_cr)
			continue;
		if (c != '\n' && c != '\r') {
			(void)buf_addc(&s->line, c);
			r = 0;
		} else {
			r = take_line(s, e);
		}
		if (r < 0)
			return r;
		if (is_full(s))
			return err_set(e, -EPROTO, "the server sent an event that is too long");
	}
	return 0;
}

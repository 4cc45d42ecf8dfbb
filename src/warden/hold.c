/* Holding writers before the host's disk is full. While there is too little room below the
 * sandboxes' disks, those that write are frozen, others run on; nothing is made. When there is room
 * again they go on, and what was prepared meanwhile is made anew: its disk may have lost a write.
 * A process stops when it leaves the kernel, and one call may write two gigabytes: who is held and
 * goes on is ended, since a process in a write does heed that.
 * If there is none after a while, the one that has written most since is ended: the others could
 * never write again. Nobody is, if that would not help: a volume's room is not a sandbox's. */
#include "warden/space.h"
#include "warden/warden.h"

enum {
	LOOK_AT_ONCE = 64, /* sandboxes in a turn */
	TURN_MS = 10,
	SECTOR_BYTES = 512,
	/* So much may be written by one that is not held: a little at a time adds up as well. The
	 * margin has room for a hundred of them. */
	WRITES_BYTES = 1 << 20,
	/* And so much by one that is held, whose processes first finish the calls they are in. */
	FINISHES_BYTES = 16 << 20,
	FINISHES_MS = 1000, /* where it cannot be seen who writes */
	WRITTEN_FIELD = 7,  /* of /sys/block/loopN/stat: sectors written */
};

#define HELD_NAME "held"
#define HELD_PAUSED "p"

static int64_t hold_limit_ms(const struct warden *w)
{
	return w->options->hold_seconds * 1000;
}

/* What its device has written, as the kernel counts it: no file system is asked. */
static uint64_t device_bytes(const struct slot *slot)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(1024);
	struct str rest, word = STR_NONE;
	int64_t n = 0;
	char path[64];

	(void)snprintf(path, sizeof path, "/sys/block/loop%d/stat", slot->image.is.loop);
	if (slot->image.is.loop < 0 || file_read(AT_FDCWD, path, &text, NULL) < 0)
		return 0;
	rest = str_trim(buf_str(&text));
	for (int field = 1; field <= WRITTEN_FIELD;) {
		if (!str_split(&rest, ' ', &word))
			return 0;
		field += word.n > 0;
	}
	(void)str_to_int(word, 0, INT64_MAX / SECTOR_BYTES, &n);
	return (uint64_t)n * SECTOR_BYTES;
}

/* And what waits for the device: on a slow one that is nearly all of it, and takes room as surely.
 */
static uint64_t written_bytes(const struct slot *slot)
{
	return device_bytes(slot) + (uint64_t)cgroup_dirty_bytes(&slot->w->cgroups, slot->key);
}

static void tell(const struct slot *slot)
{
	control_tell(slot->w,
		&(struct warden_reply){ .kind = WARDEN_HELD,
			.engine = slot->engine,
			.count = slot->is_held },
		slot->id);
}

/* So that the next warden lets it go, and does not take it for paused, unless it is that as well.
 */
static void mark(const struct slot *slot, bool held)
{
	cleanup_close int dir =
		openat(slot->w->run_fd, slot->id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	cleanup_close int fd = -EBADF;

	if (!held) {
		(void)unlinkat(dir, HELD_NAME, 0);
		return;
	}
	fd = openat(dir, HELD_NAME, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (slot->frozen)
		(void)!write(fd, HELD_PAUSED, 1);
}

void hold_note(const struct slot *slot)
{
	if (slot->is_held)
		mark(slot, true);
}

static bool order(const struct slot *slot, bool frozen)
{
	CLEANUP(freezer_close) struct freezer f = FREEZER_INIT;

	return freezer_open(&slot->w->cgroups, slot->key, &f, NULL) >= 0 &&
	       freezer_order(&f, frozen) >= 0;
}

static void hold(struct slot *slot)
{
	mark(slot, true);
	if (!slot->frozen && !order(slot, true)) {
		mark(slot, false);
		return;
	}
	slot->is_held = true;
	slot->has_stopped = slot->frozen;
	slot->held_ms = loop_now_ms(slot->w->loop);
	slot->held_written = slot->written_bytes;
	slot->held_free = slot->w->space.free_bytes;
	log_warn("sandbox.held", "sandbox_id=%s why=\"the host's disk is nearly full\"", slot->id);
	tell(slot);
}

static void release(struct slot *slot)
{
	/* A disk that is being copied must not change, and a worker that stops or starts the
	 * processes has the last word: see hold_catch_up. */
	if (!slot->is_held || slot->still.op)
		return;
	slot->is_held = false;
	if (!slot->frozen)
		(void)order(slot, false);
	mark(slot, false);
	log_info("sandbox.released", "sandbox_id=%s", slot->id);
	tell(slot);
}

void hold_adopt(struct slot *slot)
{
	cleanup_close int dir =
		openat(slot->w->run_fd, slot->id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	cleanup_close int fd = openat(dir, HELD_NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	char paused;
	bool is_paused = fd >= 0 && read(fd, &paused, 1) == 1;

	if (unlinkat(dir, HELD_NAME, 0) < 0 || is_paused)
		return;
	(void)order(slot, false);
	slot->frozen = false;
}

/* ---- while there is too little room ---- */

/* Less than before is possible: what was not on a disk yet need not be if its file is gone. */
static uint64_t written_since(const struct slot *slot)
{
	return slot->written_bytes > slot->written_before
		       ? slot->written_bytes - slot->written_before
		       : 0;
}

/* What goes to volumes is counted nowhere. */
static bool writes(const struct slot *slot)
{
	return (slot->n_volumes && slot->w->has_volumes_below) ||
	       written_since(slot) >= WRITES_BYTES;
}

static void end_for_room(struct slot *slot, const struct err *why)
{
	log_error("sandbox.ended_for_room", "sandbox_id=%s err=%s", slot->id,
		log_quote(str_of(why->msg)));
	control_tell(slot->w,
		&(struct warden_reply){ .kind = WARDEN_EXITED, .engine = slot->engine, .e = *why },
		slot->id);
	slot_end(slot, why);
}

static bool has_stopped(const struct slot *slot)
{
	CLEANUP(freezer_close) struct freezer f = FREEZER_INIT;

	return freezer_open(&slot->w->cgroups, slot->key, &f, NULL) >= 0 && freezer_is_still(&f);
}

static bool goes_on(const struct slot *slot)
{
	const struct warden *w = slot->w;

	if (slot->written_bytes > slot->held_written + FINISHES_BYTES)
		return true;
	return slot->n_volumes && w->has_volumes_below &&
	       w->space.free_bytes + FINISHES_BYTES < slot->held_free &&
	       loop_now_ms(w->loop) - slot->held_ms > FINISHES_MS;
}

static void look_at_held(struct slot *slot)
{
	struct err why = { 0 };

	slot->has_stopped = slot->has_stopped || has_stopped(slot);
	if (slot->has_stopped)
		return;
	slot->written_bytes = written_bytes(slot);
	if (!goes_on(slot))
		return;
	(void)err_set(&why, -ENOSPC,
		"the host's disk was nearly full and this sandbox went on writing when it was to "
		"stop: write less in one call");
	end_for_room(slot, &why);
}

static void look_at(struct slot *slot)
{
	if (slot->state != SLOT_RUNNING)
		return;
	if (slot->is_held) {
		look_at_held(slot);
		return;
	}
	slot->written_bytes = written_bytes(slot);
	if (slot->written_at < slot->w->short_ms) { /* the first look since */
		slot->written_at = loop_now_ms(slot->w->loop);
		slot->written_before = slot->written_bytes;
	}
	/* Who copies its disk, or starts its processes, would let it go again. */
	if (!slot->still.op && writes(slot))
		hold(slot);
}

void hold_catch_up(struct slot *slot)
{
	if (slot->w->is_short)
		look_at(slot);
	else
		release(slot);
}

/* A few each turn, all in turn. */
static void look_for_writers(struct warden *w)
{
	int at = 0, n = 0;

	LIST_EACH(&w->slots, node)
	{
		struct slot *slot = container_of(node, struct slot, node);

		if (at++ < w->next_look)
			continue;
		if (n++ == LOOK_AT_ONCE)
			break;
		look_at(slot);
	}
	w->next_look = n > LOOK_AT_ONCE ? w->next_look + LOOK_AT_ONCE : 0;
}

/* Who may end for room: it has written since there was too little, and was held for long. */
static bool may_end(const struct slot *slot)
{
	const struct warden *w = slot->w;

	return slot->is_held && slot->state == SLOT_RUNNING &&
	       written_since(slot) >= WRITES_BYTES &&
	       loop_now_ms(w->loop) - slot->held_ms >= hold_limit_ms(w);
}

/* Of those the one that gives back most of what is missing, and has written most. False: what all
 * of them together have is less than that, since volumes or the host took the room. */
static bool find_worst(const struct warden *w, struct slot **ret)
{
	uint64_t missing = space_missing(&w->space), sum = 0, most = 0;

	*ret = NULL;
	LIST_EACH(&w->slots, node)
	{
		struct slot *slot = container_of(node, struct slot, node);
		uint64_t given;

		if (!may_end(slot))
			continue;
		given = MIN(disk_taken(&w->disk, &slot->image.is), missing);
		sum += given;
		if (!*ret || given > most ||
			(given == most && written_since(slot) > written_since(*ret))) {
			*ret = slot;
			most = given;
		}
	}
	return missing && sum >= missing;
}

static void end_worst(struct warden *w)
{
	int64_t now_ms = loop_now_ms(w->loop);
	struct slot *slot = NULL;
	struct err why = { 0 };
	bool helps;

	/* Before the next one ends, what the last one gives back is waited for as long. */
	if (now_ms - w->short_ms < hold_limit_ms(w))
		return;
	helps = find_worst(w, &slot);
	if (!slot)
		return;
	w->short_ms = now_ms;
	if (!helps) {
		log_warn("disk.stuck",
			"missing_mib=%" PRIu64 " means=\"no sandbox's end would give that back: "
			"something else, volumes maybe, has taken it\"",
			space_missing(&w->space) / SPACE_MIB);
		return;
	}
	(void)err_set(&why, -ENOSPC,
		"the host's disk was full for %d s and this sandbox had written most to it",
		(int)w->options->hold_seconds);
	end_for_room(slot, &why);
}

static void become_short(struct warden *w, const struct space *s)
{
	w->is_short = true;
	w->short_ms = loop_now_ms(w->loop);
	w->next_look = 0;
	spares_drop(w);
	log_warn("disk.short",
		"free_mib=%" PRIu64 " unwritten_mib=%" PRIu64
		" means=\"sandboxes that write are held, none is made\"",
		s->free_bytes / SPACE_MIB, s->dirty_bytes / SPACE_MIB);
}

static void go_on(struct warden *w, const struct space *s)
{
	struct err why = { .code = -ECANCELED };

	w->is_short = false;
	log_info("disk.room", "free_mib=%" PRIu64, s->free_bytes / SPACE_MIB);
	LIST_EACH(&w->slots, node)
	{
		struct slot *slot = container_of(node, struct slot, node);

		release(slot);
		/* What was prepared meanwhile may have lost a write. */
		if (slot->state == SLOT_IDLE || slot->state == SLOT_MAKING)
			slot_end(slot, &why);
	}
	refill_soon(w);
}

static void look(void *arg)
{
	struct warden *w = arg;
	struct space s = { 0 };
	int64_t next_ms = TURN_MS;
	STEP(w, WARDEN_STEP_LOOK);

	if (space_look(&w->disk, &s) >= 0)
		w->space = s;
	else
		s = w->space;
	if (!w->is_short && space_is_short(&s))
		become_short(w, &s);
	else if (w->is_short && space_is_back(&s))
		go_on(w, &s);
	if (w->is_short) {
		look_for_writers(w);
		end_worst(w);
	} else {
		next_ms = space_next_look_ms(&s);
	}
	space_keep_ballast(&w->disk, &s);
	reap_strays(w);
	loop_timer_set(&w->space_timer, loop_now_ms(w->loop) + next_ms);
}

/* ---- what others want to know ---- */

static uint64_t promised_bytes(const struct warden *w)
{
	uint64_t sum = 0;

	LIST_EACH(&w->slots, node)
	{
		const struct slot *slot = container_of(node, struct slot, node);

		if (slot->state == SLOT_RUNNING || slot->state == SLOT_BOOTING)
			sum += slot->disk_size.bytes;
	}
	return sum;
}

int hold_check(const struct warden *w, uint64_t disk_bytes, struct err *e)
{
	uint64_t times = (uint64_t)w->options->disk_overcommit;

	if (w->is_short)
		return err_set(e, -ENOSPC,
			"the data directory's file system is nearly full (%" PRIu64
			" MiB left): free some of it, or end sandboxes that have written much",
			w->space.free_bytes / SPACE_MIB);
	if (times && (promised_bytes(w) + disk_bytes) / times > w->space.total_bytes)
		return err_set(e, -ENOSPC,
			"the sandboxes' disks together would be promised more than %" PRIu64
			" times what there is: end some, or ask for a smaller disk",
			times);
	return 0;
}

void hold_tell(struct warden *w, const struct warden_request *q)
{
	struct warden_reply reply = { .kind = WARDEN_REPLY,
		.tag = q->tag,
		.host = { .free_bytes = w->space.free_bytes,
			.total_bytes = w->space.total_bytes,
			.promised_bytes = promised_bytes(w),
			.is_short = w->is_short,
			.lost_workers = (uint32_t)workers_lost(&w->workers) } };

	LIST_EACH(&w->slots, node)
	{
		const struct slot *slot = container_of(node, struct slot, node);

		reply.host.held += slot->is_held;
		reply.host.ending += slot->state == SLOT_ENDING;
		reply.host.prepared += slot->state == SLOT_IDLE;
	}
	memcpy(reply.times, w->times, sizeof reply.times);
	control_tell(w, &reply, "");
}

static bool is_on(int fd, int other_fd)
{
	struct stat st, other;

	return fstat(fd, &st) == 0 && fstat(other_fd, &other) == 0 && st.st_dev == other.st_dev;
}

void hold_open(struct warden *w)
{
	w->has_volumes_below = is_on(w->volumes.dir_fd, w->disk.host_fd);
	loop_timer_init(&w->space_timer, w->loop, look, w);
	look(w);
}

void hold_close(struct warden *w)
{
	loop_timer_cancel(&w->space_timer);
}

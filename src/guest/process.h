/* process - what was started here: spawn, output, input, ending, memory of what ended.
 * Owns:   the table of live processes, their pipes and terminals, reaping (orphans included).
 * Uses:   base, loop; spawn, input, pty, backlog, ending, stream.
 * Never:  knows how a request looked.
 *
 * A process ends for its clients when it was reaped and its output pipes are at their end, so a
 * grandchild that holds stdout keeps it open. Once somebody asked to kill it, being reaped is
 * enough. Exits are seen by SIGCHLD and one waitpid loop: as PID 1 we must reap strangers anyway,
 * and as only this thread reaps, a pid in the table can never name another process. */
#pragma once

#include "base/base.h"
#include "guest/activity.h"
#include "guest/backlog.h"
#include "guest/ending.h"
#include "guest/gauge.h"
#include "guest/input.h"
#include "guest/pty.h"
#include "guest/spawn.h"
#include "loop/loop.h"

enum {
	PROCESS_CHUNK = 32 << 10, /* largest data event of a pipe */
	PROCESS_PTY_CHUNK = 16 << 10,
	PROCESS_REMEMBER_MS = 30000,    /* Connect still learns how it ended */
	PROCESS_HOLD_MS = 3600000,      /* of one that is held, unless it is told to forget it */
	PROCESS_HOLD_BYTES = 512 << 10, /* of its output, while nobody follows it */
	PROCESS_MAX_REMEMBERED = 4096,
};

struct process;

struct output {
	struct process *process;
	struct loop_io io; /* not watched while a stream is above its mark */
	int fd;            /* -EBADF: at its end */
	enum output_kind kind;
};

struct process {
	struct list node; /* in the table */
	struct process_table *table;
	pid_t pid;
	char *tag;                   /* or NULL */
	char *config;                /* JSON: cmd, args, envs, cwd */
	bool hidden;                 /* the template's start command: not the clients' */
	struct activity_begun begun; /* for the record of its end; seq 0: it has none */
	bool is_pty;
	/* Nothing of it may be lost while its follower is away (the server, which starts again):
	 * once so much is kept its output is left in its pipes, and its end is remembered longer.
	 */
	bool is_held;
	bool ends_group; /* what ends it ends its group: its deadline, and interrupts */
	int asked_signo; /* the last of these; 0: none */
	bool is_full;    /* and that much is kept: nothing is read until somebody follows */

	struct output out[2];
	struct input in;
	struct backlog *backlog;
	struct list streams; /* of struct stream */
	int n_blocked;       /* streams above their mark: nothing is read meanwhile */

	bool is_reaped, is_killed;
	bool is_timed_out;    /* that was its deadline */
	bool is_group_killed; /* what is left of its group when it is reaped goes as well */
	bool is_oom;          /* the kernel killed it because memory ran out */
	int64_t kills_before; /* for memory, when it was started */
	int wait_status;
	struct loop_timer deadline;
	struct list waiters; /* of struct process_waiter: called when it is reaped */
};

struct process_ended {
	struct list node;
	pid_t pid;
	char *tag;
	struct backlog *backlog;
	int wait_status;
	bool is_oom, is_held, is_timed_out;
	int64_t forget_ms;
};

struct process_table {
	struct loop *loop;
	struct activity *activity;       /* borrowed; NULL: nothing is recorded */
	struct gauges *gauges;           /* borrowed, as the next */
	const struct settings *settings; /* for the limits */
	struct spawner spawner;
	struct list live;  /* oldest first */
	struct map by_pid; /* of live ones; the key is the pid's bytes */
	struct list ended; /* oldest first */
	struct map ended_by_pid;
	struct loop_timer forget;
	struct loop_task reap_again;
	struct list replays; /* of struct stream: what is left to be told of ended processes */
	struct backlog_pool kept, held; /* the second for those that are held */
	struct backlog_pool unkept;     /* keeps nothing: for hidden processes */
	int null_fd;
	bool no_hangup;   /* gVisor: a terminal does not tell that its last user has gone */
	char *chunk;      /* what was just read */
	struct buf frame; /* what is just being sent */
};

int process_table_init(struct process_table *t, struct loop *loop, struct gauges *gauges,
	const struct settings *settings, struct err *e);
void process_table_done(struct process_table *t); /* leaves the processes alone */
/* On SIGCHLD. */
void process_table_reap(struct process_table *t);

struct process_spec {
	const struct user *user;
	const char *cwd;
	char *const *argv;
	char *const *envp;
	struct str tag; /* p NULL: none */
	struct str config;
	bool has_stdin; /* false: /dev/null */
	bool has_pty;
	struct pty_size size;
	bool hidden;
	bool is_held;
	bool ends_group;
	int64_t timeout_ms; /* 0: none. Then it is killed, with its group if so or held. */
	struct activity_asker asker;
};
int process_start(struct process_table *t, const struct process_spec *spec, struct process **ret,
	struct err *e);

struct process *process_find(struct process_table *t, pid_t pid);
struct process *process_find_tag(struct process_table *t, struct str tag); /* the newest */
struct process_ended *process_find_ended(struct process_table *t, pid_t pid);
struct process_ended *process_find_ended_tag(struct process_table *t, struct str tag);
void process_forget(struct process_table *t, struct process_ended *ended);

/* To the process alone, or to all of its group. SIGKILL and SIGTERM also stop waiting for the
 * pipes.
 */
int process_signal(struct process *p, int signo, bool to_group, struct err *e);
int process_resize(struct process *p, struct pty_size size, struct err *e);

/* Calls fn once, when the process was reaped; the waiter must stay until then or be removed. */
struct process_waiter {
	struct list node;
	loop_fn fn;
	void *arg;
};
void process_on_reaped(struct process *p, struct process_waiter *w, loop_fn fn, void *arg);

/* For stream.c: how one that was reaped ended, in words. */
struct process_fate {
	int wait_status;
	bool is_oom, is_held, is_timed_out;
};
void process_describe_end(const struct process_table *t, const struct process_fate *fate,
	struct ending *ret);
static inline struct process_fate process_fate(const struct process *p)
{
	return (struct process_fate){ p->wait_status, p->is_oom, p->is_held, p->is_timed_out };
}
/* For stream.c: somebody follows it. */
void process_followed(struct process *p);
/* For stream.c: nothing is read while a stream is above its mark. */
void process_pause_output(struct process *p);
void process_resume_output(struct process *p);

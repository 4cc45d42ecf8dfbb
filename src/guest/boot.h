/* boot - how the guest becomes PID 1 of its sandbox.
 * Owns:   the warden's socket (descriptor 3) from exec until the guest serves; everything between a
 *         cloned process and a sealed sandbox: mounts, pivot, limits, capabilities, system call
 *filter. Uses:   base, the warden's wire (warden/proto.h), seccomp.h. Never:  serves a byte, knows
 *what the settings mean, leaves a descriptor of the host open.
 *
 * The order in main():
 *	boot_place() == BOOT_NOWHERE	development mode, `--listen ADDRESS`
 *	boot_prepare(place, &boot, &e);	sealed in, nobody's yet: a good time for all set-up
 *	boot_wait(&boot, &e);		perhaps for hours; from here on somebody waits for us
 *	... read boot.settings_fd ...
 *	boot_ready(&boot, 0, "");	or: boot_ready(&boot, e.code, e.msg), then exit
 * boot_prepare must come first, before any thread, descriptor or signal handler. */
#pragma once

#include "base/base.h"
#include "guest/cover.h"
#include "warden/proto.h"

struct boot {
	int listen_fd; /* listening Unix stream socket, not accepted from yet; non-blocking, CLOEXEC
			*/
	int dial_fd;   /* the same, for ports of the sandbox; -EBADF where the host reaches them
			  itself */
	int asked_fd;  /* calls that the filter asks for, see grant.h; -EBADF: there is no filter */
	int settings_fd;          /* sealed memfd with the settings (JSON), offset 0; CLOEXEC */
	struct covers covers;     /* see cover.h */
	int uptime_fd;            /* for uptime.h; -EBADF: there is none */
	int use_fd;               /* cpu.stat of the unified hierarchy; -EBADF: there is none */
	int place_fd;             /* for nest.h; -EBADF: it is not nested */
	int meters[GUEST_METERS]; /* by enum guest_meter; -EBADF: none; CLOEXEC */
	int warden_fd;            /* for boot_ready only */
	/* Of a sandbox that is made ahead of its request; 0: somebody waits, and will say it. */
	int64_t expected_memory_mb, expected_cpus;
	char id[WARDEN_ID_SIZE];
};
#define BOOT_INIT                                                                                  \
	{                                                                                          \
		.listen_fd = -EBADF, .dial_fd = -EBADF, .asked_fd = -EBADF, .settings_fd = -EBADF, \
		.covers = COVERS_INIT, .uptime_fd = -EBADF, .use_fd = -EBADF, .place_fd = -EBADF,  \
		.meters = { -EBADF, -EBADF, -EBADF, -EBADF }, .warden_fd = -EBADF                  \
	}

/* Where this program was started: PID 1 with a SOCK_SEQPACKET socket of the warden's. */
enum boot_place {
	BOOT_NOWHERE, /* by somebody else */
	BOOT_SLOT,    /* by the warden itself */
	BOOT_GVISOR,  /* by an engine that the first guest has started: engine.h */
	BOOT_GVISOR_NESTED,
	BOOT_CONTAINER,
};
enum boot_place boot_place(int argc, char *const argv[]);

/* Prepares the sandbox and waits for its root. On success the process is PID 1 in the sandbox: its
 * root is the template's, its capabilities and system calls are restricted, cwd is "/", umask 022,
 * no other descriptor than 0-2 (all /dev/null) and those in *ret is open, and listen_fd may be
 * listened on. On failure the warden has been told and the caller only exits. -ECANCELED: the
 * warden has no use for this process (end of file): exit 0 without a word. */
int boot_prepare(enum boot_place place, struct boot *ret, struct err *e);
/* Waits until the sandbox is given out, and fills in settings_fd and id. Fails as boot_prepare. */
int boot_wait(struct boot *b, struct err *e);

/* The one answer to the warden; closes the socket. code 0: the guest serves. Otherwise -errno and
 * what a person will read. */
void boot_ready(struct boot *b, int code, const char *msg);

/* Closes what is still open. */
void boot_done(struct boot *b);

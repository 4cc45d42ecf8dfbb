/* doctor - what the files of `atoll doctor` share: doctor-checks.c looks at this machine and at the
 * server, doctor-settings.c at the kernel's settings, doctor-probe.c asks the warden, cmd-doctor.c
 * tells. */
#pragma once

#include "cli/cli-internal.h"

/* What a fix begins with that --fix can do itself, and where it keeps it. */
#define DOCTOR_SETS "sudo atoll doctor --fix"
#define DOCTOR_SYSCTL_FILE "/etc/sysctl.d/60-atoll.conf"

/* In a data directory: whom its sandboxes trust besides. */
#define DOCTOR_AUTHORITIES "authorities.pem"

enum check_status {
	CHECK_OK,
	CHECK_WARN,    /* works, but worse */
	CHECK_FAIL,    /* no sandbox can run */
	CHECK_SKIPPED, /* cannot be known from here */
};

enum {
	DOCTOR_MAX = 48,
	DOCTOR_ID = 24,
	DOCTOR_TEXT = 256,
};

struct check {
	char id[DOCTOR_ID];
	enum check_status status;
	char text[DOCTOR_TEXT];
	char fix[DOCTOR_TEXT];
};

struct doctor {
	struct cli *cli;
	struct check checks[DOCTOR_MAX];
	size_t n;
	bool server_works; /* it says that it can make sandboxes */
	bool probe_ran;
};

/* What is known about a check whatever its result: for the effect line and --explain. */
struct check_lore {
	const char *id;
	const char *what;   /* what is looked at */
	const char *effect; /* of its failure */
};
const struct check_lore *doctor_lore(const char *id); /* NULL: nothing is known */
const struct check_lore *doctor_lore_at(size_t i);    /* NULL: past the end */

struct check *doctor_add(struct doctor *d, const char *id, enum check_status status,
	const char *fix, const char *fmt, ...) __attribute__((format(printf, 5, 6)));
void doctor_check_machine(struct doctor *d);
void doctor_check_settings(struct doctor *d);
void doctor_check_trust(struct doctor *d);
void doctor_check_names(struct doctor *d);
const char *doctor_data(const struct doctor *d); /* the directory that is meant */
void doctor_check_server(struct doctor *d);
/* Sets what is wrong, for now and for the next boot, and says so, also what it could not set and
 * why. Needs root. */
int doctor_fix(struct cli *cli);
/* Removes what is left of servers whose data directory is gone, and says what. Needs root. */
int doctor_sweep(struct cli *cli);
void doctor_probe(struct doctor *d);
/* One line of the warden: id, verdict, text and fix between tabs. -EPROTO: it is none. */
int doctor_probe_line(struct doctor *d, struct str line);

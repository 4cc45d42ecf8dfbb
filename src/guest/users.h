/* users - who is who inside the sandbox, read from its /etc/passwd and /etc/group.
 * A static program has no name-service switch, and the files may change at any time (useradd), so
 * the text is kept and read again when the file was replaced or rewritten. */
#pragma once

#include "base/base.h"

#include <sys/stat.h>

enum {
	USER_NAME_SIZE = 256,
	USER_HOME_SIZE = 1024,
	USER_MAX_GROUPS = 128,
};

struct user {
	char name[USER_NAME_SIZE];
	char home[USER_HOME_SIZE];
	uid_t uid;
	gid_t gid;
	gid_t groups[USER_MAX_GROUPS]; /* the primary one first */
	size_t n_groups;
};

struct users_file {
	const char *path;
	struct buf text;
	struct stat seen;
};

struct users {
	struct users_file passwd, group;
};

void users_init(struct users *u);
void users_done(struct users *u);
/* Looks whether the files have changed. users_find does it by itself. */
void users_refresh(struct users *u);

/* -ENOENT: `user '<name>' does not exist`. */
int users_find(struct users *u, struct str name, struct user *ret, struct err *e);
int users_find_id(struct users *u, uid_t uid, struct user *ret, struct err *e);
/* The name, or the number as text when nobody has it. */
void users_owner_name(const struct users *u, uid_t uid, char out[USER_NAME_SIZE]);
void users_group_name(const struct users *u, gid_t gid, char out[USER_NAME_SIZE]);

/* The parsers themselves. A line that does not parse is skipped. */
bool passwd_find_name(struct str passwd, struct str name, struct user *ret);
bool passwd_find_id(struct str passwd, uid_t uid, struct user *ret);
void group_add_members(struct str group, struct user *user);
bool group_find_id(struct str group, gid_t gid, char out[USER_NAME_SIZE]);

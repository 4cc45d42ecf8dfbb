/* What backup.c and restore.c share: what is in a backup, and how it is known whose it is. */
#pragma once

#include "json/json.h"
#include "server/config.h"
#include "server/server.h"

#define BACKUP_ABOUT "atoll-backup.json"
#define BACKUP_ROWS "rows.jsonl"

enum {
	BACKUP_FORMAT = 1,
	BACKUP_PARTS = 5,
	BACKUP_CHECK_SIZE = 33,
};
extern const char *const backup_parts[BACKUP_PARTS]; /* the names of all that is in one */

int backup_read_config(const struct server_backup_request *request, struct config *ret,
	struct err *e);
/* Whether nothing is in the directory but these; NULL ends them. */
bool backup_is_empty(int dir_fd, const char *const *but);
int backup_read_seed(int dir_fd, const char *path, uint8_t ret[SHA256_SIZE], struct err *e);
/* By which a backup and its seed are known to belong together; says nothing of the seed. */
void backup_check_of(const uint8_t seed[SHA256_SIZE], char ret[BACKUP_CHECK_SIZE]);

struct backup_about {
	struct str kind, seed, program, made;
	struct json_int format, rows;
};
/* What atoll-backup.json says; strings are in the arena. -EBADMSG, -ENOTSUP: of a newer version. */
int backup_parse_about(struct arena *arena, struct str text, struct backup_about *ret,
	struct err *e);

/* template - what a sandbox starts from.
 * Owns:   the templates directory: DIR/NAME/rootfs (a file tree) and DIR/NAME/template.toml.
 * Uses:   base, json (TOML).
 * Never:  mounts or changes a tree; the runtime does that by the template's name.
 *
 * A second template is put beside the first by making its directory; it is found at the next use.
 */
#pragma once

#include "base/base.h"

enum {
	TEMPLATE_NAME_SIZE = 64, /* with its NUL; as WARDEN_NAME_SIZE */
	TEMPLATE_ID_SIZE = 21,
	TEMPLATE_TEXT_SIZE = 512,
};

struct template
{                                  /* a plain value */
	char id[TEMPLATE_ID_SIZE]; /* 20 characters of [a-z0-9], the same for a name for ever */
	char name[TEMPLATE_NAME_SIZE];
	char user[64];
	char workdir[TEMPLATE_TEXT_SIZE];
	char start[TEMPLATE_TEXT_SIZE]; /* shell line run at boot; empty: none */
	int64_t cpu, memory_mb, disk_mb, max_pids;
	int64_t made_us; /* of its directory */
};

struct template_book;
int template_book_new(const char *dir, struct template_book **ret, struct err *e);
struct template_book *template_book_free(struct template_book *book);
DEFINE_CLEANUP(struct template_book, template_book_free)

/* By name or id, as E2B spells them: `name`, `id`, `team/name`, each with `:tag` (only :default is
 * known today). -EINVAL: no legal name. -ENOENT: no such template, or no such tag. -EBADMSG: its
 * template.toml is wrong; the message says where. */
int template_find(struct template_book *book, struct str wanted, struct template *ret,
	struct err *e);
/* All of them, by name; one that cannot be read is left out. */
int template_each(struct template_book *book, int (*fn)(void *arg, const struct template *t),
	void *arg);

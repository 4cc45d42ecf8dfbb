/* template - what a sandbox starts from.
 * Owns:   the templates directory: DIR/NAME/rootfs (a file tree) and DIR/NAME/template.toml; the
 *         template_tags table, further names for what a directory holds.
 * Uses:   base, loop, json (TOML), store, limit.
 * Never:  mounts or changes a tree; the runtime does that by the template's name.
 *
 * A second template is put beside the first by making its directory; it is found at the next use.
 */
#pragma once

#include "base/base.h"
#include "limit/limit.h"
#include "store/store.h"

enum {
	TEMPLATE_NAME_SIZE = 64, /* with its NUL; as WARDEN_NAME_SIZE */
	TEMPLATE_ID_SIZE = 21,
	TEMPLATE_TEXT_SIZE = 512,
	TEMPLATE_RUNTIME_SIZE = 16,
};

struct template
{                                  /* a plain value */
	char id[TEMPLATE_ID_SIZE]; /* 20 characters of [a-z0-9], the same for a name for ever */
	char name[TEMPLATE_NAME_SIZE];
	char user[64];
	char workdir[TEMPLATE_TEXT_SIZE];
	char start[TEMPLATE_TEXT_SIZE];      /* shell line run at boot; empty: none */
	char runtime[TEMPLATE_RUNTIME_SIZE]; /* what runs it; empty: the server's default */
	bool is_nested; /* namespaces may be made inside, unless a request says otherwise */
	struct limit_set limits; /* all said */
	int64_t made_us;         /* of its directory */
};

struct template_book;
int template_book_new(const char *dir, struct template_book **ret, struct err *e);
/* What a template gets of what it does not say itself; at start. 0: the usual. */
void template_set_defaults(struct template_book *book, const struct limit_set *defaults);
struct template_book *template_book_free(struct template_book *book);
DEFINE_CLEANUP(struct template_book, template_book_free)

/* Whether it has the shape of an id, in whatever case. No name is taken for one, nor the other way
 * round: what looks like an id is looked for by id first, and nothing new may be named so. */
bool template_is_id(struct str text);
/* By name or id, as E2B spells them: `name`, `id`, `team/name`, each with `:tag`. -EINVAL: no legal
 * name. -ENOENT: no such template, or no such tag. -EBADMSG: its template.toml is wrong; the
 * message says where. */
int template_find(struct template_book *book, struct str wanted, struct template *ret,
	struct err *e);
/* All of them, by name; one that cannot be read is left out. */
int template_each(struct template_book *book, int (*fn)(void *arg, const struct template *t),
	void *arg);
/* Names what a template is made of today: a directory that is made again is another build. */
void template_build_id(const struct template *t, char out[UUID_SIZE]);

/* ---- tags: every template has `default`, and those that were given to it ---- */
/* Blocking, at start; until then only `default` is known. */
int template_load_tags(struct template_book *book, struct store *store, struct err *e);
/* 1 to 64 of [a-z0-9._-] and no UUID, which would look like a build's id. */
bool template_tag_ok(struct str tag);
struct template_actor { /* who changes them, for the event log */
	const char *id, *team_id;
};
/* Gives the tags to the template; those that it has already stay as they are. The tags are copied.
 * -EDQUOT: too many. */
void template_add_tags(struct template_book *book, const char *template_id, const struct str *tags,
	size_t n, const struct template_actor *actor, done_fn done, void *arg);
/* -ENOENT: it has none of that name, and nothing was removed. */
void template_remove_tags(struct template_book *book, const char *template_id,
	const struct str *tags, size_t n, const struct template_actor *actor, done_fn done,
	void *arg);
/* `default` first, then in the order they were given. */
void template_each_tag(struct template_book *book, const struct template *t,
	void (*fn)(void *arg, const char *tag, int64_t created_us), void *arg);

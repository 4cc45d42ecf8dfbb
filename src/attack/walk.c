#include "attack/attack.h"

#include <fts.h>

static bool is_kept_out(const char *const *skip, const FTSENT *entry)
{
	for (; skip && *skip; skip++)
		if (strcmp(entry->fts_path, *skip) == 0)
			return true;
	return false;
}

int walk(const struct walk *w, void *arg)
{
	union {
		const char *in;
		char *out;
	} root = { .in = w->root };
	char *const roots[] = { root.out, NULL };
	FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR | (w->stay ? FTS_XDEV : 0), NULL);
	int seen = 0;
	bool goes_on = true;
	FTSENT *entry;

	if (!tree)
		return -errno;
	while (goes_on && seen < WALK_MAX && (entry = fts_read(tree))) {
		if (entry->fts_info == FTS_D && is_kept_out(w->skip, entry))
			(void)fts_set(tree, entry, FTS_SKIP);
		if (entry->fts_info != FTS_F && entry->fts_info != FTS_DEFAULT)
			continue;
		seen++;
		goes_on = w->look(entry->fts_path, entry->fts_statp, arg);
	}
	(void)fts_close(tree);
	return seen;
}

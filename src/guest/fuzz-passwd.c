/* Whatever stands in /etc/passwd and /etc/group (the sandbox's users write them), a user that is
 * found is well formed, and found again by its own name and number. */
#include "guest/users.h"

static void check(struct str passwd, const struct user *u)
{
	struct user again;

	assert(u->name[0] && !strpbrk(u->name, ":\n") && !strpbrk(u->home, ":\n"));
	assert(u->home[0] == '/');
	assert(u->n_groups >= 1 && u->groups[0] == u->gid);
	assert(u->uid != (uid_t)-1 && u->gid != (gid_t)-1);
	assert(passwd_find_name(passwd, str_of(u->name), &again));
	assert(strcmp(again.name, u->name) == 0);
	assert(passwd_find_id(passwd, again.uid, &again));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct str text = str_make(data, size), rest = text, line, name;
	char group_name[USER_NAME_SIZE];
	struct user u;

	while (str_split(&rest, '\n', &line)) {
		(void)str_split(&line, ':', &name);
		if (!passwd_find_name(text, name, &u))
			continue;
		check(text, &u);
		group_add_members(text, &u);
		for (size_t i = 0; i < u.n_groups; i++)
			(void)group_find_id(text, u.groups[i], group_name);
	}
	return 0;
}

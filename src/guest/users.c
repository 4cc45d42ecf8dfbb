#include "guest/users.h"

enum {
	USERS_MAX_BYTES = 1 << 20, /* of each file; what lies beyond is not seen */
	PASSWD_FIELDS = 7,
	GROUP_FIELDS = 4,
};

/* Cuts `line` at colons into exactly n fields. */
static bool fields_cut(struct str line, struct str *fields, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!str_split(&line, ':', &fields[i]))
			return false;
	return line.p == NULL;
}

static bool text_copy(struct str s, char *out, size_t size)
{
	if (s.n >= size || (s.n && memchr(s.p, '\0', s.n)))
		return false;
	if (s.n)
		memcpy(out, s.p, s.n);
	out[s.n] = '\0';
	return true;
}

static bool id_parse(struct str s, uint32_t *ret)
{
	int64_t id;

	/* (uid_t)-1 means "no change" to the kernel and is nobody's number. */
	if (str_to_int(s, 0, UINT32_MAX - 1, &id) < 0)
		return false;
	*ret = (uint32_t)id;
	return true;
}

static bool passwd_line(struct str line, struct user *ret)
{
	struct str f[PASSWD_FIELDS];

	if (!fields_cut(line, f, ARRAY_SIZE(f)) || !f[0].n)
		return false;
	if (!id_parse(f[2], &ret->uid) || !id_parse(f[3], &ret->gid))
		return false;
	if (!text_copy(f[0], ret->name, sizeof ret->name))
		return false;
	/* A home that is no absolute path would make every relative path ambiguous. */
	if (!f[5].n || f[5].p[0] != '/')
		f[5] = STR("/");
	if (!text_copy(f[5], ret->home, sizeof ret->home))
		return false;
	ret->groups[0] = ret->gid;
	ret->n_groups = 1;
	return true;
}

bool passwd_find_name(struct str passwd, struct str name, struct user *ret)
{
	struct str line;

	while (str_split(&passwd, '\n', &line)) {
		if (!str_has_prefix(line, name) || line.n == name.n || line.p[name.n] != ':')
			continue;
		if (name.n && passwd_line(line, ret))
			return true;
	}
	return false;
}

bool passwd_find_id(struct str passwd, uid_t uid, struct user *ret)
{
	struct str line;

	while (str_split(&passwd, '\n', &line))
		if (passwd_line(line, ret) && ret->uid == uid)
			return true;
	return false;
}

static bool list_has(struct str members, struct str name)
{
	struct str member;

	while (str_split(&members, ',', &member))
		if (str_eq(member, name))
			return true;
	return false;
}

static void group_add(struct user *user, gid_t gid)
{
	for (size_t i = 0; i < user->n_groups; i++)
		if (user->groups[i] == gid)
			return;
	if (user->n_groups < ARRAY_SIZE(user->groups))
		user->groups[user->n_groups++] = gid;
}

void group_add_members(struct str group, struct user *user)
{
	struct str line, f[GROUP_FIELDS];
	gid_t gid;

	while (str_split(&group, '\n', &line))
		if (fields_cut(line, f, ARRAY_SIZE(f)) && list_has(f[3], str_of(user->name)) &&
			id_parse(f[2], &gid))
			group_add(user, gid);
}

bool group_find_id(struct str group, gid_t gid, char out[USER_NAME_SIZE])
{
	struct str line, f[GROUP_FIELDS];
	gid_t found;

	while (str_split(&group, '\n', &line))
		if (fields_cut(line, f, ARRAY_SIZE(f)) && f[0].n && id_parse(f[2], &found) &&
			found == gid)
			return text_copy(f[0], out, USER_NAME_SIZE);
	return false;
}

void users_init(struct users *u)
{
	*u = (struct users){
		.passwd = { .path = "/etc/passwd", .text = BUF_INIT(USERS_MAX_BYTES) },
		.group = { .path = "/etc/group", .text = BUF_INIT(USERS_MAX_BYTES) },
	};
}

void users_done(struct users *u)
{
	buf_done(&u->passwd.text);
	buf_done(&u->group.text);
}

/* Whoever is root inside may put anything there; only a regular file is read, so that nothing can
 * keep us waiting. */
static void file_load(struct users_file *f)
{
	cleanup_close int fd = open(f->path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct stat st;

	buf_clear(&f->text);
	if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
		(void)fd_read_all(fd, &f->text);
}

static void file_refresh(struct users_file *f)
{
	struct stat st;

	if (stat(f->path, &st) < 0) {
		buf_clear(&f->text);
		f->seen = (struct stat){ 0 };
		return;
	}
	if (st.st_ino == f->seen.st_ino && st.st_dev == f->seen.st_dev &&
		st.st_size == f->seen.st_size && st.st_mtim.tv_sec == f->seen.st_mtim.tv_sec &&
		st.st_mtim.tv_nsec == f->seen.st_mtim.tv_nsec)
		return;
	file_load(f);
	f->seen = st;
}

void users_refresh(struct users *u)
{
	file_refresh(&u->passwd);
	file_refresh(&u->group);
}

int users_find(struct users *u, struct str name, struct user *ret, struct err *e)
{
	users_refresh(u);
	if (!passwd_find_name(buf_str(&u->passwd.text), name, ret))
		return err_set(e, -ENOENT, "user '%.*s' does not exist", STR_ARG(name));
	group_add_members(buf_str(&u->group.text), ret);
	return 0;
}

int users_find_id(struct users *u, uid_t uid, struct user *ret, struct err *e)
{
	users_refresh(u);
	if (!passwd_find_id(buf_str(&u->passwd.text), uid, ret))
		return err_set(e, -ENOENT, "user id %u does not exist", uid);
	group_add_members(buf_str(&u->group.text), ret);
	return 0;
}

void users_owner_name(const struct users *u, uid_t uid, char out[USER_NAME_SIZE])
{
	struct user user;

	if (passwd_find_id(buf_str(&u->passwd.text), uid, &user))
		memcpy(out, user.name, USER_NAME_SIZE);
	else
		(void)snprintf(out, USER_NAME_SIZE, "%u", uid);
}

void users_group_name(const struct users *u, gid_t gid, char out[USER_NAME_SIZE])
{
	if (!group_find_id(buf_str(&u->group.text), gid, out))
		(void)snprintf(out, USER_NAME_SIZE, "%u", gid);
}

#include "guest/trust.h"

#include "test.h"

#include <sys/stat.h>

#define CERTIFICATE(body) "-----BEGIN CERTIFICATE-----\n" body "\n-----END CERTIFICATE-----\n"
#define A CERTIFICATE("QQ==")
#define B CERTIFICATE("Qg==")

struct place {
	char root[64];
};

static void place_new(struct place *p)
{
	(void)snprintf(p->root, sizeof p->root, "/tmp/atoll-trust-XXXXXX");
	assert(mkdtemp(p->root));
}

static void place_done(struct place *p)
{
	(void)dir_remove_tree(AT_FDCWD, p->root, NULL);
}

static const char *path_in(const struct place *p, const char *name)
{
	static char path[256];

	(void)snprintf(path, sizeof path, "%s%s", p->root, name);
	return path;
}

static bool holds(const struct place *p, const char *name, const char *want)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(4096);

	return file_read(AT_FDCWD, path_in(p, name), &text, NULL) == 0 &&
	       str_is(buf_str(&text), want);
}

static bool leads_to(const struct place *p, const char *name, const char *want)
{
	char target[256];
	ssize_t n = readlink(path_in(p, name), target, sizeof target);

	return n > 0 && str_is(str_make(target, (size_t)n), want);
}

#define CERTS "/etc/ssl/certs/"
#define SHARE "/usr/local/share/ca-certificates/"

TEST(an_authority_is_added_once_and_others_stay)
{
	CLEANUP(place_done) struct place p;
	bool existed = true;

	place_new(&p);
	ASSERT_EQ(trust_write(p.root, STR(A), &existed, NULL), 0);
	ASSERT(!existed);
	ASSERT(holds(&p, SHARE "atoll-egress.crt", A) && holds(&p, TRUST_BUNDLE, A));
	ASSERT_EQ(trust_write(p.root, STR(A), &existed, NULL), 0);
	ASSERT(existed);
	ASSERT(holds(&p, TRUST_BUNDLE, A));
	ASSERT_EQ(trust_write(p.root, STR(B), &existed, NULL), 0);
	ASSERT(holds(&p, SHARE "atoll-egress.crt", B) && holds(&p, TRUST_BUNDLE, A B));
	ASSERT(holds(&p, TRUST_OWN, B));
}

TEST(each_of_several_has_its_file_and_the_links_that_programs_look_it_up_by)
{
	CLEANUP(place_done) struct place p;
	bool existed;

	place_new(&p);
	for (int i = 0; i < 2; i++) /* the second time changes nothing */
		ASSERT_EQ(trust_write(p.root, STR("# 0a1b2c3d\r\n" A "# 0a1b2c3d\nnoise\n" B),
				  &existed, NULL),
			0);
	ASSERT(holds(&p, TRUST_OWN, A B) && holds(&p, TRUST_BUNDLE, A B));
	ASSERT(leads_to(&p, CERTS "0a1b2c3d.0", "atoll-0a1b2c3d.pem"));
	ASSERT(leads_to(&p, CERTS "atoll-0a1b2c3d.pem", SHARE "atoll-0a1b2c3d.crt"));
	ASSERT(holds(&p, SHARE "atoll-0a1b2c3d.crt", A));
	ASSERT(holds(&p, SHARE "atoll-0a1b2c3d-2.crt", B));
	ASSERT(leads_to(&p, CERTS "0a1b2c3d.1", "atoll-0a1b2c3d-2.pem"));
	ASSERT(access(path_in(&p, CERTS "0a1b2c3d.2"), F_OK) < 0);
}

TEST(the_operators_and_the_servers_own_stand_beside_each_other)
{
	CLEANUP(place_done) struct place p;
	bool existed;

	place_new(&p);
	ASSERT_EQ(trust_write(p.root, STR("# 0a1b2c3d\n" A B), &existed, NULL), 0);
	ASSERT(holds(&p, SHARE "atoll-0a1b2c3d.crt", A));
	ASSERT(holds(&p, SHARE "atoll-egress.crt", B));
}

TEST(a_bundle_without_a_last_line_break_gets_one)
{
	CLEANUP(place_done) struct place p;
	bool existed;

	place_new(&p);
	ASSERT_EQ(trust_write(p.root, STR(A), &existed, NULL), 0);
	ASSERT_EQ(file_replace(AT_FDCWD, path_in(&p, TRUST_BUNDLE), STR("first"), 0644, NULL), 0);
	ASSERT_EQ(trust_write(p.root, STR(B), &existed, NULL), 0);
	ASSERT(holds(&p, TRUST_BUNDLE, "first\n" B));
}

TEST(what_holds_no_whole_certificate_is_refused)
{
	static const char *const texts[] = { "", "A\n", "# 0a1b2c3d\n",
		"-----BEGIN CERTIFICATE-----\nQQ==\n", "-----END CERTIFICATE-----\n" };
	CLEANUP(place_done) struct place p;
	bool existed;

	place_new(&p);
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		ASSERT_EQ(trust_write(p.root, str_of(texts[i]), &existed, NULL), -EINVAL);
	ASSERT(access(path_in(&p, TRUST_BUNDLE), F_OK) < 0);
}

TEST(what_is_no_file_is_neither_waited_for_nor_written_to)
{
	CLEANUP(place_done) struct place p;
	bool existed;

	place_new(&p);
	ASSERT_EQ(trust_write(p.root, STR(A), &existed, NULL), 0);
	ASSERT_EQ(unlink(path_in(&p, TRUST_BUNDLE)), 0);
	ASSERT_EQ(mkfifo(path_in(&p, TRUST_BUNDLE), 0600), 0);
	ASSERT(trust_write(p.root, STR(A), &existed, NULL) < 0);
	ASSERT_EQ(unlink(path_in(&p, TRUST_BUNDLE)), 0);
	ASSERT_EQ(mkdir(path_in(&p, TRUST_BUNDLE), 0700), 0);
	ASSERT(trust_write(p.root, STR(A), &existed, NULL) < 0);
}

TEST(sudo_is_told_once_where_it_is_installed)
{
	CLEANUP(place_done) struct place p;
	CLEANUP(buf_done) struct buf text = BUF_INIT(4096);
	struct stat st;

	place_new(&p);
	trust_keep_env(p.root);
	ASSERT(access(path_in(&p, "/etc"), F_OK) < 0);
	ASSERT(mkdir(path_in(&p, "/etc"), 0755) == 0 &&
		mkdir(path_in(&p, "/etc/sudoers.d"), 0750) == 0);
	trust_keep_env(p.root);
	ASSERT_EQ(stat(path_in(&p, "/etc/sudoers.d/atoll-env"), &st), 0);
	ASSERT_EQ(st.st_mode & 07777, 0440);
	ASSERT_EQ(file_read(AT_FDCWD, path_in(&p, "/etc/sudoers.d/atoll-env"), &text, NULL), 0);
	ASSERT(str_has_prefix(buf_str(&text), STR("Defaults env_keep += \"HTTP_PROXY ")));
	ASSERT_EQ(text.p[text.n - 2], '"');
}

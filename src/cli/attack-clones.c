/* A sandbox and the one that was forked from it: whatever is meant to be one of a kind must differ.
 */
#include "cli/attack.h"

enum {
	OUTPUT_MAX = 1 << 20,
	VALUES = 5,
};

static const char title[] = "be taken for the sandbox that one was forked from";

static const struct {
	const char *name, *script;
} values[VALUES] = {
	/* Where there is none, as in gVisor, it cannot be the same. */
	{ "boot id", "f=/proc/sys/kernel/random/boot_id; if [ -e $f ]; then cat $f; else "
		     "echo none $(od -An -N8 -tx1 /dev/urandom); fi" },
	{ "machine id", "cat /etc/machine-id" },
	{ "random bytes", "od -An -N16 -tx1 /dev/urandom | tr -d ' \\n'" },
	{ "random of the C library", "python3 -c 'import os; print(os.getrandom(16).hex())'" },
	{ "sandbox id inside", "cat /run/e2b/.E2B_SANDBOX_ID" },
};

struct fork_entry {
	struct fork_sandbox {
		struct str id;
	} sandbox;
};
static const struct json_field sandbox_fields[] = {
	JSON_FIELD(struct fork_sandbox, id, "sandboxID", JSON_STR, .flags = JSON_REQUIRED),
};
static const struct json_shape sandbox_shape =
	JSON_SHAPE(struct fork_sandbox, sandbox_fields, .ignore_unknown = true);
static const struct json_field entry_fields[] = {
	JSON_FIELD(struct fork_entry, sandbox, "sandbox", JSON_OBJECT, .flags = JSON_LAX,
		.shape = &sandbox_shape),
};
static const struct json_shape entry_shape =
	JSON_SHAPE(struct fork_entry, entry_fields, .ignore_unknown = true);

static int make_clone(struct attack *a, struct target *ret, struct err *e)
{
	struct api_request request = { .method = "POST",
		.body = STR("{\"count\":1,\"timeout\":300}") };
	struct json_list forks = { 0 };
	struct api_reply reply;
	const struct fork_entry *entry;
	char id[CLI_ID];
	int r;

	request.path = arena_printf(a->cli->arena, "/sandboxes/%s/fork", a->neighbour.id);
	r = cli_api_call(a->cli, &request, &reply, e);
	if (r == 0)
		r = json_decode_list(a->cli->arena, reply.body, &entry_shape, &forks, e);
	if (r < 0)
		return r;
	entry = forks.v;
	if (forks.n != 1 || entry->sandbox.id.n == 0 || entry->sandbox.id.n >= sizeof id)
		return err_set(e, -EIO, "it cannot be forked: %.*s", STR_ARG(reply.body));
	(void)snprintf(id, sizeof id, "%.*s", STR_ARG(entry->sandbox.id));
	return cli_sandbox_open(a->cli, id, ret, e);
}

static void compare(struct attack *a, const struct target *clone)
{
	for (size_t i = 0; i < VALUES; i++) {
		CLEANUP(buf_done) struct buf one = BUF_INIT(OUTPUT_MAX), two = BUF_INIT(OUTPUT_MAX);
		struct err e = { 0 };
		int r = attack_shell(a, &a->neighbour, "user", values[i].script, &one, &e);

		if (r == 0)
			r = attack_shell(a, clone, "user", values[i].script, &two, &e);
		if (r != 0 || one.n < 8 || two.n < 8)
			attack_say(a, "clones.unique", "client", ATTACK_INCONCLUSIVE, title,
				"%s: cannot be read (exit status %d) %s", values[i].name, r, e.msg);
		else if (str_eq(buf_str(&one), buf_str(&two)))
			attack_say(a, "clones.unique", "client", ATTACK_ESCAPED, title,
				"both have the same %s", values[i].name);
		else
			attack_say(a, "clones.unique", "client", ATTACK_REFUSED, title,
				"boot id, machine id, random bytes and sandbox id all differ");
	}
}

static const int wrong_token[] = { 401, 403, 0 };

/* One's token at the other. */
static void use_token(struct attack *a, const struct target *at, const struct target *of)
{
	struct attack_answer answer = { 0 };
	struct target mixed = *at;
	struct err e = { 0 };
	int r;

	(void)snprintf(mixed.token, sizeof mixed.token, "%s", of->token);
	r = attack_fetch(a, &mixed, &(struct attack_request){ "GET", "/metrics", NULL, STR_NONE },
		&answer, &e);
	attack_say(a, "clones.tokens", "client", attack_judge_status(r, answer.status, wrong_token),
		"use a sandbox's token at its fork, and the other way", "status %d %s",
		answer.status, e.msg);
}

void attack_clones(struct attack *a)
{
	struct target clone = { 0 };
	struct err e = { 0 };
	int r = make_clone(a, &clone, &e);

	if (r < 0) {
		attack_say(a, "clones.unique", "client", ATTACK_INCONCLUSIVE, title, "%s", e.msg);
		return;
	}
	compare(a, &clone);
	use_token(a, &clone, &a->neighbour);
	use_token(a, &a->neighbour, &clone);
	(void)cli_sandbox_remove(a->cli, clone.id, &e);
}

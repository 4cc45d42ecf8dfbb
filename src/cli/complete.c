/* What a word being typed can become. The scripts for the shells hold nothing but the question: all
 * answers come from the command table and, for ids, from the server as it is now. */
#include "cli/cli-internal.h"

enum {
	WAIT_MS = 300, /* longer, and the person has typed it */
};

static const struct script {
	const char *shell, *text;
} scripts[] = {
	{ "bash", "_atoll()\n{\n"
		  "\tlocal IFS=$'\\n'\n"
		  "\tCOMPREPLY=($(atoll completion bash -- \"${COMP_WORDS[@]:1:COMP_CWORD}\""
		  " 2>/dev/null))\n"
		  "}\n"
		  "complete -o default -F _atoll atoll\n" },
	{ "zsh", "#compdef atoll\n"
		 "_atoll()\n{\n"
		 "\tlocal line\n"
		 "\tlocal -a values shown\n"
		 "\tfor line in \"${(@f)$(atoll completion zsh -- \"${(@)words[2,CURRENT]}\""
		 " 2>/dev/null)}\"; do\n"
		 "\t\t[[ -n $line ]] || continue\n"
		 "\t\tvalues+=(\"${line%%$'\\t'*}\")\n"
		 "\t\tshown+=(\"${line/$'\\t'/  }\")\n"
		 "\tdone\n"
		 "\tif (( ${#values} )); then\n"
		 "\t\tcompadd -l -d shown -a values\n"
		 "\telse\n"
		 "\t\t_files\n"
		 "\tfi\n"
		 "}\n"
		 "if [[ $funcstack[1] == _atoll ]]; then _atoll \"$@\"; else compdef _atoll atoll; "
		 "fi\n" },
	{ "fish", "function __atoll_complete\n"
		  "\tset -l typed (commandline -opc) (commandline -ct)\n"
		  "\tset -l answers (atoll completion fish -- $typed[2..-1] 2>/dev/null)\n"
		  "\tif test (count $answers) -gt 0\n"
		  "\t\tprintf '%s\\n' $answers\n"
		  "\telse\n"
		  "\t\t__fish_complete_path (commandline -ct)\n"
		  "\tend\n"
		  "end\n"
		  "complete -c atoll -f -a '(__atoll_complete)'\n" },
};

/* The line so far, without the word that is being typed. */
struct line {
	const struct cli_group *group;
	const struct cli_command *command;
	const struct cli_option *option; /* whose value is being typed; NULL: none */
	const char *first;               /* of the command's words; NULL: there is none yet */
	size_t n_words;                  /* of the command */
	bool is_over; /* what follows is somebody else's command line, or nothing is known of it */
};

struct answer {
	struct cli *cli;
	const char *typed;
	bool with_help;  /* this shell shows a word about each */
	int64_t left_ms; /* that the server is waited for yet */
	struct jsonw *w; /* NULL: plain lines */
};

static void offer(struct answer *a, struct str value, const char *help)
{
	char text[OUT_CELL];

	if (!value.n || value.n >= sizeof text || !str_has_prefix(value, str_of(a->typed)))
		return;
	out_clean(value, text, sizeof text);
	if (a->w)
		jsonw_strz(a->w, NULL, text);
	else if (a->with_help && help)
		out_line(&a->cli->out, "%s\t%s", text, help);
	else
		out_line(&a->cli->out, "%s", text);
}

/* ---- where the line stands ---- */

static const struct cli_option *option_in(const struct cli_option *options, size_t n,
	const char *word)
{
	for (size_t i = 0; i < n; i++)
		if (word[1] == '-' ? strcmp(options[i].name, word + 2) == 0
				   : options[i].letter && options[i].letter == word[1] && !word[2])
			return &options[i];
	return NULL;
}

/* An option of its own word, whose value is the next word; NULL: it is none. */
static const struct cli_option *wants_value(const struct cli_command *c, const char *word)
{
	const struct cli_option *o = c ? option_in(c->options, c->n_options, word) : NULL;

	if (!o && !(c && c->runs_alone))
		o = option_in(cli_common_options, cli_n_common_options, word);
	return o && o->value ? o : NULL;
}

/* Nothing is known about what follows a word that is none of ours. */
static void step(struct line *at, const char *word)
{
	if (at->command) {
		if (at->n_words++ == 0)
			at->first = word;
		return;
	}
	if (!at->group) {
		at->group = args_find_group(word);
		if (at->group)
			return;
	}
	at->command = args_find(at->group ? at->group->name : NULL, word);
	at->is_over = !at->command;
}

static struct line stand(char *const *words, size_t n)
{
	struct line at = { 0 };

	for (size_t i = 0; i < n && !at.is_over; i++) {
		const struct cli_option *o;

		if (words[i][0] != '-' || !words[i][1]) {
			step(&at, words[i]);
			at.is_over |= at.command && at.command->takes_command && at.n_words > 1;
		} else if (strcmp(words[i], "--") == 0) {
			at.is_over = true;
		} else if ((o = wants_value(at.command, words[i])) && ++i == n) {
			at.option = o;
		}
	}
	return at;
}

/* ---- what can follow ---- */

static void offer_options(struct answer *a, const struct cli_option *options, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		char name[64];

		(void)snprintf(name, sizeof name, "--%s", options[i].name);
		offer(a, str_of(name), options[i].help);
	}
}

static void offer_commands(struct answer *a, const struct cli_group *group)
{
	const struct cli_command *c;

	for (size_t i = 0; !group && i < cli_n_groups; i++)
		offer(a, str_of(cli_groups[i].name), cli_groups[i].summary);
	for (size_t i = 0; (c = cli_command(i)); i++) {

		if (group ? c->group && strcmp(c->group, group->name) == 0 : !c->group)
			offer(a, str_of(c->name), c->summary);
	}
}

struct row {
	struct str id, name, snapshot, state;
	struct json_int n;
};
static const struct json_field row_fields[] = {
	JSON_FIELD(struct row, id, "id", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct row, name, "name", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct row, snapshot, "snapshot", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct row, state, "state", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct row, n, "execution", JSON_INT, .flags = JSON_LAX),
};
static const struct json_shape row_shape =
	JSON_SHAPE(struct row, row_fields, .ignore_unknown = true);

struct rows {
	struct json_list items;
};
static const struct json_field rows_fields[] = {
	JSON_FIELD(struct rows, items, "items", JSON_OBJECTS, .flags = JSON_REQUIRED,
		.shape = &row_shape),
};
static const struct json_shape rows_shape =
	JSON_SHAPE(struct rows, rows_fields, .ignore_unknown = true);

/* How the word is written on the line, and what goes behind it there. */
enum by {
	BY_ID,
	BY_NAME,
	BY_SNAPSHOT,
	BY_NUMBER,
};

static void offer_row(struct answer *a, const struct row *row, enum by by, const char *behind)
{
	char help[OUT_CELL], text[OUT_CELL];
	struct str value = by == BY_ID     ? row->id
			   : by == BY_NAME ? (row->name.n ? row->name : row->id)
					   : row->snapshot;

	if (by == BY_NUMBER)
		(void)snprintf(text, sizeof text, "%" PRId64, row->n.value);
	else
		(void)snprintf(text, sizeof text, "%.*s%s", (int)MIN(value.n, sizeof text - 32),
			value.p ? value.p : "", value.n ? behind : "");
	out_text(row->state.n ? row->state : row->name, help);
	offer(a, str_of(text), by == BY_NAME || by == BY_SNAPSHOT ? NULL : help);
}

/* One page is plenty to choose from. No server, no key, too slow: then there is nothing to offer.
 */
static void offer_rows(struct answer *a, const char *path, enum by by, const char *behind)
{
	struct api_request request = { .method = "GET", .path = path, .timeout_ms = a->left_ms };
	int64_t start = time_now_ms();
	struct api_reply reply;
	struct rows rows;
	struct err ignored;
	const struct row *v;
	int r = a->left_ms > 0 ? cli_api_call(a->cli, &request, &reply, &ignored) : -ETIMEDOUT;

	a->left_ms -= time_now_ms() - start;
	if (r < 0 || json_decode(a->cli->arena, reply.body, &rows_shape, &rows, NULL) < 0)
		return;
	v = rows.items.v;
	for (size_t i = 0; i < rows.items.n; i++)
		offer_row(a, &v[i], by, behind);
}

/* All that there are: a server without one of them says so. */
static void offer_runtimes(struct answer *a)
{
	static const char *const names[] = { "crun", "gvisor", "local", "runc" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		offer(a, str_of(names[i]), NULL);
}

static void offer_all(struct answer *a, const char *const *words, size_t n)
{
	for (size_t i = 0; i < n; i++)
		offer(a, str_of(words[i]), NULL);
}

/* What the table calls a word, or an option's value, tells what it can be. */
static void offer_called(struct answer *a, struct str what, const struct line *at)
{
	static const char *const states[] = { "ended", "paused", "running" };
	static const char *const when[] = { "always", "auto", "never" };
	struct str choice;

	if (str_has_prefix(what, STR("[")))
		what = str_from(what, 1);
	if (str_has_prefix(what, STR("SANDBOX"))) {
		offer_rows(a, "/api/v1/sandboxes?limit=100", BY_ID, "");
	} else if (str_has_prefix(what, STR("TEMPLATE"))) {
		offer_rows(a, "/api/v1/templates?limit=100", BY_NAME, "");
		offer_rows(a, "/api/v1/snapshots?limit=100", BY_SNAPSHOT, "");
	} else if (str_is(what, "SNAPSHOT")) {
		offer_rows(a, "/api/v1/snapshots?limit=100", BY_SNAPSHOT, "");
	} else if (str_is(what, "VOLUME")) {
		offer_rows(a, "/api/v1/volumes?limit=100", BY_NAME, "");
	} else if (str_is(what, "VOLUME:/PATH")) {
		offer_rows(a, "/api/v1/volumes?limit=100", BY_NAME, ":/");
	} else if (str_has_prefix(what, STR("SECRET"))) {
		offer_rows(a, "/api/v1/secrets?limit=100", BY_NAME, "");
	} else if (str_is(what, "ARTIFACT")) {
		offer_rows(a, "/api/v1/artifacts?limit=100", BY_ID, "");
	} else if (str_is(what, "KEY")) {
		offer_rows(a, "/api/v1/keys", BY_ID, "");
	} else if (str_is(what, "RUNTIME")) {
		offer_runtimes(a);
	} else if (str_has_prefix(what, STR("STATE"))) {
		offer_all(a, states, ARRAY_SIZE(states));
	} else if (str_is(what, "WHEN")) {
		offer_all(a, when, ARRAY_SIZE(when));
	} else if (str_is(what, "N") && at->first && strlen(at->first) >= CLI_ID_WHOLE) {
		offer_rows(a,
			cli_path(a->cli, "/api/v1/sandboxes/", str_of(at->first),
				"/executions?limit=100"),
			BY_NUMBER, "");
	} else if (str_is(what, "COMMAND]")) {
		offer_commands(a, NULL);
	} else if (str_find(what, '|') >= 0) {
		while (str_split(&what, '|', &choice))
			offer(a, choice, NULL);
	}
}

/* What the usage line calls the next word of the command; the last name goes for all that follow
 * where any number is taken. */
static struct str next_word(const struct line *at)
{
	struct str rest = str_of(at->command->words), word = STR_NONE, name;

	for (size_t i = 0; i <= at->n_words; i++) {
		if (str_split(&rest, ' ', &name))
			word = name;
		else if (at->command->max_words >= 0)
			return STR_NONE;
	}
	return word;
}

static void answer(struct answer *a, char *const *words, size_t n)
{
	struct line at = stand(words, n - 1);

	a->typed = words[n - 1];
	if (at.is_over)
		return;
	if (at.option) {
		offer_called(a, str_of(at.option->value), &at);
	} else if (a->typed[0] == '-') {
		if (at.command)
			offer_options(a, at.command->options, at.command->n_options);
		if (!at.command || !at.command->runs_alone)
			offer_options(a, cli_common_options, cli_n_common_options);
		if (!at.command && !at.group)
			offer(a, STR("--version"), "print the version");
	} else if (at.command) {
		offer_called(a, next_word(&at), &at);
	} else {
		offer_commands(a, at.group);
	}
}

static void complete(struct cli *cli, const char *shell)
{
	struct answer a = { .cli = cli,
		.with_help = strcmp(shell, "bash") != 0,
		.left_ms = WAIT_MS };

	if (cli->out.json) {
		a.w = &cli->out.json_writer;
		jsonw_array(a.w, NULL);
	}
	answer(&a, cli->args.command_line, cli->args.n_command_line);
	if (cli->out.json) {
		jsonw_end_array(a.w);
		(void)buf_addc(&cli->out.text, '\n');
	}
}

int cmd_completion(struct cli *cli)
{
	const struct script *script = NULL;
	struct jsonw *w = &cli->out.json_writer;

	for (size_t i = 0; i < ARRAY_SIZE(scripts); i++)
		if (strcmp(scripts[i].shell, cli->args.words[0]) == 0)
			script = &scripts[i];
	if (!script)
		return err_set(&cli->e, -EINVAL, "'%s' is not one of bash, zsh, fish",
			cli->args.words[0]);
	if (cli->args.n_command_line > 0) {
		complete(cli, script->shell);
	} else if (cli->out.json) {
		jsonw_object(w, NULL);
		jsonw_strz(w, "shell", script->shell);
		jsonw_strz(w, "script", script->text);
		jsonw_end_object(w);
		(void)buf_addc(&cli->out.text, '\n');
	} else {
		(void)buf_adds(&cli->out.text, script->text);
	}
	return EXIT_OK;
}

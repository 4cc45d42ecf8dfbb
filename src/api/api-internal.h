/* What the handlers of all surfaces share: one call, its answer, its errors. */
#pragma once

#include "api/api.h"
#include "json/json.h"

enum {
	API_MAX_PARAMS = 3,
	API_REQUEST_ID_SIZE = 65,
	API_ONCE_SIZE = 2 * SHA256_SIZE + 1,
	API_BODY_BYTES = 1 << 20, /* the loop decodes it: about 10 ms */
	API_LARGE_BODY_BYTES = 16 << 20,
	API_BODY_VALUES = 16384, /* of JSON in it: as long */
	API_ANSWER_BYTES = 64 << 20,
	REQUEST_LIST_BYTES = 8192, /* as the standard has it */
};

/* This machine as its operator sees it; counted since the server started. */
struct api_node {
	char service_id[UUID_SIZE];
	bool draining;
	int64_t changed_us; /* when draining last changed */
	int64_t created, failed, starting;
	int64_t cpu_busy, cpu_all; /* at the last look */
};

struct queries; /* what each call of /api/v1 takes in its query */
struct api {
	struct api_config config;
	struct api_node node;
	struct queries *queries;
	uint64_t n_requests; /* what the ids that we make are counted by */
	char start_id[17];   /* and what tells them from those of another start */
	struct {
		struct map by_name, teams;
		struct list all;
		size_t bytes;             /* of the answers */
		uint8_t key[SHA256_SIZE]; /* seals them in the store */
	} once;
};

struct api_route;
struct api_call { /* one request; lives in the exchange's arena */
	struct api *api;
	struct http_exchange *x;
	const struct api_route *route;
	struct access_key key;      /* who asks; all zero on open routes */
	char actor[ACTOR_SIZE];     /* its id and where it asks from, for the event log */
	struct notice opened_by;    /* the end of what let it in: that key, or a volume's token */
	struct sandbox_owner owner; /* the key's team and agent: whose sandboxes it may touch */
	struct volume_owner volume_owner; /* the same, of volumes */
	bool is_operator;                 /* the operator's token was shown, and no key */
	bool is_v1;                       /* asked below /api/v1: errors look as there */
	char request_id[API_REQUEST_ID_SIZE];
	char traceparent[SANDBOX_TRACE_SIZE]; /* as sent, checked; empty: none */
	struct str params[API_MAX_PARAMS];    /* decoded {segments} of the path, in order */
	struct str body;
	int64_t began_us; /* when its head had been read */
	bool is_counted;  /* among those that are starting sandboxes */
	bool retry_is_said;
	const char
		*origin; /* of an error: user, agent or infrastructure; NULL: as its status says */
	struct arena *decoded;   /* what a job made of the body; NULL: none did */
	struct sending *sending; /* a file that is the reply; NULL: none */
	struct once *once;       /* others may wait for the answer; NULL: none do */
	struct api_call *next_waiting;
	char once_name[API_ONCE_SIZE]; /* empty: no Idempotency-Key was sent */
	char once_request[2 *
			  API_ONCE_SIZE]; /* that and the body's digest: for the sandbox's row */
};

typedef void (*api_fn)(struct api_call *call);
enum api_flags {
	API_OPEN = 1 << 0,      /* for everybody: whoever asks stays a stranger, without a body */
	API_BODY = 1 << 1,      /* the body is read before the handler is called */
	API_ADMIN = 1 << 2,     /* the operator's token is needed, and no key */
	API_STARTS = 1 << 3,    /* makes sandboxes: refused while draining, and counted */
	API_HEALTH = 1 << 4,    /* says no while draining */
	API_ALL_TEAMS = 1 << 5, /* the operator may ask without naming a team: of all of them */
	API_METRICS = 1 << 7,   /* open when the server was told so */
	API_VOLUME = 1 << 8,    /* the token of the volume in the path is needed, and no key */
	API_STREAM = 1 << 9,    /* may stay open for long: see HTTP_STREAM */
	API_LARGE = 1 << 10,    /* with API_BODY: what a command reads, or files, are part of it */
	API_ONCE = 1 << 6,      /* an Idempotency-Key makes the same request again the same one */
	API_KEPT = 1 << 11,     /* and the next server knows of it: what it makes does not say so */
};
struct api_route {
	const char *method, *pattern;
	api_fn fn;
	unsigned flags;
	unsigned scope; /* ACCESS_*, of which the key must have all; 0: any key will do */
};
/* What E2B has and this server has not built: answered with 501, and why. */
struct api_absent {
	const char *method, *pattern;
};
extern const struct api_absent api_e2b_absent[]; /* ends with a NULL method */
/* Each surface's table ends with a NULL method. */
extern const struct api_route api_e2b_routes[];
extern const struct api_route api_v1_routes[]; /* below /api/v1 */
/* The same routes as an OpenAPI document, for people and programs: openapi.json, which a test keeps
 * true. */
extern const char api_openapi[];
extern const char api_v1_openapi[]; /* v1/openapi.json */

/* Answers. Each ends the exchange. */
void api_fail(struct api_call *call, const struct err *e);
void api_fail_status(struct api_call *call, int status, const char *message);
/* With a word for programs, which stays the same, and a hint for people; either may be NULL: as the
 * status says. Surfaces that have no place for them leave them out. */
void api_fail_as(struct api_call *call, int status, const char *code, const char *message,
	const char *hint);
void api_reply_json(struct api_call *call, int status, const struct buf *body);
void api_reply_text(struct api_call *call, int status, struct str json); /* the whole document */
void api_reply_empty(struct api_call *call, int status);
int api_status_of(int err_code);
/* Ends it unanswered: its client has gone. */
void api_abandon(struct api_call *call);
/* Before the answer: when to come again. 429 and 503 say a second by themselves. */
void api_retry_after(struct api_call *call, int64_t seconds);
/* Whoever answers by http_begin or a relay says so here first, once. */
void api_note_answer(struct api_call *call, int status);
/* Before the answer, when it is a file that somebody else wrote: it is saved, never shown.
 * `disposition` is the header that it came with; empty: none. */
void api_add_attachment(struct api_call *call, struct str disposition);
/* Has the caller's key all of these scopes (ACCESS_*)? The operator has. */
bool api_may(const struct api_call *call, unsigned scopes);
/* The agent and task of what is made in the name of this call: as was asked, checked, and the key's
 * own agent where it is bound to one. Answers 400 or 403 itself. */
struct api_labels {
	const char *agent_id, *task_id; /* terminated; empty: none */
};
int api_labels(struct api_call *call, struct str agent_id, struct str task_id,
	struct api_labels *ret);
/* The usual end of a call: the error, or one JSON document.
 *     if (!api_answer_begin(call, &answer, r, e))
 *             return;
 *     write_thing(&answer.w, thing);
 *     api_answer_send(call, &answer, 201); */
struct api_answer {
	struct buf body;
	struct jsonw w;
};
bool api_answer_begin(struct api_call *call, struct api_answer *answer, int r, const struct err *e);
void api_answer_send(struct api_call *call, struct api_answer *answer, int status);

/* Decodes the body by a shape; answers 400 itself and returns negative when it cannot. An empty
 * body counts as {} when `optional`. */
int api_decode(struct api_call *call, const struct json_shape *shape, void *out, bool optional);
/* The same for routes that take much: a long body is decoded by a job. `then` is called when that
 * has gone well, at once for a short one; shape and out have to stay until the call ends. */
void api_decode_then(struct api_call *call, const struct json_shape *shape, void *out,
	bool optional, loop_fn then, void *arg);
/* What opened a call may end before it does: `opened_by` is given to whoever tells, with
 * api_revoked and the call, and is dropped with the exchange. Then its client is dismissed. */
void api_revoked(void *call);
void api_holds(struct api_call *call);
/* The token of "Authorization: Bearer TOKEN"; p is NULL when there is none. */
struct str api_bearer(const struct http_exchange *x);
/* An integer query value; answers 400 itself. Absent leaves *ret alone. */
int api_query_int(struct api_call *call, const char *name, int64_t min, int64_t max, int64_t *ret);
/* `start` and `end`, in seconds since 1970; absent leaves them alone. Answers 400 itself. */
int api_query_range(struct api_call *call, int64_t *start_s, int64_t *end_s);
/* done_fn that ends a call with 204 or the error. */
void api_done_empty(void *call, int r, const struct err *e);

/* ---- request.c ---- */
/* 1 to 64 letters, digits and . _ : - */
bool request_id_is_sane(struct str id);
/* A W3C traceparent, as version 00; of a later version the first four fields count. What is
 * malformed is as if it had not been sent: false, and *ret is empty. */
bool request_trace(struct str text, char ret[SANDBOX_TRACE_SIZE]);
/* All headers of that name as one list (W3C's tracestate and baggage come in pieces), in the arena.
 * Empty: there is none, it is longer than anybody has to pass on, or not plain text. */
struct str request_list(struct http_exchange *x, const char *header);

/* ---- once.c ---- */
/* True: it is answered, or will be, as another one is. */
bool once_begin(struct api_call *call);
void once_answered(struct api_call *call, int status, struct str body);
void once_streamed(struct api_call *call);  /* the answer cannot be kept */
void once_abandoned(struct api_call *call); /* there will be none */
bool once_is_awaited(const struct api_call *call);
int once_load(struct api *api, struct err *e); /* blocking, at start */
void once_done(struct api *api);

/* ---- file.c ---- */
/* Sends so much of a regular file and ends the reply, after http_begin with that length. Takes the
 * descriptor. The loop itself never reads, nor closes, what sandboxes may write to. */
void api_take_file(struct api_call *call, int fd, int64_t offset, int64_t length);
void api_file_over(struct api_call *call); /* its exchange ends, whatever was sent */

/* ---- once-rows.c ---- */
enum {
	ONCE_UNTOLD = 1,
};
struct once_row {
	char name[API_ONCE_SIZE]; /* of whose, what and the key */
	char team_id[ACCESS_ID_SIZE];
	uint8_t body[SHA256_SIZE]; /* what was asked */
	int64_t asked_us;
	int status; /* 0: it was begun; ONCE_UNTOLD: done, and its answer not kept */
};
/* Before anything is done. A row of that name is another request's that is over: it is replaced. */
void once_row_insert(struct store *store, const struct once_row *row, int64_t forget_before_us,
	done_fn done, void *arg);
/* It was done, and this was the answer. */
void once_row_answer(struct store *store, const uint8_t key[SHA256_SIZE], const char *name,
	int status, struct str answer);
void once_row_remove(struct store *store, const char *name);
/* Oldest first, those that were asked since then; the others are removed. Blocking. */
typedef void (*once_row_fn)(void *arg, const struct once_row *row, struct str answer);
int once_rows_load(struct store *store, const uint8_t key[SHA256_SIZE], int64_t from_us,
	once_row_fn fn, void *arg, struct err *e);

/* ---- api.c ---- */
void api_run(struct api_call *call); /* the handler; may answer now or later */

/* ---- query.c ---- */
int queries_new(struct queries **ret, struct err *e);
struct queries *queries_free(struct queries *q);
DEFINE_CLEANUP(struct queries, queries_free)
/* Of a call below /api/v1: all that its query names is in the document. Answers 400 itself. */
bool query_is_known(struct api_call *call);

/* ---- network.c ---- */
/* A new sandbox's network object, in the spelling of the call's surface, into the four options that
 * it is kept as; empty: none. options->internet is said already. Answers 400 or 403 itself. */
int api_network_read(struct api_call *call, struct str raw, struct sandbox_options *options);
/* One that replaces the way out of `now`, the object that is kept; the way in stays as it is.
 * Answers 400 or 403 itself. */
int api_network_update(struct api_call *call, struct str raw, struct str now, struct str *ret,
	struct json_bool *ret_internet);
/* Of /api/v1: that object as a change of some members alone makes it, null taking one away, for
 * api_network_update. Answers 400 itself. */
int api_network_merge(struct api_call *call, struct str raw, const struct sandbox_options *now,
	struct str *ret);
/* Of /api/v1: every member of a kept one into an open object, null for those that it has not. */
void api_network_members(struct api_call *call, struct jsonw *w, struct str network);
/* A kept one, as the call's surface spells it. */
void api_network_write(const struct api_call *call, struct jsonw *w, const char *key,
	struct str network);

/* ---- names.c ---- */
/* [space/]alias[:tag], folded to lower case; what is not given has p NULL. */
struct api_name {
	struct str space, alias, tag;
	struct str clean; /* alias[:tag] */
};
/* -EINVAL: no legal name. */
int api_name_read(struct arena *arena, struct str text, struct api_name *ret, struct err *e);
/* A name to be given or looked for in one's own team. Answers 400 itself. */
int api_name_read_own(struct api_call *call, struct str text, struct api_name *ret);
/* What a name, id or snapshot id stands for: a snapshot of the team, or a template. */
struct api_template {
	const struct sandbox_snapshot *snap; /* NULL: it is the template */
	struct template t;
};
/* -EINVAL: no legal name. -ENOENT. -EBADMSG: its template.toml is wrong. */
int api_template_look(struct api_call *call, struct str wanted, struct api_template *ret,
	struct err *e);
/* Answers the error itself. */
int api_template_find(struct api_call *call, struct str wanted, struct api_template *ret);

/* ---- mounts.c ---- */
extern const struct json_shape api_mount_shape; /* of an element of `volumes` or volumeMounts */
/* The volumes that a new sandbox is to see; their texts are the exchange's. Answers 400, or 429 for
 * one that is full, itself. */
int api_mounts_read(struct api_call *call, const struct json_list *list,
	struct sandbox_options *options);

/* ---- cors.c ---- */
/* Marks the coming answer as readable by pages of any origin; true: it was a preflight, answered.
 */
bool cors_handle(struct http_exchange *x);

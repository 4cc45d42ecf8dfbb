/* The operator's view: this machine as E2B's one node, and all teams' sandboxes. */
#include "api/e2b/e2b.h"
#include "observe/observe.h"

#define CLUSTER_ID "00000000-0000-0000-0000-000000000000" /* there is one, and it has no name */

/* ---- nodes ---- */

struct load {
	int64_t sandboxes, cpu, memory_mb;
};

static void add_load(void *arg, const struct sandbox *sb)
{
	struct load *load = arg;

	if (sandbox_is_paused(sb))
		return;
	load->sandboxes++;
	load->cpu += sb->limits.v[LIMIT_CPU];
	load->memory_mb += sb->limits.v[LIMIT_MEMORY];
}

struct team_walk {
	struct api_call *call;
	struct load load;
	struct jsonw *w;
};

static void add_team_load(void *arg, const struct access_team *team)
{
	struct team_walk *walk = arg;
	struct sandbox_owner owner = { .team_id = team->id };

	sandbox_each(walk->call->api->config.sandboxes, &owner, add_load, &walk->load);
}

/* Of the time since the last look; of the time since boot at the first. */
static int64_t cpu_percent(struct api_node *node, const struct observe_machine *m)
{
	int64_t all = m->cpu_all - node->cpu_all, busy = m->cpu_busy - node->cpu_busy;

	node->cpu_all = m->cpu_all;
	node->cpu_busy = m->cpu_busy;
	return all > 0 ? MAX(busy, 0) * 100 / all : 0;
}

static void write_metrics(struct jsonw *w, struct api_node *node, const struct load *load,
	const struct observe_machine *m)
{
	jsonw_object(w, "metrics");
	jsonw_int(w, "allocatedCPU", load->cpu);
	jsonw_int(w, "cpuPercent", cpu_percent(node, m));
	jsonw_int(w, "cpuCount", m->cpu_count);
	jsonw_int(w, "allocatedMemoryBytes", load->memory_mb << 20);
	jsonw_int(w, "memoryUsedBytes", m->memory_used);
	jsonw_int(w, "memoryTotalBytes", m->memory_total);
	jsonw_int(w, "hugePagesTotal", m->pages_total);
	jsonw_int(w, "hugePagesUsed", m->pages_total - m->pages_free);
	jsonw_int(w, "hugePagesReserved", m->pages_reserved);
	jsonw_int(w, "hugePageSizeBytes", m->page_bytes);
	jsonw_array(w, "disks");
	jsonw_end_array(w);
	jsonw_end_object(w);
}

static void write_machine(struct jsonw *w, const struct observe_machine *m)
{
	jsonw_object(w, "machineInfo");
	jsonw_strz(w, "cpuFamily", m->cpu_family);
	jsonw_strz(w, "cpuModel", m->cpu_model);
	jsonw_strz(w, "cpuModelName", m->cpu_name);
	jsonw_strz(w, "cpuArchitecture", m->cpu_architecture);
	jsonw_end_object(w);
}

static void write_node(struct api_call *call, struct jsonw *w)
{
	struct api_node *node = &call->api->node;
	struct team_walk walk = { .call = call };
	struct observe_machine m;
	char at[RFC3339_SIZE];

	observe_machine(&m);
	access_each_team(call->api->config.access, add_team_load, &walk);
	time_rfc3339(node->changed_us, at);
	jsonw_object(w, NULL);
	jsonw_strz(w, "id", call->api->config.node_id);
	jsonw_strz(w, "clusterID", CLUSTER_ID);
	jsonw_strz(w, "serviceInstanceID", node->service_id);
	jsonw_strz(w, "version", ATOLL_VERSION);
	jsonw_strz(w, "commit", "");
	jsonw_strz(w, "status", node->draining ? "draining" : "ready");
	jsonw_strz(w, "statusChangedAt", at);
	jsonw_int(w, "sandboxCount", walk.load.sandboxes);
	jsonw_int(w, "sandboxStartingCount", node->starting);
	jsonw_int(w, "createSuccesses", node->created);
	jsonw_int(w, "createFails", node->failed);
	write_machine(w, &m);
	write_metrics(w, node, &walk.load, &m);
	jsonw_end_object(w);
}

/* Is the cluster that was named ours? Absent: yes. Answers 400 itself. */
static int check_cluster(struct api_call *call, struct str id, bool *ret)
{
	*ret = !id.p || str_is(id, CLUSTER_ID);
	if (!id.p || str_is_uuid(id))
		return 0;
	api_fail_status(call, 400, "validation error: clusterID must be a UUID");
	return -EINVAL;
}

void e2b_nodes_list(struct api_call *call)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(64 << 10);
	struct jsonw w;
	bool is_ours;

	if (check_cluster(call, http_query_value(call->x, "clusterID"), &is_ours) < 0)
		return;
	jsonw_init(&w, &body);
	jsonw_array(&w, NULL);
	if (is_ours)
		write_node(call, &w);
	jsonw_end_array(&w);
	api_reply_json(call, 200, &body);
}

static int check_node(struct api_call *call, struct str cluster_id)
{
	bool is_ours;

	if (check_cluster(call, cluster_id, &is_ours) < 0)
		return -EINVAL;
	if (is_ours && str_is(call->params[0], call->api->config.node_id))
		return 0;
	api_fail_status(call, 404, "node not found");
	return -ENOENT;
}

void e2b_nodes_get(struct api_call *call)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(64 << 10);
	struct jsonw w;

	if (check_node(call, http_query_value(call->x, "clusterID")) < 0)
		return;
	jsonw_init(&w, &body);
	write_node(call, &w);
	api_reply_json(call, 200, &body);
}

struct status_in {
	struct str status, cluster_id;
};
static const struct json_field status_fields[] = {
	JSON_FIELD(struct status_in, status, "status", JSON_STR, .flags = JSON_REQUIRED),
	JSON_FIELD(struct status_in, cluster_id, "clusterID", JSON_STR, .flags = JSON_NULLABLE),
};
static const struct json_shape status_shape = JSON_SHAPE(struct status_in, status_fields);

/* Kept until the server is started again: a node that comes up is ready. */
void e2b_nodes_set(struct api_call *call)
{
	struct api_node *node = &call->api->node;
	struct status_in in;
	bool draining;

	if (api_decode(call, &status_shape, &in, false) < 0 || check_node(call, in.cluster_id) < 0)
		return;
	draining = str_is(in.status, "draining");
	if (!draining && !str_is(in.status, "ready")) {
		api_fail_status(call, 400, "validation error: status must be ready or draining");
		return;
	}
	if (draining != node->draining) {
		node->draining = draining;
		node->changed_us = time_wall_us();
		log_info("node.status", "status=%s", draining ? "draining" : "ready");
	}
	api_reply_empty(call, 204);
}

/* ---- all teams ---- */

static void count_team(void *arg, const struct access_team *team)
{
	struct team_walk *walk = arg;
	struct sandbox_owner owner = { .team_id = team->id };

	walk->load = (struct load){ 0 };
	sandbox_each(walk->call->api->config.sandboxes, &owner, add_load, &walk->load);
	if (walk->load.sandboxes)
		jsonw_int(walk->w, team->id, walk->load.sandboxes);
}

void e2b_admin_counts(struct api_call *call)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(4 << 20);
	struct jsonw w;
	struct team_walk walk = { .call = call, .w = &w };

	jsonw_init(&w, &body);
	jsonw_object(&w, NULL);
	access_each_team(call->api->config.access, count_team, &walk);
	jsonw_end_object(&w);
	api_reply_json(call, 200, &body);
}

static void reply_counts(struct api_call *call, const char *key, int64_t done, int64_t failed)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(4096);
	struct jsonw w;

	jsonw_init(&w, &body);
	jsonw_object(&w, NULL);
	jsonw_int(&w, key, done);
	jsonw_int(&w, "failedCount", failed);
	jsonw_end_object(&w);
	api_reply_json(call, 200, &body);
}

struct killing {
	struct api_call *call;
	char (*ids)[SANDBOX_ID_SIZE]; /* killing one changes the book, so they are noted first */
	size_t n, cap;
	int64_t waiting, killed, failed;
};

static void note_id(void *arg, const struct sandbox *sb)
{
	struct killing *k = arg;

	if (k->n < k->cap)
		memcpy(k->ids[k->n++], sb->id, SANDBOX_ID_SIZE);
}

static void one_killed(void *arg, int r, const struct err *e)
{
	struct killing *k = arg;

	(void)e;
	k->killed += r >= 0;
	k->failed += r < 0 && r != -ENOENT; /* somebody else was faster: it is gone all the same */
	if (--k->waiting > 0)
		return;
	reply_counts(k->call, "killedCount", k->killed, k->failed);
	free(k->ids);
	free(k);
}

void e2b_admin_kill(struct api_call *call)
{
	const struct access_team *team = e2b_admin_team(call);
	struct sandbox_book *book = call->api->config.sandboxes;
	struct sandbox_owner owner = { 0 };
	struct killing *k;

	if (!team)
		return;
	owner.team_id = team->id;
	k = XNEW(struct killing);
	k->call = call;
	k->cap = sandbox_count(book);
	k->ids = xcalloc(k->cap + 1, SANDBOX_ID_SIZE);
	sandbox_each(book, &owner, note_id, k);
	k->waiting = (int64_t)k->n;
	if (k->n == 0) {
		reply_counts(call, "killedCount", 0, 0);
		free(k->ids);
		free(k);
		return;
	}
	for (size_t i = 0, n = k->n; i < n; i++)
		sandbox_kill(book, &owner, str_of(k->ids[i]), call->actor, one_killed, k);
}

/* Templates are made outside the server, so no build ever runs here. */
void e2b_admin_cancel_builds(struct api_call *call)
{
	if (e2b_admin_team(call))
		reply_counts(call, "cancelledCount", 0, 0);
}

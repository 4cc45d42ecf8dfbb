/* The machine, as /proc tells it: reads that never wait. What is missing stays zero or empty. */
#include "observe/observe.h"

#include <sys/utsname.h>

/* "key : value" in any of /proc's spacings; the first line of that key counts. */
static struct str value_of(struct str text, const char *key)
{
	struct str line, name;

	while (str_split(&text, '\n', &line)) {
		if (!str_split(&line, ':', &name))
			continue;
		if (str_is(str_trim(name), key))
			return str_trim(line);
	}
	return STR_NONE;
}

/* "123 kB" or "123". */
static int64_t number_of(struct str text, const char *key)
{
	struct str value = value_of(text, key), digits;
	int64_t n = 0;

	if (!str_split(&value, ' ', &digits) || str_to_int(digits, 0, INT64_MAX / 1024, &n) < 0)
		return 0;
	return value.n ? n * 1024 : n;
}

static void copy(char *to, size_t size, struct str from)
{
	(void)snprintf(to, size, "%.*s", STR_ARG(from));
}

static void read_cpu(struct observe_machine *m)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(4 << 20);
	struct utsname name = { 0 };

	(void)file_read(AT_FDCWD, "/proc/cpuinfo", &text, NULL);
	copy(m->cpu_family, sizeof m->cpu_family, value_of(buf_str(&text), "cpu family"));
	copy(m->cpu_model, sizeof m->cpu_model, value_of(buf_str(&text), "model"));
	copy(m->cpu_name, sizeof m->cpu_name, value_of(buf_str(&text), "model name"));
	if (uname(&name) == 0)
		copy(m->cpu_architecture, sizeof m->cpu_architecture, str_of(name.machine));
	m->cpu_count = MAX(sysconf(_SC_NPROCESSORS_ONLN), 1);
}

static void read_memory(struct observe_machine *m)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(64 << 10);

	(void)file_read(AT_FDCWD, "/proc/meminfo", &text, NULL);
	m->memory_total = number_of(buf_str(&text), "MemTotal");
	m->memory_used = m->memory_total - number_of(buf_str(&text), "MemAvailable");
	m->pages_total = number_of(buf_str(&text), "HugePages_Total");
	m->pages_free = number_of(buf_str(&text), "HugePages_Free");
	m->pages_reserved = number_of(buf_str(&text), "HugePages_Rsvd");
	m->page_bytes = number_of(buf_str(&text), "Hugepagesize");
}

/* "cpu  user nice system idle iowait ..." */
static void read_ticks(struct observe_machine *m)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(4 << 20);
	struct str rest, line = STR_NONE, word;
	int64_t n;

	(void)file_read(AT_FDCWD, "/proc/stat", &text, NULL);
	rest = buf_str(&text);
	(void)str_split(&rest, '\n', &line);
	for (int i = 0; str_split(&line, ' ', &word);) {
		if (str_to_int(word, 0, INT64_MAX, &n) < 0)
			continue;
		m->cpu_all += n;
		m->cpu_busy += i == 3 || i == 4 ? 0 : n;
		i++;
	}
}

void observe_machine(struct observe_machine *ret)
{
	*ret = (struct observe_machine){ 0 };
	read_cpu(ret);
	read_memory(ret);
	read_ticks(ret);
}
